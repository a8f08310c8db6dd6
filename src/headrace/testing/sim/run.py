"""Runs a scenario for one seed. The same seed and the same code give the same trace, callback by callback."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from headrace.broker.rest import import_now
from headrace.testing.sim.guards import ReachedAround, guarded
from headrace.testing.sim.loop import OutOfTime, Stuck
from headrace.testing.sim.simulation import Scenario, Simulation, TraceLog, Violation

TIME_LIMIT_SECONDS = 3600.0
STEPS_LIMIT = 2_000_000


@dataclass(slots=True)
class Run:
    """What came of one seed."""

    seed: int
    digest: str
    steps: int
    simulated_seconds: float
    cpu_seconds: float
    failure: str
    """Empty when all went well."""
    trace: list[str]

    @property
    def is_ok(self) -> bool:
        return not self.failure


def run_seed(scenario: Scenario, seed: int, *, keep_trace: bool = False) -> Run:
    """Runs one seed to its end; a failure is told, never raised."""
    import_now("client")  # an import in the simulation would reach around its ports, and keep its clock
    started = time.process_time()
    simulation = Simulation(seed, keep_trace=keep_trace)
    loop = simulation.loop
    loop.time_limit, loop.steps_limit = TIME_LIMIT_SECONDS, STEPS_LIMIT
    failure = ""
    with _quiet(simulation):
        try:
            with guarded(loop):
                loop.run_until_complete(scenario(simulation))
        except Violation as error:
            failure = str(error)
        except (OutOfTime, Stuck, ReachedAround) as error:
            failure = f"{type(error).__name__}: {error}"
        except Exception:
            failure = f"the scenario failed\n{traceback.format_exc()}"
        digest = simulation.trace.digest()
        if simulation.findings and not failure:
            failure = simulation.findings[0]
        lines, steps, simulated = list(simulation.trace.lines), simulation.trace.steps, loop.now
        _end(simulation)
    return Run(seed, digest, steps, simulated, time.process_time() - started, failure, lines)


@contextmanager
def _quiet(simulation: Simulation) -> Iterator[None]:
    """Logs go to the trace. No collection meanwhile: when it comes depends on what ran before in this process."""
    loggers = [logging.getLogger("headrace"), logging.getLogger("asyncio")]
    before = [(logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    was_collecting = gc.isenabled()
    gc.disable()
    handler = TraceLog(simulation)
    try:
        for logger in loggers:
            logger.handlers, logger.propagate = [handler], False
            logger.setLevel(logging.INFO)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # a crash came before it was a task
            yield
    finally:
        for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        if was_collecting:
            gc.enable()


def _end(simulation: Simulation) -> None:
    """Coroutines that never ended are thrown away. Their `finally` runs now and finds nothing that works any more."""
    loop = simulation.loop
    for host in simulation.network.hosts:
        for process in host.processes.values():
            process.crash()
    loop.on_problem = _ignore
    tasks = [*loop.graveyard, *asyncio.all_tasks(loop)]
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a task that died before its first step was never awaited
        asyncio._set_running_loop(loop)  # else asyncio's own loop keeps what a `finally` starts
        try:
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                with suppress(BaseException):
                    coroutine.close()
        finally:
            asyncio._set_running_loop(None)
    loop.graveyard.clear()


def _ignore(context: dict[str, object]) -> None:
    pass
