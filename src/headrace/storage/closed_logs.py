"""The file `headrace-closed-logs`: what a clean stop left of each log, so that the next start sees what is missing.

After a clean stop nothing is read again, and so nobody would notice a file that was cut or removed meanwhile. This says
what the files were: the sizes of the segments, how many aborted transactions their indexes have, and what the
checkpoints and `partition.metadata` say, which is taken from it when they are gone. Kafka leaves the file alone. The
marker of the clean stop has its CRC32C: one that Kafka, or anybody, left behind in a later stop is not believed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

from headrace.named_tuple import NamedTuple
from headrace.protocol.batch_crc import crc32c
from headrace.storage.checkpoint import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, TopicPartition
from headrace.storage.disk import Disk, FileVanished
from headrace.storage.identity import id_text, parse_id

if TYPE_CHECKING:
    from headrace.storage.log import Log

logger = logging.getLogger(__name__)

CLOSED_LOGS: Final = "headrace-closed-logs"

_VERSION: Final = b"0"
_NO_ID: Final = "-"


class ClosedSegment(NamedTuple):
    base_offset: int
    size_bytes: int
    aborted: int
    """How many transactions its transaction index has."""


class ClosedLog(NamedTuple):
    topic_id: bytes | None
    end_offset: int
    log_start_offset: int
    high_watermark: int
    clean_offset: int
    segments: list[ClosedSegment]

    @classmethod
    def of(cls, log: Log) -> Self:
        """As it is left, after everything was written."""
        return cls(
            log.topic_id,
            log.log_end_offset,
            log.log_start_offset,
            log.high_watermark,
            log.clean_offset,
            [ClosedSegment(found.base_offset, found.size_bytes, found.aborted_count()) for found in log.segments],
        )

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def encode(self) -> str:
        segments = " ".join(f"{base_offset}:{size}:{aborted}" for base_offset, size, aborted in self.segments)
        topic_id = _NO_ID if self.topic_id is None else id_text(self.topic_id)
        return (
            f"{topic_id} {self.end_offset} {self.log_start_offset} {self.high_watermark} {self.clean_offset} {segments}"
        )

    @classmethod
    def decode(cls, line: str) -> Self:
        topic_id, end, start, mark, cleaned, *segments = line.split()
        return cls(
            None if topic_id == _NO_ID else parse_id(topic_id),
            int(end),
            int(start),
            int(mark),
            int(cleaned),
            [ClosedSegment(*map(int, segment.split(":"))) for segment in segments],
        )


class ClosedLogs:
    """Those of one log directory, each decoded when it is asked for."""

    __slots__ = ("_lines",)

    def __init__(self, lines: dict[TopicPartition, str] | None = None) -> None:
        self._lines = lines or {}

    def get(self, key: TopicPartition) -> ClosedLog | None:
        line = self._lines.get(key)
        return None if line is None else ClosedLog.decode(line)

    def offsets(self, checkpoint: str) -> dict[TopicPartition, int]:
        """What a checkpoint said, by its name."""
        column = _COLUMNS[checkpoint]
        return {key: int(line.split(None, column + 1)[column]) for key, line in self._lines.items()}

    def keys(self) -> set[TopicPartition]:
        return set(self._lines)

    def __bool__(self) -> bool:
        return bool(self._lines)


_COLUMNS: Final = {RECOVERY_POINTS: 1, LOG_STARTS: 2, HIGH_WATERMARKS: 3, CLEANED: 4}


def write_closed_logs(disk: Disk, logs: Mapping[TopicPartition, ClosedLog]) -> int:
    """Returns the CRC32C, for the marker. Blocks for two syncs."""
    lines = [f"{topic} {partition} {log.encode()}" for (topic, partition), log in sorted(logs.items())]
    content = "\n".join([_VERSION.decode(), str(len(lines)), *lines, ""]).encode()
    disk.replace(CLOSED_LOGS, content)
    return crc32c(content)


def read_closed_logs(disk: Disk, crc: int | None) -> ClosedLogs:
    """Those that the marker speaks of; none, with a warning, when that is not what the file has."""
    found, problem = find_closed_logs(disk, crc)
    if problem:
        logger.warning("%s %s; the files are taken as they are found", disk.full_path(CLOSED_LOGS), problem)
    return found


def find_closed_logs(disk: Disk, crc: int | None) -> tuple[ClosedLogs, str]:
    """Those that the marker speaks of, and what is wrong with the file when they can't be had."""
    if crc is None:
        return ClosedLogs(), ""  # a stop of Kafka's
    try:
        content = disk.read(CLOSED_LOGS)
    except FileVanished:
        return ClosedLogs(), "is missing"
    if crc32c(content) != crc or content.split(b"\n", 1)[0] != _VERSION:
        return ClosedLogs(), "is damaged"
    return ClosedLogs(_parse(content.decode())), ""


def _parse(text: str) -> dict[TopicPartition, str]:
    lines = {}
    for entry in text.splitlines()[2:]:
        topic, partition, line = entry.split(" ", 2)
        lines[topic, int(partition)] = line
    return lines
