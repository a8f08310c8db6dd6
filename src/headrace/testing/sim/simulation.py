"""The world of one seed: hosts and their processes, the network between them, the time, and what was found wrong."""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from headrace.errors import HeadraceError
from headrace.testing.sim.history import MachineCrash
from headrace.testing.sim.host import Host
from headrace.testing.sim.loop import SimLoop
from headrace.testing.sim.network import Network, Weather
from headrace.testing.sim.process import CURRENT
from headrace.testing.sim.trace import Trace, without_addresses

Scenario: TypeAlias = "Callable[[Simulation], Coroutine[Any, Any, None]]"
"""What happens to the world, from outside of every process. It raises `Violation` for what must not be."""


class Violation(Exception):
    """The system broke a promise."""


class Simulation:
    __slots__ = ("errors_are_findings", "findings", "loop", "network", "seed", "trace")

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.trace = Trace(keep_all=keep_trace)
        self.loop = SimLoop(seed, trace=self.trace)
        self.loop.on_problem = self._problem
        self.network: Network = self.loop.network
        self.network.weather = Weather.drawn(self.chance("weather"))
        self.findings: list[str] = []
        """What no scenario has to look for: programs that failed, callbacks that raised, errors in the log."""
        self.errors_are_findings = True
        """A scenario whose faults are logged as errors turns this off; exceptions that are bugs stay findings."""

    def chance(self, name: str) -> random.Random:
        """A source of randomness of its own for each name, so that a change in one part leaves the others be."""
        return random.Random(f"{self.seed}/{name}")

    def host(self, name: str) -> Host:
        return self.network.host(name)

    @property
    def losses(self) -> list[MachineCrash]:
        """For a history: when unsynced bytes may have gone, and where."""
        return [loss for host in self.network.hosts for loss in host.losses]

    @property
    def now(self) -> float:
        return self.loop.now

    def event(self, what: str) -> None:
        self.trace.event(self.loop.now, "scenario", what)

    def finding(self, text: str) -> None:
        self.findings.append(without_addresses(text))
        self.event(text.splitlines()[0])

    def _problem(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        message = str(context["message"])
        if "never retrieved" in message:
            # Whoever asked went away. When that is noticed depends on the collector, so it is in no trace.
            return
        detail = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        self.finding(f"{message}: {error!r}\n{detail}")


class TraceLog(logging.Handler):
    """What processes log goes to the trace; an error is a finding, and so is an exception that is a bug."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        simulation, process = self._simulation, CURRENT.get()
        who = "scenario" if process is None else process.label
        text = record.getMessage()
        simulation.trace.event(simulation.now, who, f"{record.levelname.lower()}: {text}")
        error = record.exc_info[1] if record.exc_info else None
        is_bug = error is not None and not isinstance(error, HeadraceError)
        if is_bug or (record.levelno >= logging.ERROR and simulation.errors_are_findings):
            detail = "".join(traceback.format_exception(error)) if error else ""
            simulation.findings.append(without_addresses(f"{who} logged: {text}\n{detail}"))
