"""While a simulation runs, reaching around its ports is caught.

The clocks of `time` show the simulated time, so that log lines do too. What would make two runs differ raises instead:
randomness that nobody seeded, threads, and, by an audit hook, files, sockets and other processes. Reading the source
and the installed packages is allowed, because imports and tracebacks do. Other threads of a test run are let be.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import headrace

if TYPE_CHECKING:
    from headrace.testing.sim.loop import SimLoop


class ReachedAround(BaseException):
    """Simulated code used something real. No `except Exception` hides it."""


@contextmanager
def guarded(loop: SimLoop) -> Iterator[None]:
    """Guards the thread that runs the simulation."""
    _install_hook()
    replacements = {original: _for_this_thread(original, new) for original, new in _replacements(loop)}
    patched = _patch(replacements)
    random_state = random.getstate()
    _guarded_threads.append(threading.get_ident())
    _caught.clear()
    try:
        yield
        if random.getstate() != random_state:
            _catch("simulated code used the functions of `random`: take the Random that the process was given")
        if _caught:  # a task may have swallowed it
            raise ReachedAround(_caught[0])
    finally:
        _guarded_threads.pop()
        for module, name, original in patched:
            setattr(module, name, original)


_guarded_threads: Final[list[int]] = []
_caught: Final[list[str]] = []


def _catch(text: str) -> ReachedAround:
    _caught.append(text)
    return ReachedAround(text)


def _is_guarded() -> bool:
    return bool(_guarded_threads) and _guarded_threads[-1] == threading.get_ident()


# --- functions that are replaced --------------------------------------------------------------------------------------

_RANDOM_FUNCTIONS: Final = (
    "random", "uniform", "triangular", "randint", "choice", "randrange", "sample", "shuffle", "choices", "seed",
    "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "gauss", "betavariate",
    "paretovariate", "weibullvariate", "getrandbits", "randbytes",
)  # fmt: skip
_SECRETS_FUNCTIONS: Final = ("token_bytes", "token_hex", "token_urlsafe", "choice", "randbelow", "randbits")


def _replacements(loop: SimLoop) -> Iterator[tuple[Any, Callable[..., Any]]]:
    wall, monotonic = loop.wall_time, loop.time
    yield time.time, wall
    yield time.time_ns, lambda: int(wall() * 1e9)
    yield time.monotonic, monotonic
    yield time.monotonic_ns, lambda: int(monotonic() * 1e9)
    yield time.perf_counter, monotonic
    yield time.perf_counter_ns, lambda: int(monotonic() * 1e9)
    yield time.sleep, _raises("time.sleep", "it would stop every process; await asyncio.sleep")
    for name in _RANDOM_FUNCTIONS:
        yield getattr(random, name), _raises(f"random.{name}", "take the Random that the process was given")
    for name in _SECRETS_FUNCTIONS:
        yield getattr(secrets, name), _raises(f"secrets.{name}", "take the Random that the process was given")
    for name in ("uuid1", "uuid4"):
        yield getattr(uuid, name), _raises(f"uuid.{name}", "make it from the Random that the process was given")
    yield os.urandom, _raises("os.urandom", "take the Random that the process was given")
    yield threading.Thread.start, _raises("Thread.start", "hand the job to the workers of the process")


def _raises(name: str, advice: str) -> Callable[..., Any]:
    def reached(*_: Any, **__: Any) -> None:
        raise _catch(f"simulated code called {name}: {advice}")

    return reached


def _for_this_thread(original: Callable[..., Any], new: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any, **options: Any) -> Any:
        return (new if _is_guarded() else original)(*args, **options)

    return chosen


def _patch(replacements: dict[Any, Callable[..., Any]]) -> list[tuple[Any, str, Any]]:
    """Where the functions live, and in our modules under whatever name they were imported."""
    patched: list[tuple[Any, str, Any]] = []
    homes: list[Any] = [time, random, secrets, uuid, os, threading.Thread]
    homes += [module for name, module in sorted(sys.modules.items()) if _is_ours(name) and module is not None]
    for home in homes:
        for name, value in list(vars(home).items()):
            if callable(value) and not isinstance(value, (type, ModuleType)):
                new = replacements.get(value) if _is_hashable(value) else None
                if new is not None:
                    patched.append((home, name, value))
                    setattr(home, name, new)
    return patched


def _is_ours(module_name: str) -> bool:
    return module_name.startswith("headrace.") and module_name != __name__


def _is_hashable(value: object) -> bool:
    return type(value).__hash__ is not None


# --- the audit hook ---------------------------------------------------------------------------------------------------

_FORBIDDEN: Final = ("os.", "socket.", "subprocess.", "shutil.", "tempfile.", "_thread.start", "mmap.", "fcntl.")
_READABLE: Final = tuple(
    sorted({str(Path(place).resolve()) for place in (sys.prefix, sys.base_prefix, str(Path(headrace.__file__).parent))})
)
_hooks: Final[list[Callable[[str, tuple[Any, ...]], None]]] = []


def _install_hook() -> None:
    """Once in a process: an audit hook can't be taken away again."""
    if not _hooks:
        _hooks.append(_audit)
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _guarded_threads or not (event == "open" or event.startswith(_FORBIDDEN)) or not _is_guarded():
        return
    if not _is_for_import(event, arguments):
        raise _catch(f"simulated code reached around the ports: {event} {arguments[:1]}")


def _is_for_import(event: str, arguments: tuple[Any, ...]) -> bool:
    """Imports and tracebacks read sources and packages, and write compiled ones."""
    place = arguments[0] if arguments else None
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    if not isinstance(place, str):
        return False
    if "__pycache__" in place:
        return True
    if event == "open":
        flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
        if flags & (os.O_WRONLY | os.O_RDWR):
            return False
        return place.endswith((".py", ".so")) or place.startswith(_READABLE)
    return event in ("os.listdir", "os.scandir") and (place in sys.path or place.startswith(_READABLE))
