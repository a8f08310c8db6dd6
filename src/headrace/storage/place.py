"""Where a log's files are, and what it shares with the other logs of its node."""

from __future__ import annotations

from typing import Final

from headrace.storage.disk import Disk, File
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache

INDEX_INTERVAL_BYTES: Final = 4096


class Place:
    """The folder of one log on its disk. It may be renamed under the log (a move, a deletion); open files stay open."""

    __slots__ = ("disk", "folder", "handles", "index_interval_bytes", "indexes", "names_changed")

    def __init__(self, disk: Disk, folder: str, handles: Handles, indexes: IndexCache) -> None:
        self.disk = disk
        self.folder = folder
        self.handles = handles
        self.indexes = indexes
        self.index_interval_bytes = INDEX_INTERVAL_BYTES
        """That of the topic, for an index that is rebuilt."""
        self.names_changed = False
        """A crash could still lose a name: nothing in the folder is durable before a sync of it."""

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def full_path(self, name: str) -> str:
        return self.disk.full_path(self.path(name))

    def create(self, name: str) -> File:
        """Opens a small file to write; it may be there."""
        file = self.disk.open(self.path(name), create=True)
        self.names_changed = True
        return file

    def rename(self, name: str, new_name: str) -> None:
        self.disk.rename(self.path(name), self.path(new_name))
        self.names_changed = True

    def remove(self, name: str) -> None:
        self.disk.remove(self.path(name))
        self.names_changed = True
