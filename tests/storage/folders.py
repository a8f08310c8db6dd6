"""Kafka's folders of the fixtures on a disk in memory, to be spoilt by tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from headrace.testing.disk import FaultyDisk

FOLDER = Path(__file__).parents[1] / "fixtures" / "kafka"


@cache
def kafka_files() -> dict[str, bytes]:
    return {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file() and path.name != "expected.json"
    }


def kafka_disk(*folders: str, clean: bool = True) -> FaultyDisk:
    """The log directory, with these folders or all; without the marker of a clean stop as after a crash."""
    disk = FaultyDisk()
    for path, content in kafka_files().items():
        folder, _, name = path.rpartition("/")
        if (folder and folders and folder not in folders) or (name == ".kafka_cleanshutdown" and not clean):
            continue
        put(disk, path, content)
    return disk


def put(disk: FaultyDisk, path: str, content: bytes | bytearray) -> None:
    if "/" in path:
        disk.make_directory(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write(0, [content])
    file.close()


def flip(disk: FaultyDisk, path: str, position: int, bit: int = 0) -> None:
    content = bytearray(disk.read(path))
    content[position] ^= 1 << bit
    put(disk, path, content)


def cut(disk: FaultyDisk, path: str, size_bytes: int) -> None:
    put(disk, path, disk.read(path)[:size_bytes])
