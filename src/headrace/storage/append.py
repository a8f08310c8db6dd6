# cython: language_level=3, annotation_typing=False, nonecheck=True
"""What may be appended to a log, and what an append answers.

A leader takes what a client sends by the rules of `batch_admission`, and what its own coordinators write as sound
batches. It looks inside a batch only where the topic's settings make it: keys on compacted topics, a limit on old
timestamps, another codec than the topic's. A follower takes what its leader has, as it is.
"""

from __future__ import annotations

from typing import Final

from headrace.config import CompressionType, LogConfig, TimestampType
from headrace.errors import Error, ProtocolError, Refused
from headrace.protocol.batch import ATTRIBUTES_AT, COMPRESSION_MASK, CONTROL_BIT, Batch, scan
from headrace.protocol.batch_admission import admit
from headrace.protocol.batch_builder import recompress
from headrace.protocol.compression import Compression
from headrace.protocol.kernel import Records
from headrace.protocol.record_admission import RecordRules
from headrace.protocol.records import records_of
from headrace.storage.producer_state import CLIENT, Origin

PRODUCE_VERSION: Final = 13
"""Of Produce, whose rules apply when the caller names no other."""

_UNCOMPRESSED: Final = Compression.NONE
_CODECS: Final = {
    CompressionType.PRODUCER: None,
    CompressionType.UNCOMPRESSED: Compression.NONE,
    CompressionType.GZIP: Compression.GZIP,
    CompressionType.SNAPPY: Compression.SNAPPY,
    CompressionType.LZ4: Compression.LZ4,
    CompressionType.ZSTD: Compression.ZSTD,
}


class Appended:
    """What was appended, and where; or, for a duplicate, what was appended when it first came."""

    __slots__ = ("first_offset", "is_duplicate", "last_offset", "log_append_time", "log_start_offset", "size_bytes")

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time: int,
        log_start_offset: int,
        size_bytes: int,
        is_duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time = log_append_time
        """-1 with CreateTime."""
        self.log_start_offset = log_start_offset
        self.size_bytes = size_bytes
        self.is_duplicate = is_duplicate

    def __repr__(self) -> str:
        return f"<Appended {self.first_offset}..{self.last_offset}{' again' if self.is_duplicate else ''}>"


class Prepared:
    """A batch that was checked, and recompressed, away from the loop: what an append with the same rules takes."""

    __slots__ = ("batches", "content", "now_ms", "rules")

    def __init__(self, rules: LeaderRules, content: memoryview, batches: list[Batch], now_ms: int) -> None:
        self.rules = rules
        self.content = content
        self.batches = batches
        self.now_ms = now_ms
        """The time of the append, as far as its records tell it."""


class LeaderRules:
    """A topic's settings as far as a leader's append asks for them, worked out once."""

    __slots__ = (
        "after_ms_max",
        "codec",
        "decompressed_bytes_max",
        "is_append_time",
        "level",
        "looks_inside",
        "max_message_bytes",
        "opens_all",
        "record_rules",
        "segment_bytes",
    )

    def __init__(self, config: LogConfig, decompressed_bytes_max: int) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.is_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        self.after_ms_max = config.message_timestamp_after_max_ms
        self.record_rules = RecordRules(
            needs_keys=config.compact,
            checks_times=not self.is_append_time,
            before_ms_max=config.message_timestamp_before_max_ms,
            after_ms_max=self.after_ms_max,
        )
        self.codec = _CODECS[config.compression_type]
        self.level = _level(config)
        self.decompressed_bytes_max = decompressed_bytes_max
        self.opens_all = self.record_rules.opens_all
        self.looks_inside = self.opens_all or self.codec is not None

    def admit(
        self, records: memoryview, origin: Origin, produce_version: int, now_ms: int
    ) -> tuple[memoryview, list[Batch]]:
        """The batches of an append, checked, with their bytes: those that came, or others after recompression.

        Sets the time of the append where the topic wants it. Raises Refused, with Kafka's error code.
        """
        if origin is CLIENT:
            batches = [admit(records, produce_version)]
        else:
            batches = sound_batches(records)
            if not batches:
                raise Refused(Error.INVALID_RECORD, "There is no batch to append.")
        for batch in batches:
            if batch.size_bytes > self.max_message_bytes:
                raise Refused(
                    Error.MESSAGE_TOO_LARGE,
                    f"The batch is {batch.size_bytes} bytes long, and the topic's max.message.bytes is "
                    f"{self.max_message_bytes}.",
                )
        if self.looks_inside:
            records, batches = self._look_inside(records, batches, now_ms)
        if self.is_append_time:
            for batch in batches:
                batch.set_log_append_time(now_ms)
        else:
            for batch in batches:
                if batch.max_timestamp - now_ms > self.after_ms_max:
                    raise self.record_rules.too_late(batch, now_ms)
        if len(records) > self.segment_bytes:
            raise Refused(
                Error.RECORD_LIST_TOO_LARGE,
                f"The batches are {len(records)} bytes long, and the topic's segment.bytes is {self.segment_bytes}.",
            )
        return records, batches

    def leaves_loop(self, records: memoryview | None) -> bool:
        """To append this takes a decompression or a compression: whoever serves others meanwhile prepares it elsewhere.

        A look at one byte: what is no batch is refused by the append itself, and so is one that is too large.
        """
        if records is None or not ATTRIBUTES_AT < len(records) <= self.max_message_bytes:
            return False
        compression = records[ATTRIBUTES_AT] & COMPRESSION_MASK
        if self.codec is not None and compression != self.codec:
            return True
        return self.opens_all and compression != _UNCOMPRESSED

    def prepare(self, records: bytes, produce_version: int, now_ms: int) -> Prepared:
        """A job for a worker: what a client sent, ready to be appended. Raises Refused."""
        content, batches = self.admit(memoryview(bytearray(records)), CLIENT, produce_version, now_ms)
        return Prepared(self, content, batches, now_ms)

    def _needs_recompression(self, batch: Batch) -> bool:
        return self.codec is not None and batch.attributes & (COMPRESSION_MASK | CONTROL_BIT) != self.codec

    def _look_inside(self, records: memoryview, batches: list[Batch], now_ms: int) -> tuple[memoryview, list[Batch]]:
        rewritten = []
        for batch in batches:
            if batch.attributes & CONTROL_BIT or not (self.opens_all or self._needs_recompression(batch)):
                rewritten.append(batch)
                continue
            try:
                found = records_of(batch, self.decompressed_bytes_max)
                if not found.is_dense():
                    raise Refused(
                        Error.INVALID_RECORD, "The offsets of a produced batch must count its records from 0."
                    )
                self.record_rules.check(batch, found, now_ms)
                rewritten.append(self._recompress(batch, found) if self._needs_recompression(batch) else batch)
            except ProtocolError as error:
                # Its checksum was right: it came as it was sent, and the same bytes again would be no better.
                raise Refused(Error.INVALID_RECORD, str(error)) from error
        if all(new is old for new, old in zip(rewritten, batches, strict=True)):
            return records, batches
        content = memoryview(bytearray(b"".join(batch.view for batch in rewritten)))
        return content, list(scan(content))

    def _recompress(self, batch: Batch, found: Records) -> Batch:
        assert self.codec is not None
        again = Batch(memoryview(recompress(batch, found.section(), self.codec, self.level)))
        if again.size_bytes > self.max_message_bytes:
            raise Refused(
                Error.MESSAGE_TOO_LARGE,
                f"The batch is {again.size_bytes} bytes long in the topic's compression.type, and its "
                f"max.message.bytes is {self.max_message_bytes}.",
            )
        return again


def sound_batches(records: memoryview, *, partial: bool = False) -> list[Batch]:
    """The batches of a buffer, each whole and with a CRC that is right; or Refused."""
    try:
        batches = list(scan(records, partial=partial))
        for batch in batches:
            batch.verify()
    except ProtocolError as error:
        raise Refused(Error.CORRUPT_MESSAGE, str(error)) from error
    return batches


def _level(config: LogConfig) -> int | None:
    match config.compression_type:
        case CompressionType.GZIP:
            return None if config.compression_gzip_level == -1 else config.compression_gzip_level
        case CompressionType.LZ4:
            return config.compression_lz4_level
        case CompressionType.ZSTD:
            return config.compression_zstd_level
    return None
