"""The bound on open files (hazard 15)."""

from __future__ import annotations

from headrace.storage.disk import File, TooManyOpenFiles
from headrace.storage.handles import Handles
from headrace.testing.disk import FaultyDisk


def test_a_bound_that_a_lack_of_descriptors_made_lower_grows_again() -> None:
    disk = FaultyDisk()
    handles = Handles(100)
    owners = [OneFile() for _ in range(300)]
    for owner in owners[:60]:
        owner.file = handles.open(owner, disk, "file", create=True)
    disk.faults.errors_at_calls = {disk.calls + 1: TooManyOpenFiles}
    owners[60].file = handles.open(owners[60], disk, "file")
    assert handles.capacity == 30
    for _ in range(3):
        for owner in owners:
            if not owner.is_open:
                owner.file = handles.open(owner, disk, "file")
            assert len(handles) <= handles.capacity
    assert handles.capacity == 100


class OneFile:
    def __init__(self) -> None:
        self.touched = False
        self.file: File | None = None

    @property
    def is_open(self) -> bool:
        return self.file is not None

    def close_file(self) -> None:
        assert self.file is not None
        self.file.close()
        self.file = None
