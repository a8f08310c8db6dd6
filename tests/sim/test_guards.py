"""Simulated code that reaches around its ports is caught, wherever it hides it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from headrace.testing.sim.clock import EPOCH_SECONDS
from headrace.testing.sim.process import Process
from headrace.testing.sim.run import Run, run_seed
from headrace.testing.sim.simulation import Simulation


def run_in_process(reach: Callable[[], object]) -> Run:
    """Runs it in a simulated process whose code swallows every exception."""

    async def main(process: Process) -> None:
        async def hidden() -> None:
            reach()

        await asyncio.gather(asyncio.ensure_future(hidden()), return_exceptions=True)

    async def scenario(simulation: Simulation) -> None:
        await simulation.host("a").start("main", main).ended

    return run_seed(scenario, 1)


REACHES: dict[str, Callable[[], object]] = {
    "open": lambda: open("/tmp/headrace-guard", "wb"),  # noqa: SIM115
    "open to read": lambda: open("/etc/hostname"),  # noqa: SIM115
    "os.open": lambda: os.open("/etc/hostname", os.O_RDONLY),
    "os.listdir": lambda: os.listdir("/"),
    "os.remove": lambda: os.remove("/tmp/headrace-guard"),
    "os.rename": lambda: os.rename("/tmp/headrace-guard", "/tmp/headrace-guard-2"),
    "os.mkdir": lambda: os.mkdir("/tmp/headrace-guard"),
    "pathlib": lambda: Path("/etc/hostname").read_text(),
    "tempfile": lambda: tempfile.mkdtemp(),
    "socket": lambda: socket.socket(),
    "subprocess": lambda: subprocess.run(["true"], check=False),
    "os.system": lambda: os.system("true"),
    "time.sleep": lambda: time.sleep(0.001),
    "random.random": lambda: random.random(),
    "random.shuffle": lambda: random.shuffle([1, 2]),
    "Random without a seed": lambda: random.SystemRandom().random(),
    "os.urandom": lambda: os.urandom(4),
    "uuid4": lambda: uuid.uuid4(),
    "secrets": lambda: secrets.token_bytes(4),
    "a thread": lambda: threading.Thread(target=print).start(),
    "an executor": lambda: asyncio.get_running_loop().run_in_executor(None, print),
}


@pytest.mark.parametrize("name", REACHES)
def test_reaching_around_the_ports_is_caught(name: str) -> None:
    if name == "an executor":  # the loop says it, as an ordinary error
        assert run_in_process(REACHES[name]).is_ok
        return
    run = run_in_process(REACHES[name])
    assert run.failure.startswith("ReachedAround: simulated code"), run.failure


def test_a_function_that_was_imported_by_name_is_caught_too() -> None:
    module = ModuleType("headrace.guard_test")
    module.urandom = os.urandom  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        run = run_in_process(lambda: module.urandom(4))
    finally:
        del sys.modules[module.__name__]
    assert "os.urandom" in run.failure
    assert module.urandom is os.urandom


def test_the_hidden_generator_of_random_is_watched() -> None:
    draw = random.random  # a name that no patch reaches
    state = random.getstate()
    try:
        assert "functions of `random`" in run_in_process(draw).failure
    finally:
        random.setstate(state)


def test_clocks_show_the_simulated_time() -> None:
    shown: list[float] = []

    def look() -> None:
        shown.append(time.time())
        logging.getLogger("headrace.test").info("a line")

    assert run_in_process(look).is_ok
    assert abs(shown[0] - EPOCH_SECONDS) < 100
    assert abs(time.time() - EPOCH_SECONDS) > 100


def test_imports_and_seeded_randomness_are_let_be() -> None:
    def fine() -> None:
        sys.modules.pop("colorsys", None)
        import colorsys

        assert colorsys
        random.Random(7).random()

    assert run_in_process(fine).failure == ""


def test_other_threads_are_let_be() -> None:
    draws: list[float] = []
    go, done = threading.Event(), threading.Event()

    def other() -> None:
        go.wait()
        draws.append(random.Random().random())
        draws.append(time.time())
        os.listdir("/")
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def let_it() -> None:
        go.set()
        done.wait(30)

    assert run_in_process(let_it).failure == ""
    thread.join()
    assert abs(draws[1] - time.time()) < 3600


def test_everything_is_as_before_after_a_simulation() -> None:
    before = (time.time, random.random, os.urandom, uuid.uuid4, threading.Thread.start)
    run_in_process(lambda: None)
    assert (time.time, random.random, os.urandom, uuid.uuid4, threading.Thread.start) == before


LATE_IMPORTS = """
import sys
from headrace.testing.sim import run
from tests.sim.coordinators import coordinators

guarded, before = run.guarded, set()

def noting(loop):
    before.update(sys.modules)
    return guarded(loop)

run.guarded = noting
assert run.run_seed(coordinators, 1).is_ok
print(*(name for name in sys.modules if name not in before and name.startswith("headrace.")))
"""


def test_nothing_of_ours_is_imported_in_a_simulation() -> None:
    """It would be compiled, and written, by who may not reach for files."""
    done = subprocess.run(
        [sys.executable, "-c", LATE_IMPORTS], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
