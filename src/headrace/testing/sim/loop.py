"""The simulated event loop: asyncio's own, over a selector that does not wait but sets the time forward.

`call_soon` stays first in, first out. Every handle belongs to the process in whose context it was made: one of a dead
process is dropped, one of a paused process is held until it goes on. What is deliberately not here: threads, signals,
files and real sockets; whoever asks for them gets an error that says which port to use.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappush
from typing import Any, Final, NoReturn

from headrace.testing.disk import Crash
from headrace.testing.sim.clock import RIGHT
from headrace.testing.sim.network import Network
from headrace.testing.sim.process import CURRENT, Process
from headrace.testing.sim.server import SimServer, SimSocket
from headrace.testing.sim.trace import Trace

HANDLE_SECONDS: Final = 2e-6
"""What running a callback takes. Never nothing: whoever spins must see the time go on."""


class Stuck(Exception):
    """Nothing is ready and no timer runs: nothing would ever happen again."""


class OutOfTime(Exception):
    """The simulation did not end within the time or the number of steps that it was given."""


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of all processes of a simulation, and of the scenario around them, which is no process."""

    def __init__(self, seed: int = 0, *, trace: Trace | None = None) -> None:
        super().__init__()
        self.now = 0.0
        self.trace = trace or Trace()
        self.network = Network(self, seed)
        self.time_limit = float("inf")
        self.steps_limit = 1 << 62
        self.in_job = False
        """A worker's job runs, which may not touch the loop."""
        self.outside = Context()
        """The context of what belongs to no process: the kernels, the network, the power."""
        self.graveyard: list[asyncio.Task[Any]] = []
        """Tasks of dead processes. They are kept, because a coroutine that is collected runs its `finally`."""
        self.on_problem: Callable[[dict[str, Any]], None] | None = None
        self._numbers = itertools.count()
        self._clock_resolution = 1e-9
        self._selector = _Selector(self)

    # --- time ---------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        process = CURRENT.get()
        return self.now if process is None else process.clock.monotonic(self.now)

    def wall_time(self) -> float:
        process = CURRENT.get()
        return (RIGHT if process is None else process.clock).wall(self.now)

    # --- handles ------------------------------------------------------------------------------------------------------

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> asyncio.Handle:
        if self.in_job:
            raise RuntimeError("a worker's job used the loop; it may only return, and `done` is called on the loop")
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        if self.in_job:
            raise RuntimeError("a worker's job used the loop; it may only return, and `done` is called on the loop")
        process = CURRENT.get()
        if process is not None:
            when = process.timer_time(when)
        return self._push(when, callback, args, context)

    def outside_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Like `call_at`, at the true time and in nobody's name."""
        return self._push(when, callback, args, self.outside)

    def outside_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._ready.append(SimHandle(callback, args, self, self.outside))  # type: ignore[attr-defined]

    def release(self, handles: list[SimHandle | SimTimer]) -> None:
        """Handles that were held are ready, in their order, before those of their process that came later."""
        self._ready.extendleft(reversed(handles))  # type: ignore[attr-defined]

    def _push(self, when: float, callback: Any, args: Any, context: Context | None) -> asyncio.TimerHandle:
        timer = SimTimer(when, callback, args, self, context, next(self._numbers))
        heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_handle(self, handle: SimHandle | SimTimer) -> None:
        process = handle.process
        self.now += HANDLE_SECONDS
        if process is not None:
            if not process.is_running:
                process.hold(handle)
                return
            process.callbacks += 1
            if process.callbacks == process.crash_at_callback:
                process.crash()
                return
        self.trace.step(self.now, 0 if process is None else process.number)
        try:
            handle._context.run(handle._callback, *handle._args)  # type: ignore[union-attr]
        except Crash:
            if process is not None:
                process.crash()
        except SystemExit:
            if process is None:
                raise
            process.exit()
        except KeyboardInterrupt:
            raise
        except (Stuck, OutOfTime):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": "a callback failed", "exception": error, "handle": handle})
        if process is not None and process.blocked_seconds:
            process.stall()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), Crash) or "destroyed but it is pending" in context["message"]:
            return
        if self.on_problem is not None:
            self.on_problem(context)
        else:
            super().call_exception_handler(context)

    # --- the network --------------------------------------------------------------------------------------------------

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        backlog = options.pop("backlog", 100)
        starting = options.pop("start_serving", True)
        bound: SimSocket | None = options.pop("sock", None)
        _refuse(options, "reuse_address", "reuse_port", "family", "flags")
        if bound is not None:
            server = bound.server
            server.take(protocol_factory, backlog)
        else:
            server = SimServer(self, protocol_factory, backlog)
            server.bind(host, port or 0)
        if starting:
            await server.start_serving()
        return server

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        _refuse(options, "family", "proto", "flags", "happy_eyeballs_delay", "interleave", "all_errors")
        transport = await self.network.connect(protocol_factory, host, port)
        return transport, transport.get_protocol()

    def new_socket(self, family: int, kind: int, protocol: int) -> SimSocket:
        """One to listen on; the network has one family, and takes it for both."""
        return SimSocket(SimServer(self))

    async def getaddrinfo(self, host: Any, port: Any, *, flags: int = 0, **_: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if flags & socket.AI_PASSIVE:
            address = self.network.address_to_listen_on(name)
        else:
            address = self.network.resolve(name).address_seen_by(self.network.own_host())
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port or 0)))]

    # --- what a process asks its system -------------------------------------------------------------------------------

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        process = CURRENT.get()
        if process is None:
            raise NotImplementedError("only a simulated process gets signals")
        context = copy_context()
        process.signal_handlers[int(sig)] = lambda: self.call_soon(callback, *args, context=context)

    def remove_signal_handler(self, sig: int) -> bool:
        process = CURRENT.get()
        return process is not None and process.signal_handlers.pop(int(sig), None) is not None

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulated process has no threads: hand the job to its workers")

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class SimHandle(asyncio.Handle):
    __slots__ = ("process",)

    def __init__(self, callback: Any, args: Any, loop: SimLoop, context: Context | None) -> None:
        if context is None:
            context = copy_context()
        super().__init__(callback, args, loop, context)
        self.process: Process | None = context.get(CURRENT)

    def _run(self) -> None:
        self._loop.run_handle(self)  # type: ignore[attr-defined]


class SimTimer(asyncio.TimerHandle):
    __slots__ = ("number", "process")

    def __init__(self, when: float, callback: Any, args: Any, loop: SimLoop, context: Context | None, number: int):
        if context is None:
            context = copy_context()
        super().__init__(when, callback, args, loop, context)
        self.process: Process | None = context.get(CURRENT)
        self.number = number

    def __lt__(self, other: Any) -> bool:
        """Of two at the same time the one that was asked for first: a heap alone leaves that open."""
        return (self._when, self.number) < (other._when, other.number)  # type: ignore[attr-defined]

    def when(self) -> float:
        """As the process that set it counts."""
        when: float = self._when  # type: ignore[attr-defined]
        return when if self.process is None else self.process.clock.monotonic(when)

    def _run(self) -> None:
        self._loop.run_handle(self)  # type: ignore[attr-defined]


class _Selector:
    """What the loop waits on. It does not wait."""

    __slots__ = ("_loop",)

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> tuple[()]:
        loop = self._loop
        if timeout is None:
            raise Stuck("nothing is ready and no timer runs: the simulation would wait for ever")
        if timeout > 0:
            loop.now += timeout
        if loop.now > loop.time_limit:
            raise OutOfTime(f"the simulation did not end within {loop.time_limit:g} simulated seconds")
        if loop.trace.steps > loop.steps_limit:
            raise OutOfTime(f"the simulation did not end within {loop.steps_limit} callbacks")
        return ()


def _refuse(options: dict[str, Any], *ignored: str) -> None:
    asked = [name for name, value in options.items() if value is not None and name not in ignored]
    if asked:
        raise NotImplementedError(f"the simulated network has no {', '.join(asked)}")
