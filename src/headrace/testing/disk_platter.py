"""What outlives a process: files and names as processes see them, as the device has them, and the changes in between.

The promises are those of POSIX and no more: a name is durable after a sync of its directory, and only if the
directory's own name is. After a loss of power each directory and each file has its changes up to some point of its own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512


@dataclass(slots=True)
class Write:
    position: int
    content: bytes


@dataclass(slots=True)
class Resize:
    size: int


Change: TypeAlias = Write | Resize


@dataclass(slots=True, eq=False)
class Node:
    """A file: its bytes in the page cache, on the device, and the changes that lie between the two."""

    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)
    has_lost: bool = False
    """The page cache has what the device never got."""
    modified_ms: int = 0

    def change(self, change: Change) -> None:
        _apply(self.cached, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """The kernel calls the pages clean, tells once, and the device never gets them (hazard 8)."""
        self.has_lost = self.has_lost or bool(self.unsynced)
        self.unsynced.clear()

    def forget_cached(self) -> None:
        """What is clean is read from the device again."""
        if self.has_lost and not self.unsynced:
            self.cached[:] = self.durable
            self.has_lost = False

    def lose_power(self, chance: random.Random) -> None:
        """Keeps the changes up to some point, the last one torn at any byte, and sometimes only some pages of them.

        Some disks write pages whole, and some sectors.
        """
        kept = chance.randint(0, len(self.unsynced))
        changes = self.unsynced[:kept]
        torn = self.unsynced[kept] if kept < len(self.unsynced) else None
        if isinstance(torn, Write):
            changes.append(Write(torn.position, torn.content[: chance.randint(0, len(torn.content))]))
        with_holes = chance.random() < 0.3
        block_bytes = chance.choice((PAGE_BYTES, SECTOR_BYTES)) if with_holes else PAGE_BYTES
        stale: set[int] = set()  # blocks that the device got for the last time: later changes of theirs are lost too
        for change in changes:
            if with_holes and isinstance(change, Write):
                _apply(self.durable, Resize(max(len(self.durable), change.position + len(change.content))))
                for block in _blocks(change, block_bytes):
                    number = block.position // block_bytes
                    if number not in stale and chance.random() < 0.7:
                        _apply(self.durable, block)
                    else:
                        stale.add(number)
            else:
                _apply(self.durable, change)
        self.unsynced.clear()
        self.cached[:] = self.durable
        self.has_lost = False


@dataclass(slots=True, eq=False)
class Directory:
    names: dict[str, Node | Directory] = field(default_factory=dict)
    durable: dict[str, Node | Directory] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class NameChange:
    """One change of names, all of it or nothing: a name that goes, a name that comes, or both (a rename)."""

    removed: tuple[Directory, str] | None
    added: tuple[Directory, str, Node | Directory] | None

    def directories(self) -> set[Directory]:
        """Those whose sync makes it durable."""
        return {place[0] for place in (self.removed, self.added) if place is not None}

    def adds(self, directory: Directory, name: str) -> bool:
        return self.added is not None and self.added[0] is directory and self.added[1] == name

    def apply(self, *, durably: bool) -> None:
        if self.removed is not None:
            directory, name = self.removed
            (directory.durable if durably else directory.names).pop(name, None)
        if self.added is not None:
            directory, name, node = self.added
            (directory.durable if durably else directory.names)[name] = node


class Platter:
    """The whole disk. `chance` decides what a loss of power takes, so that a seed repeats it."""

    __slots__ = ("chance", "changes", "holder", "root")

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.root = Directory()
        self.changes: list[NameChange] = []
        self.holder: object = None

    def find(self, path: str) -> Node | Directory | None:
        found: Node | Directory | None = self.root
        for name in path.split("/") if path else ():
            found = found.names.get(name) if isinstance(found, Directory) else None
        return found

    def change(self, change: NameChange) -> None:
        change.apply(durably=False)
        self.changes.append(change)

    def sync_names(self, directory: Directory) -> None:
        """Makes the changes of one directory durable, with the earlier ones of other directories that they build on."""
        wanted = {directory}
        durable = []
        for change in reversed(self.changes):
            directories = change.directories()
            if not wanted.isdisjoint(directories):
                wanted |= directories
                durable.append(change)
        for change in reversed(durable):
            change.apply(durably=True)
        self.changes = [change for change in self.changes if change not in durable]

    def sync_all_names(self) -> None:
        for change in self.changes:
            change.apply(durably=True)
        self.changes.clear()

    def lose_power(self) -> None:
        stopped: set[Directory] = set()
        for change in self.changes:
            directories = change.directories()
            if stopped.isdisjoint(directories) and self.chance.random() < 0.7:
                change.apply(durably=True)
            else:
                stopped |= directories
        self.changes.clear()
        _forget_names(self.root)
        for _, node in self.files():
            node.lose_power(self.chance)

    def files(self) -> Iterator[tuple[str, Node]]:
        """Every file with its path, in order."""
        return _walk(self.root, "")

    def used_bytes(self) -> int:
        return sum(len(node.cached) for _, node in self.files())

    # For tests that look at a file, or spoil it

    def node(self, path: str) -> Node:
        node = self.find(path)
        assert isinstance(node, Node), f"{path} is no file"
        return node

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Spoils one bit, in memory and on the device, without anybody noticing."""
        node = self.node(path)
        for content in (node.cached, node.durable):
            if position < len(content):
                content[position] ^= 1 << bit

    def vanish(self, path: str) -> None:
        """Removes a file behind the back of the process, durably."""
        parent, _, name = path.rpartition("/")
        directory = self.find(parent)
        assert isinstance(directory, Directory), f"{parent} is no directory"
        del directory.names[name]
        directory.durable.pop(name, None)
        self.changes = [change for change in self.changes if not change.adds(directory, name)]


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Resize):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
    else:
        content.extend(bytes(max(0, change.position - len(content))))
        content[change.position : change.position + len(change.content)] = change.content


def _blocks(write: Write, size: int) -> list[Write]:
    end = write.position + len(write.content)
    edges = [write.position, *range(write.position // size * size + size, end, size), end]
    return [
        Write(start, write.content[start - write.position : stop - write.position])
        for start, stop in itertools.pairwise(edges)
    ]


def _forget_names(directory: Directory) -> None:
    directory.names = dict(directory.durable)
    for node in directory.names.values():
        if isinstance(node, Directory):
            _forget_names(node)


def _walk(directory: Directory, prefix: str) -> Iterator[tuple[str, Node]]:
    for name in sorted(directory.names):
        node = directory.names[name]
        if isinstance(node, Directory):
            yield from _walk(node, f"{prefix}{name}/")
        else:
            yield prefix + name, node
