"""The folder of a partition to its log directory: whose it is, whether it was ever finished, and its removal."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.storage import names
from headrace.storage.disk import TEMPORARY_SUFFIX, Disk, DiskError, FileStat, FileVanished
from headrace.storage.identity import PARTITION_METADATA, WrongDirectory, encode_topic_id, read_topic_id
from headrace.storage.scan import CHUNK_BYTES, is_zeros

logger = logging.getLogger(__name__)


def is_partition_folder(found: dict[str, FileStat]) -> bool:
    """A folder that has segments, or that nothing but a partition's folder could be."""
    return any(
        not stat.is_directory and (name.endswith((names.LOG, ".timeindex")) or name == PARTITION_METADATA)
        for name, stat in found.items()
    )


def put_topic_id(disk: Disk, folder: str, topic_id: bytes) -> None:
    """Whole or not at all, but for a loss of power before the first flush: then there are no records either."""
    path = f"{folder}/{PARTITION_METADATA}"
    file = disk.open(path + TEMPORARY_SUFFIX, create=True)
    try:
        file.write(0, [encode_topic_id(topic_id)])
    finally:
        file.close()
    disk.rename(path + TEMPORARY_SUFFIX, path)


def mend_topic_id(disk: Disk, folder: str, known: bytes | None) -> tuple[bytes | None, bool]:
    """The topic's id, and whether its file had to be written anew, by what is known of it. Raises WrongDirectory."""
    try:
        topic_id = read_topic_id(disk, folder)
        if topic_id is not None:
            return topic_id, False
        problem = f"{disk.full_path(f'{folder}/{PARTITION_METADATA}')} is missing"
    except WrongDirectory as damaged:
        if known is None:
            raise
        problem = str(damaged).partition(";")[0]
    if known is None:
        logger.warning("%s, so the partition is taken for one of the topic that has its name", problem)
        return None, False
    logger.warning("%s; it is written anew with the id that the last stop left", problem)
    put_topic_id(disk, folder, known)
    return known, True


def confirm_topic_id(disk: Disk, folder: str, topic_id: bytes, *, is_written: bool) -> None:
    """After an unclean stop: that the device has the id too, which memory shows (hazard 8). Else it is written anew."""
    path = f"{folder}/{PARTITION_METADATA}"
    file = disk.open(path)
    try:
        if not is_written:
            file.datasync()
        file.forget_cached()
    finally:
        file.close()
    try:
        if read_topic_id(disk, folder) == topic_id:
            return
    except WrongDirectory:
        pass
    disk.replace(path, encode_topic_id(topic_id))


def is_unmade(disk: Disk, folder: str) -> bool:
    """A crash or a full disk ended the making of a partition: it has no topic id, and no file with anything in it.

    A preallocated segment has a size, and zeros: what was never written to is no more than an empty one.
    """
    try:
        if read_topic_id(disk, folder) is not None:
            return False
    except WrongDirectory:
        pass  # empty or cut, if nothing else was ever written
    for name, stat in disk.scan(folder).items():
        if name == PARTITION_METADATA or name.endswith(TEMPORARY_SUFFIX):
            continue
        segment = names.parse_segment_file(name)
        if segment is None or segment.base_offset or (stat.size and not _is_reserved(disk, f"{folder}/{name}")):
            return False
    return True


def _is_reserved(disk: Disk, path: str) -> bool:
    """Nothing but zeros."""
    if not path.endswith(names.LOG):
        return False
    file = disk.open(path, read_only=True)
    try:
        return all(is_zeros(file.read(at, CHUNK_BYTES)) for at in range(0, file.size(), CHUNK_BYTES))
    finally:
        file.close()


def remove_files(disk: Disk, paths: list[str], goes_on: Callable[[], bool] = lambda: True) -> int:
    """Removes files of partitions; returns how many were still there. One that can't be removed keeps no other.

    `goes_on` is asked before each.
    """
    count = 0
    failure: DiskError | None = None
    for path in paths:
        if not goes_on():
            break
        try:
            disk.remove(path)
            count += 1
        except FileVanished:
            continue
        except DiskError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return count


def remove_folder(disk: Disk, folder: str, goes_on: Callable[[], bool] = lambda: True) -> None:
    """Removes a partition's folder and what is in it. One that is gone in part already is fine."""
    try:
        remove_files(disk, [f"{folder}/{name}" for name in disk.names(folder)], goes_on)
        if goes_on():
            disk.remove_directory(folder)
    except DiskError as error:
        logger.error("%s can't be removed: %s", disk.full_path(folder), error)
