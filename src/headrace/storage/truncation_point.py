"""The file `truncation-point`: a recovery point below the one that the checkpoint of the log directory has.

A truncation lowers the recovery point of one log, durably, before anything is cut: else a restart would take what comes
in the place of the cut batches for bytes that are known to be durable. The checkpoint is of all logs together and may
just be on its way to the disk, so this stands beside the log's own files until a later checkpoint says the same.

A log that drops all it has says in a second line where it goes on: a crash may leave it without any segment.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace.named_tuple import NamedTuple
from headrace.storage.checkpoint import CheckpointDamaged, read_lines, write_lines
from headrace.storage.disk import FileVanished
from headrace.storage.place import Place

if TYPE_CHECKING:
    from headrace.storage.log import Log

TRUNCATION_POINT: Final = "truncation-point"

logger = logging.getLogger(__name__)


class TruncationPoint(NamedTuple):
    recovery_point: int = 0
    restart_offset: int = 0
    """Where the log goes on that has no segment left."""


def write_truncation_point(log: Log, offset: int, restart_offset: int | None = None) -> None:
    """Blocks for two syncs."""
    lines = [str(offset)] if restart_offset is None else [str(offset), str(restart_offset)]
    write_lines(log.place.disk, log.place.path(TRUNCATION_POINT), lines)


def read_truncation_point(place: Place) -> TruncationPoint:
    """A damaged one is 0: then all of the log is checked."""
    try:
        offsets = [int(words[0]) for words in read_lines(place.disk, place.path(TRUNCATION_POINT), 1)]
    except CheckpointDamaged as damaged:
        logger.warning("%s", damaged)
        return TruncationPoint()
    except ValueError:
        offsets = []
    if not offsets:
        logger.warning("%s has no offset; all of the log is checked", place.full_path(TRUNCATION_POINT))
    return TruncationPoint(*offsets[:2])


def remove_truncation_point(place: Place) -> None:
    with suppress(FileVanished):
        place.remove(TRUNCATION_POINT)
