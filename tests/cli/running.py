"""A command line run in this process, as `headrace` runs it: what it printed, and its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
from typing import Any, NamedTuple

from headrace.cli import main
from headrace.client import Client


class Told(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code in (0, 1), self.err
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.out.splitlines()]


class Cli:
    """`cli("topic", "list")` against one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str) -> Told:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
        return Told(code, out.getvalue(), err.getvalue())

    def given(self, lines: str | bytes, *arguments: str) -> Told:
        """The same, with these lines as standard input."""
        before = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(lines.encode() if isinstance(lines, str) else lines))
        try:
            return self(*arguments)
        finally:
            sys.stdin = before

    def done(self, *arguments: str) -> Told:
        told = self(*arguments)
        assert (told.code, told.err) == (0, ""), told
        return told

    def failed(self, *arguments: str, code: int = 1) -> str:
        """The one sentence that it says, of a command that fails and prints nothing else."""
        told = self(*arguments)
        assert (told.code, told.out) == (code, ""), told
        assert told.err.startswith("headrace: ")
        assert told.err.count("\n") == 1, told.err
        return told.err.removeprefix("headrace: ").rstrip("\n")

    def produce(self, topic: str, count: int, *, partition: int = 0, timestamp_ms: int | None = None) -> None:
        """Records of one batch each, so that sizes are the same every time."""

        async def send() -> None:
            async with Client(self.bootstrap) as client:
                producer = client.producer()
                for number in range(count):
                    await producer.send(topic, b"value", b"%d" % number, partition=partition, timestamp_ms=timestamp_ms)

        asyncio.run(send())
