"""A folder of log.dirs that is this node's: locked, marked as its own, and with a little room kept back."""

from __future__ import annotations

from collections.abc import Callable

from headrace.storage import names
from headrace.storage.disk import Disk, Lock
from headrace.storage.identity import MetaProperties, WrongDirectory
from headrace.storage.partition_folder import is_partition_folder
from headrace.storage.reserve import find_reserve


class Claim:
    __slots__ = ("_lock", "directory_id")

    def __init__(self, disk: Disk, cluster_id: str, node_id: int, random_bytes: Callable[[int], bytes]) -> None:
        """Formats the folder if nobody has. Raises DiskInUse, WrongDirectory, DiskError."""
        self._lock: Lock = disk.lock()
        try:
            self.directory_id = _identify(disk, cluster_id, node_id, random_bytes)
            find_reserve(disk)
        except BaseException:
            self._lock.release()
            raise

    def release(self) -> None:
        """Gives the folder back."""
        self._lock.release()


def _identify(disk: Disk, cluster_id: str, node_id: int, random_bytes: Callable[[int], bytes]) -> bytes:
    """The directory's own id."""
    found = MetaProperties.read(disk)
    if found is not None:
        found.check(disk, cluster_id=cluster_id, node_id=node_id)
    elif (folder := _a_partition(disk)) is not None:
        raise WrongDirectory(
            f"{disk.root} has no meta.properties and holds partitions ({folder}), so nobody knows whose they are; "
            "restore meta.properties, or move the partitions away, or choose another folder"
        )
    if found is None or found.directory_id is None:
        found = MetaProperties(cluster_id, node_id, random_bytes(16))
        found.write(disk)
    assert found.directory_id is not None
    return found.directory_id


def _a_partition(disk: Disk) -> str | None:
    """The first folder that holds a partition, one of the metadata too."""
    for name, stat in disk.scan().items():
        if stat.is_directory and names.parse_folder(name) and is_partition_folder(disk.scan(name)):
            return name
    return None
