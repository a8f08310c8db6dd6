"""Runs a coroutine on each kind of event loop that we promise to work on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from headrace.testing.sim.loop import SimLoop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
    "sim": SimLoop,
}

Run = Callable[[Coroutine[Any, Any, None]], None]


def runner(name: str) -> Run:
    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[name]) as loop_runner:
            loop_runner.run(asyncio.wait_for(coroutine, 60))

    return run


on_every_loop = pytest.mark.parametrize("run", [pytest.param(runner(name), id=name) for name in LOOPS])
