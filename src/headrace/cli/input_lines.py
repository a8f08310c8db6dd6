"""Standard input and files, read line by line in a thread, so that a slow writer never holds up the loop.

The thread is left behind when nobody wants more: it may wait for a terminal for ever, and must not keep the program.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from headrace.errors import HeadraceError

READ_BYTES: Final = 1 << 18
AHEAD_MAX: Final = 4
LINE_BYTES_MAX: Final = 64 << 20
STANDARD_INPUT: Final = "-"


class Lines:
    """Some lines that follow each other in one input, without their ends, and the number of the first."""

    __slots__ = ("first_number", "lines", "size_bytes", "where")

    def __init__(self, where: str, first_number: int, lines: list[bytes], size_bytes: int) -> None:
        self.where = where
        self.first_number = first_number
        self.lines = lines
        self.size_bytes = size_bytes
        """Of the input that they were made of."""


def total_bytes(paths: Sequence[str]) -> int | None:
    """How much there is to read; None when nobody knows."""
    total = 0
    for path in paths:
        if path == STANDARD_INPUT or not Path(path).is_file():
            return None
        total += os.stat(path).st_size
    return total


async def read_lines(paths: Sequence[str], *, whole: bool = False) -> AsyncIterator[Lines]:
    """The lines of all inputs in turn; with `whole`, each input is one line. HeadraceError when one can't be read."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[Lines | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(AHEAD_MAX)
    is_over = threading.Event()

    def put(item: Lines | BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(arrived.put_nowait, item)
        except RuntimeError:  # the loop is closed: nobody wants more
            is_over.set()

    def read() -> None:
        try:
            for path in paths:
                for lines in _whole(path) if whole else _blocks(path):
                    room.acquire()
                    if is_over.is_set():
                        return
                    put(lines)
        except BaseException as error:
            put(error)
        else:
            put(None)

    threading.Thread(target=read, name="headrace-input", daemon=True).start()
    try:
        while (item := await arrived.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
            room.release()
    finally:
        is_over.set()
        room.release()


def _whole(path: str) -> Iterator[Lines]:
    with _Input(path) as given:
        parts: list[bytes] = []
        size = 0
        while part := given.read():
            parts.append(part)
            size += len(part)
            if size > LINE_BYTES_MAX:
                raise HeadraceError(
                    f"{given.where} is larger than {LINE_BYTES_MAX >> 20} MiB: too much for one record."
                )
        yield Lines(given.where, 1, [b"".join(parts)], size)


def _blocks(path: str) -> Iterator[Lines]:
    number, rest = 1, b""
    with _Input(path) as given:
        while block := given.read():
            *lines, last = block.split(b"\n")
            if lines:
                lines[0] = rest + lines[0]
                rest = b""
                lines = [line.removesuffix(b"\r") for line in lines]
                yield Lines(given.where, number, lines, len(block))
                number += len(lines)
            rest += last
            if len(rest) > LINE_BYTES_MAX:
                raise HeadraceError(f"{given.where}, line {number} is longer than {LINE_BYTES_MAX >> 20} MiB.")
        if rest:
            yield Lines(given.where, number, [rest.removesuffix(b"\r")], 0)


class _Input:
    """A file or standard input. The latter by its descriptor where it has one: what Python buffers is locked while a
    thread waits in it, and then the program could not end.
    """

    __slots__ = ("_descriptor", "_file", "where")

    def __init__(self, path: str) -> None:
        self.where = "standard input" if path == STANDARD_INPUT else path
        self._file: BinaryIO | None = None
        self._descriptor = -1
        if path != STANDARD_INPUT:
            try:
                self._file = open(path, "rb", buffering=0)  # noqa: SIM115
            except OSError as error:
                raise HeadraceError(f"{path} can't be read: {error.strerror}.") from error
            return
        try:
            self._descriptor = sys.stdin.fileno()
        except (OSError, ValueError, AttributeError):
            self._file = getattr(sys.stdin, "buffer", None)

    def __enter__(self) -> _Input:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and self.where != "standard input":
            self._file.close()

    def read(self) -> bytes:
        try:
            if self._file is not None:
                return self._file.read(READ_BYTES) or b""
            return os.read(self._descriptor, READ_BYTES) if self._descriptor >= 0 else b""
        except OSError as error:
            raise HeadraceError(f"{self.where} can't be read: {error.strerror}.") from error
