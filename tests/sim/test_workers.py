"""The contract of the workers' port, on threads over both real loops and in the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from headrace.storage.workers import Workers, WorkerThread
from headrace.testing.sim.process import Process
from headrace.testing.sim.run import run_seed
from headrace.testing.sim.simulation import Simulation

Body = Callable[[Workers], Coroutine[Any, Any, None]]


def on_threads(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[Body], None]:
    async def main(body: Body) -> None:
        workers = WorkerThread(asyncio.get_running_loop().call_soon_threadsafe, "test")
        await asyncio.wait_for(body(workers), 60)
        workers.stop()

    def run(body: Body) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main(body))

    return run


def in_the_simulator(body: Body) -> None:
    async def scenario(simulation: Simulation) -> None:
        await simulation.host("a").start("main", lambda process: body(process.workers())).ended

    outcome = run_seed(scenario, 1)
    assert outcome.is_ok, outcome.failure


on_every_port = pytest.mark.parametrize(
    "run",
    [
        pytest.param(on_threads(asyncio.new_event_loop), id="asyncio"),
        pytest.param(on_threads(uvloop.new_event_loop), id="uvloop"),
        pytest.param(in_the_simulator, id="sim"),
    ],
)


@on_every_port
def test_jobs_run_one_after_another_and_are_told_in_their_order(run: Callable[[Body], None]) -> None:
    async def body(workers: Workers) -> None:
        events: list[str] = []
        ended = asyncio.Event()

        def job(number: int) -> Callable[[], int]:
            def work() -> int:
                events.append(f"job {number}")
                return number

            return work

        def done(result: int | None, error: BaseException | None) -> None:
            assert error is None
            assert asyncio.get_running_loop()
            events.append(f"done {result}")
            if result == 9:
                ended.set()

        for number in range(10):
            workers.run(job(number), done)
        assert not any(event.startswith("done") for event in events), "never before `run` has returned"
        await ended.wait()
        assert [event for event in events if event.startswith("job")] == [f"job {n}" for n in range(10)]
        assert [event for event in events if event.startswith("done")] == [f"done {n}" for n in range(10)]
        for number in range(10):
            assert events.index(f"job {number}") < events.index(f"done {number}")

    run(body)


@on_every_port
def test_a_job_that_fails_is_told_with_its_exception_and_the_next_one_runs(run: Callable[[Body], None]) -> None:
    async def body(workers: Workers) -> None:
        told: list[tuple[int | None, BaseException | None]] = []
        ended = asyncio.Event()
        failure = ValueError("no")

        def failing() -> int:
            raise failure

        def done(result: int | None, error: BaseException | None) -> None:
            told.append((result, error))
            if len(told) == 2:
                ended.set()

        workers.run(failing, done)
        workers.run(lambda: 7, done)
        await ended.wait()
        assert told == [(None, failure), (7, None)]

    run(body)


def test_a_job_that_touches_the_loop_is_told_so() -> None:
    async def body(workers: Workers) -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        errors: list[BaseException | None] = []

        def done(result: object, error: BaseException | None) -> None:
            errors.append(error)
            told.set()

        workers.run(lambda: loop.call_soon(print), done)
        await told.wait()
        assert "a worker's job used the loop" in str(errors[0])

    in_the_simulator(body)


def test_a_paused_process_has_paused_workers() -> None:
    events: list[str] = []

    async def main(process: Process) -> None:
        process.workers().run(lambda: events.append("job"), lambda result, error: events.append("done"))
        process.pause()
        await asyncio.Event().wait()

    async def scenario(simulation: Simulation) -> None:
        process = simulation.host("a").start("main", main)
        await asyncio.sleep(10)
        assert events == []
        process.resume()
        await asyncio.sleep(1)
        assert events == ["job", "done"]

    outcome = run_seed(scenario, 1)
    assert outcome.is_ok, outcome.failure
