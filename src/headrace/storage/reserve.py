"""A little room on each disk that records can't take: what leads out of a full disk has it.

To delete a topic or its records takes a record of metadata and a checkpoint, and so does a start. A file holds room for
them: when they find none it is cut, they are written, and it takes what is left (`Disk.spent_reserve`), so that nobody
else does. From then on no records are taken, which would eat what others free, until there is room for twice as much as
is kept; then the file is made whole.
"""

from __future__ import annotations

import logging
from typing import Final

from headrace.storage.disk import RESERVE_FILE, Disk, DiskError, DiskFull, FileVanished

logger = logging.getLogger(__name__)

ASKS_EVERY_MS: Final = 100


def find_reserve(disk: Disk) -> None:
    """At a start: it is there, or it is made, or the disk is tight."""
    try:
        found_bytes = disk.stat(RESERVE_FILE).size
    except FileVanished:
        found_bytes = 0
    disk.has_reserve = found_bytes > 0
    if found_bytes < disk.reserve_bytes() and not _make(disk):
        disk.tighten()


def require_room(disk: Disk, path: str, now_ms: int) -> None:
    """Raises DiskFull while a disk is tight; it is none any more as soon as there is room again.

    That is looked for now and then, and not by each of thousands of clients that try again.
    """
    if disk.is_tight:
        is_asked = disk.asked_room_ms <= now_ms < disk.asked_room_ms + ASKS_EVERY_MS
        disk.asked_room_ms = disk.asked_room_ms if is_asked else now_ms
        if is_asked or not _make(disk):
            raise DiskFull(disk.full_path(path))
        logger.info("%s has room again, and takes records", disk.root)
        disk.is_tight = False


def is_scarce(disk: Disk) -> bool:
    """There is next to no room: what is deleted had better make some at once."""
    try:
        return disk.free_bytes() < 2 * disk.reserve_bytes()
    except DiskError:
        return False


def _make(disk: Disk) -> bool:
    """Makes it whole; False while there is no room. A file system that keeps nothing back has room all the same."""
    size_bytes = disk.reserve_bytes()
    try:
        disk.keep_reserve(size_bytes, size_bytes)
    except DiskFull:
        return False
    except DiskError as error:
        logger.warning("nothing is kept back for the time when the disk is full: %s", error)
    return True
