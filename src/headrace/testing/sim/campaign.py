"""Many seeds on all cores, with a progress bar. What is done is written down, so that a campaign can go on later.

Worker processes take a few seeds at a time. A failure is printed as it comes, with the command that repeats it.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import headrace
from headrace.errors import HeadraceError
from headrace.testing.sim.run import run_seed
from headrace.testing.sim.simulation import Scenario

SEEDS_AT_ONCE: Final = 10


@dataclass(slots=True)
class Failure:
    seed: int
    text: str


@dataclass(slots=True)
class Tally:
    """What came of some seeds."""

    seeds: list[int] = field(default_factory=list)
    steps: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    cpu_seconds_max: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.simulated_seconds += other.simulated_seconds
        self.cpu_seconds += other.cpu_seconds
        self.cpu_seconds_max = max(self.cpu_seconds_max, other.cpu_seconds_max)
        self.failures += other.failures

    def __str__(self) -> str:
        count = len(self.seeds)
        if not count:
            return "no seeds"
        return (
            f"{count:,} seeds, {len(self.failures)} failed; {self.simulated_seconds / 60:,.1f} simulated minutes and "
            f"{self.steps:,} callbacks in {self.cpu_seconds:,.1f} CPU-s ({self.cpu_seconds / count:.3f} a seed, "
            f"at most {self.cpu_seconds_max:.2f})"
        )


def find_scenario(name: str) -> Scenario:
    """A scenario by `module:function`."""
    module_name, _, function_name = name.partition(":")
    try:
        scenario: Scenario = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise HeadraceError(f"there is no scenario {name} ({error}); name one as module:function.") from error
    return scenario


def run_seeds(scenario_name: str, seeds: list[int]) -> Tally:
    """What a worker process does."""
    scenario, tally = find_scenario(scenario_name), Tally()
    gc.freeze()  # what was imported is not looked at again
    for seed in seeds:
        run = run_seed(scenario, seed)
        failures = [] if run.is_ok else [Failure(seed, run.failure)]
        tally.add(Tally([seed], run.steps, run.simulated_seconds, run.cpu_seconds, run.cpu_seconds, failures))
    gc.collect()
    return tally


@dataclass(slots=True)
class Campaign:
    scenario: str
    first: int
    count: int
    jobs: int
    failures_max: int = 20
    state: Path | None = None
    """Where what is done is written down."""
    on_failure: Callable[[Failure], None] = lambda failure: None

    def run(self, *, resume: bool = False) -> Tally:
        tally = self._done_before() if resume else Tally()
        done = frozenset(tally.seeds)  # asked for membership only
        left = [seed for seed in range(self.first, self.first + self.count) if seed not in done]
        chunks = iter([left[start : start + SEEDS_AT_ONCE] for start in range(0, len(left), SEEDS_AT_ONCE)])
        if not resume or not done:
            self._write_head()
        context = multiprocessing.get_context("spawn")
        with (
            _progress(self.scenario, self.count, len(tally.seeds)) as advance,
            ProcessPoolExecutor(self.jobs, mp_context=context) as pool,
        ):
            running: set[Future[Tally]] = set()
            try:
                while True:
                    while len(running) < 2 * self.jobs and (chunk := next(chunks, None)):
                        running.add(pool.submit(run_seeds, self.scenario, chunk))
                    if not running:
                        break
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        part = future.result()
                        self._write_down(part)
                        tally.add(part)
                        advance(len(part.seeds), len(tally.failures))
                        for failure in part.failures:
                            self.on_failure(failure)
                    if len(tally.failures) >= self.failures_max:
                        break
            finally:
                for future in running:
                    future.cancel()
        return tally

    # --- what is done -------------------------------------------------------------------------------------------------

    def _done_before(self) -> Tally:
        """The seeds of an earlier run of the same scenario over the same code; none when anything has changed."""
        tally = Tally()
        if self.state is None or not self.state.exists():
            return tally
        lines = self.state.read_text().splitlines()
        if not lines or json.loads(lines[0]) != self._head():
            return tally
        for line in lines[1:]:
            try:
                values = json.loads(line)
            except ValueError:
                break  # it was killed while it wrote this line
            values["failures"] = [Failure(**failure) for failure in values["failures"]]
            tally.add(Tally(**values))
        return tally

    def _head(self) -> dict[str, str]:
        return {"scenario": self.scenario, "code": fingerprint(self.scenario)}

    def _write_head(self) -> None:
        if self.state is not None:
            self.state.parent.mkdir(parents=True, exist_ok=True)
            self.state.write_text(json.dumps(self._head()) + "\n")

    def _write_down(self, part: Tally) -> None:
        if self.state is not None:
            with self.state.open("a") as file:
                file.write(json.dumps(asdict(part)) + "\n")


def fingerprint(scenario_name: str) -> str:
    """Of our code and of the scenario's folder: a seed means something else when they have changed."""
    digest = hashlib.blake2b(sys.version.encode(), digest_size=16)
    module = importlib.import_module(scenario_name.partition(":")[0])
    folders = [Path(headrace.__file__).parent, Path(module.__file__ or "").parent]
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _progress(name: str, total: int, done: int) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total, completed=done, failed=0)
        yield lambda count, failed: progress.update(task, advance=count, failed=failed)
