"""A disk that promises nothing: files are written, and never synced. For tests, which throw them away."""

from __future__ import annotations

from headrace.storage.local_disk import LocalDisk, LocalFile


class UnsyncedFile(LocalFile):
    __slots__ = ()

    def datasync(self) -> None:
        self._disk.promise()

    def start_writeback(self, position: int, size: int) -> None:
        pass


class UnsyncedDisk(LocalDisk):
    __slots__ = ()

    def _file(self, path: str, descriptor: int) -> UnsyncedFile:
        return UnsyncedFile(self, path, descriptor)

    def sync_directory(self, path: str) -> None:
        self.promise()

    def sync_all(self) -> bool:
        self.promise()
        return True
