"""A real broker for tests, in a temporary folder and on a free port: in this process, or in a child.

    with Cluster() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})

It is the node that `headrace serve` runs, not a mock of it: what a client can do with one, it can do with the other.
Some things differ, for speed, and each can be set back. Files are not synced (`fsync=True` does), so what a test wrote
survives a `restart` and not a loss of power. Groups do not wait for more members before their first rebalance, the
state topics of groups and transactions have one partition each, and there is no port for metrics.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from headrace.errors import HeadraceError
from headrace.testing.uncollected import uncollected

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.client import Client

Result = TypeVar("Result")

START_SECONDS: Final = 30.0
SETTINGS: Final = {
    "http.listen": "off",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.segment.delete.delay.ms": "0",
}
"""What differs from `headrace serve`."""
_numbers: Final = itertools.count(1)


class Running(Protocol):
    """A started node."""

    @property
    def address(self) -> str: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Cluster:
    """A context manager, sync and async; or `start` and `stop` it."""

    __slots__ = ("_folder", "_fsync", "_in_process", "_owns_folder", "_port", "_running", "_settings", "_timeout_s")

    def __init__(
        self,
        *,
        in_process: bool = True,
        data: str | os.PathLike[str] | None = None,
        port: int = 0,
        fsync: bool = False,
        settings: Mapping[str, object] | None = None,
        timeout_s: float = START_SECONDS,
    ) -> None:
        """A child (`in_process=False`) has an interpreter of its own, and can be killed; it takes a little longer.

        `data` is kept at the end; without it the folder is a temporary one. `settings` are a broker's:
        {"num.partitions": 4}.
        """
        self._in_process = in_process
        self._owns_folder = data is None
        self._folder = None if data is None else os.fspath(data)
        self._port = port
        self._fsync = fsync
        self._settings = SETTINGS | {name: _text(value) for name, value in (settings or {}).items()}
        self._timeout_s = timeout_s
        self._running: Running | None = None

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when clients are served."""
        if self._running is not None:
            raise HeadraceError("The cluster runs already; make another one to have two.")
        if self._folder is None:
            self._folder = _make_folder()
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": self._folder,
            **self._settings,
        }
        try:
            with uncollected():
                self._running = _start(settings, self._in_process, self._fsync, self._timeout_s)
        except BaseException:
            self._remove()
            raise
        self._port = int(self._running.address.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """Stops it cleanly. Its folder goes too, unless it was given one."""
        running, self._running = self._running, None
        try:
            if running is not None:
                running.stop()
        finally:
            self._remove()

    def restart(self) -> None:
        """Stops it cleanly and starts it again: the same data, the same port."""
        self._take().stop()
        self.start()

    def kill(self) -> None:
        """Ends a child at once, as kill -9 does. `start` starts it again on what it left."""
        if self._in_process:
            raise HeadraceError("A cluster in this process can't be killed; make it with in_process=False.")
        self._take().kill()

    def _take(self) -> Running:
        running, self._running = self._running, None
        if running is None:
            raise HeadraceError("The cluster does not run; start it first.")
        return running

    def _remove(self) -> None:
        if self._owns_folder and self._folder is not None:
            import shutil

            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # --- what tests need of it ----------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """What a client wants for bootstrap.servers."""
        if self._running is None:
            raise HeadraceError("The cluster does not run; use it as `with Cluster() as cluster:`, or start it.")
        return self._running.address

    @property
    def data(self) -> Path:
        """The folder of its logs."""
        if self._folder is None:
            raise HeadraceError("The cluster has no folder yet; start it first.")
        from pathlib import Path  # which takes 4 ms, and whose user has it

        return Path(self._folder)

    def create_topic(self, name: str = "", *, partitions: int = 1, **configs: object) -> str:
        """A topic, with a fresh name if it is given none: `create_topic(cleanup_policy="compact")`."""
        from headrace.client import NewTopic

        name = name or f"topic-{next(_numbers)}"
        wanted = NewTopic(name, partitions, configs={key.replace("_", "."): _text(to) for key, to in configs.items()})
        self._ask(lambda client: client.admin.create_topics([wanted]))
        return name

    def delete_topic(self, name: str) -> None:
        self._ask(lambda client: client.admin.delete_topics([name]))

    def _ask(self, question: Callable[[Client], Any]) -> Any:
        from headrace.client import Client

        async def ask() -> Any:
            async with Client(self.bootstrap) as client:
                return await question(client)

        return _run_apart(ask)

    def __repr__(self) -> str:
        return f"<Cluster {'stopped' if self._running is None else self._running.address}>"


def _start(settings: Mapping[str, str], in_process: bool, fsync: bool, timeout_s: float) -> Running:
    if in_process:
        from headrace.testing.thread import NodeThread

        return NodeThread(settings, fsync, timeout_s)
    from headrace.testing.child import NodeProcess

    return NodeProcess(settings, fsync, timeout_s)


def _make_folder() -> str:
    """Where `tempfile` would make one: that takes as long to import as a node takes to open its logs."""
    folder = os.path.abspath(os.path.join(os.environ.get("TMPDIR") or "/tmp", f"headrace-{os.urandom(8).hex()}"))
    try:
        os.mkdir(folder, 0o700)
    except OSError:
        from tempfile import mkdtemp  # which knows of other places

        return mkdtemp(prefix="headrace-")
    return folder


def _run_apart(work: Callable[[], Any]) -> Any:
    """On a loop of its own, in a thread of its own if this one has a loop that runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(work())).result()


def topic_name(test: str) -> str:
    """A name that Kafka takes, from that of a test, and that no other test has."""
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", test)[:200].strip("-") or "topic"
    return f"{readable}-{next(_numbers)}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
