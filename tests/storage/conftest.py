"""What all tests of storage have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.storage.local_disk import LocalDisk, LocalFile


@pytest.fixture(autouse=True)
def closed_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes what a test leaves open of real disks, before thousands of them have come together."""
    opened: list[LocalFile] = []
    make = LocalDisk._file

    def made(disk: LocalDisk, path: str, descriptor: int) -> LocalFile:
        opened.append(make(disk, path, descriptor))
        return opened[-1]

    monkeypatch.setattr(LocalDisk, "_file", made)
    yield
    for file in opened:
        file.close()
