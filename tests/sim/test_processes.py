"""Processes and machines of a simulation: what a crash drops, what a pause holds, what outlives both."""

from __future__ import annotations

import asyncio
import gc
import signal
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.net.listener import Listener
from headrace.net.peer import Disconnected, Peer
from headrace.protocol.frame import Request, read_request, write_response
from headrace.protocol.messages import HeartbeatRequest, HeartbeatResponse
from headrace.testing.disk import Crash
from headrace.testing.sim.network import Weather
from headrace.testing.sim.process import End, Process
from headrace.testing.sim.run import run_seed
from headrace.testing.sim.simulation import Simulation


def simulate(scenario: Callable[[Simulation], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    """Calm weather, and every failure raised."""

    async def calm(simulation: Simulation) -> None:
        simulation.network.weather = Weather()
        await scenario(simulation)

    run = run_seed(calm, seed)
    assert run.is_ok, run.failure


async def for_ever(process: Process) -> None:
    await asyncio.Event().wait()


def answer(connection: Any, frame: memoryview) -> None:
    request = read_request(frame)
    assert isinstance(request, Request)
    response = HeartbeatResponse(throttle_time_ms=request.body.generation_id)
    connection.reply(write_response(response, request.version, request.correlation_id))


async def serve(process: Process) -> None:
    await Listener("test", answer).start(process.host.name, 9092)
    await asyncio.Event().wait()


async def heartbeat(peer: Peer, number: int, timeout_seconds: float = 30) -> int:
    response = await peer.call(HeartbeatRequest(generation_id=number), 1, timeout_seconds)
    return int(response.throttle_time_ms)


async def connected(host: str, timeout_seconds: float = 30) -> Peer:
    peer = Peer(host, 9092, "test")
    await peer.connect(timeout_seconds)
    return peer


def test_a_crash_drops_everything_that_the_process_would_still_have_done() -> None:
    done: list[str] = []

    async def main(process: Process) -> None:
        asyncio.get_running_loop().call_later(1, done.append, "timer")
        process.workers().run(lambda: done.append("job"), lambda result, error: done.append("done"))
        try:
            await asyncio.sleep(1)
            done.append("task")
        except BaseException:
            done.append("except")
            raise
        finally:
            done.append("finally")

    async def scenario(simulation: Simulation) -> None:
        process = simulation.host("a").start("main", main)
        await asyncio.sleep(0)
        process.crash()
        assert await process.ended is End.PROCESS_CRASH
        await asyncio.sleep(5)
        assert done == [], "not while the simulation runs"

    simulate(scenario)


def test_a_crash_in_a_call_of_a_port_lets_no_finally_do_anything_more() -> None:
    done: list[str] = []

    async def main(process: Process) -> None:
        disk = process.disk()
        process.crash_at_next_call(2)
        file = disk.open("a", create=True)
        try:
            file.write(0, [b"12345678"])
            done.append("written")
        except Exception:
            done.append("caught")
        finally:
            with pytest.raises(Crash):
                disk.open("b", create=True)
            with pytest.raises(Crash):
                file.write(0, [b"after"])
            with pytest.raises(Crash):
                process.workers().run(lambda: None, lambda result, error: None)
            with pytest.raises(Crash):
                await Peer("127.0.0.1", 1, "x").connect(1)
            asyncio.get_running_loop().call_soon(done.append, "soon")

    async def scenario(simulation: Simulation) -> None:
        host = simulation.host("a")
        assert await host.start("main", main).ended is End.PROCESS_CRASH
        await asyncio.sleep(1)
        assert done == []
        assert [path for path, _ in host.platter().files()] == ["a"]
        assert b"12345678".startswith(bytes(host.platter().node("a").cached))

    simulate(scenario)


def test_a_crash_of_the_process_keeps_the_page_cache_and_one_of_the_machine_what_was_synced() -> None:
    async def main(process: Process) -> None:
        disk = process.disk()
        disk.lock()
        disk.sync_directory("")
        file = disk.open("log", create=True)
        disk.sync_directory("")
        file.truncate(0)
        file.write(0, [b"synced"])
        file.datasync()
        file.write(6, [bytes(100_000)])
        await asyncio.Event().wait()

    async def scenario(simulation: Simulation) -> None:
        host = simulation.host("a")
        platter = host.platter()
        process = host.start("main", main)
        await asyncio.sleep(0.1)
        process.crash()
        assert len(platter.node("log").cached) == 100_006
        again = host.restart("main")
        assert again.incarnation == 2
        await asyncio.sleep(0.1)
        assert again.is_alive, "the lock of a dead process is free"
        kept = []
        for _ in range(20):
            host.lose_power()
            content = bytes(platter.node("log").cached)
            assert content.startswith(b"synced")
            kept.append(len(content))
            host.restart("main")
            await asyncio.sleep(0.1)
        assert min(kept) < 100_006

    simulate(scenario)


def test_each_incarnation_has_its_own_chance_and_the_machine_its_own_clock() -> None:
    times: list[tuple[int, float, float]] = []

    async def main(process: Process) -> None:
        times.append((process.time_ms(), asyncio.get_running_loop().time(), process.chance.random()))

    async def scenario(simulation: Simulation) -> None:
        simulation.network.weather.clock_skew_seconds_max = 100
        simulation.network.weather.clock_drift_max = 0.1
        for name in ("a", "b"):
            await simulation.host(name).start("main", main).ended
        await simulation.host("a").restart("main").ended
        simulation.host("a").clock.jump(-1000)
        await simulation.host("a").restart("main").ended

    simulate(scenario)
    a, b, a2, a3 = times
    assert abs(a[0] - b[0]) > 100
    assert a[1] != b[1]
    assert len({chance for _, _, chance in times}) == 4
    assert 0 < a2[1] - a[1] < 1
    assert a3[0] < a2[0] - 900_000 < a3[1] * 1e12


def test_a_timer_runs_by_the_clock_of_its_machine() -> None:
    async def main(process: Process) -> None:
        process.clock.rate = 2.0
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(10)
        assert 10 <= asyncio.get_running_loop().time() - start < 10.01

    async def scenario(simulation: Simulation) -> None:
        start = simulation.now
        await simulation.host("a").start("main", main).ended
        assert 5 <= simulation.now - start < 5.01

    simulate(scenario)


def test_a_paused_process_does_nothing_and_its_kernel_goes_on() -> None:
    async def scenario(simulation: Simulation) -> None:
        process = simulation.host("a").start("main", serve)
        peer = await connected("a")
        assert await heartbeat(peer, 1) == 1
        process.pause()
        waiting = [peer.send(HeartbeatRequest(generation_id=number), 1) for number in range(50)]
        late = await connected("a")  # the kernel takes connections
        waiting.append(late.send(HeartbeatRequest(generation_id=50), 1))
        await asyncio.sleep(100)
        assert not any(future.done() for future in waiting)
        process.resume()
        assert [(await future).throttle_time_ms for future in waiting] == list(range(51))

    simulate(scenario)


def test_timers_of_a_paused_process_go_off_when_it_goes_on_in_their_order() -> None:
    done: list[str] = []

    async def main(process: Process) -> None:
        loop = asyncio.get_running_loop()
        for name, delay in (("c", 3), ("a", 1), ("b", 2)):
            loop.call_later(delay, done.append, name)
        await asyncio.sleep(1000)

    async def scenario(simulation: Simulation) -> None:
        process = simulation.host("a").start("main", main)
        await asyncio.sleep(0.5)
        process.pause()
        await asyncio.sleep(10)
        assert done == []
        process.resume()
        await asyncio.sleep(0.1)
        assert done == ["a", "b", "c"]

    simulate(scenario)


def test_a_crash_of_the_process_breaks_its_connections_and_one_of_the_machine_tells_nobody() -> None:
    async def scenario(simulation: Simulation) -> None:
        host = simulation.host("a")
        process = host.start("main", serve)
        peer = await connected("a")
        assert await heartbeat(peer, 1) == 1
        process.crash()
        await asyncio.sleep(1)
        assert not peer.is_connected
        with pytest.raises(Disconnected, match="refused"):
            await connected("a")
        host.restart("main")
        peer = await connected("a")
        assert await heartbeat(peer, 2) == 2
        host.lose_power()
        await asyncio.sleep(10)
        assert peer.is_connected, "it can't know"
        with pytest.raises(Disconnected, match="did not answer"):
            await connected("a", timeout_seconds=5)
        host.restart("main")
        await asyncio.sleep(1)
        with pytest.raises(Disconnected):  # the machine knows nothing of that connection
            await heartbeat(peer, 3)

    simulate(scenario)


def test_a_program_that_fails_is_a_finding() -> None:
    async def main(process: Process) -> None:
        raise ValueError("a defect")

    async def scenario(simulation: Simulation) -> None:
        assert await simulation.host("a").start("main", main).ended is End.EXIT

    run = run_seed(scenario, 1)
    assert "a/main#1 failed" in run.failure
    assert "a defect" in run.failure


def test_a_callback_that_fails_and_a_logged_error_are_findings() -> None:
    import logging

    def wrong() -> None:
        raise ValueError("a defect")

    async def failing(process: Process) -> None:
        asyncio.get_running_loop().call_soon(wrong)
        await asyncio.sleep(1)

    async def complaining(process: Process) -> None:
        logging.getLogger("headrace.test").error("that should not be")

    for main, text in ((failing, "a defect"), (complaining, "a/main#1 logged: that should not be")):

        async def scenario(simulation: Simulation, main: Any = main) -> None:
            await simulation.host("a").start("main", main).ended

        assert text in run_seed(scenario, 1).failure


def test_a_signal_runs_its_handler_or_kills() -> None:
    async def patient(process: Process) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()

    async def scenario(simulation: Simulation) -> None:
        for main, end in ((patient, End.EXIT), (for_ever, End.PROCESS_CRASH)):
            process = simulation.host("a").start(main.__name__, main)
            await asyncio.sleep(0.1)
            process.signal(signal.SIGTERM)
            assert await process.ended is end

    simulate(scenario)


def test_a_process_that_uses_the_port_of_another_is_found() -> None:
    disks: list[Any] = []

    async def owner(process: Process) -> None:
        disks.append(process.disk())
        await asyncio.Event().wait()

    async def thief(process: Process) -> None:
        disks[0].open("a", create=True)

    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("owner", owner)
        await asyncio.sleep(0.1)
        await simulation.host("b").start("thief", thief).ended

    assert "b/thief#1 used a port of a/owner#1" in run_seed(scenario, 1).failure


def test_a_slow_disk_blocks_the_loop_of_its_process_and_no_other() -> None:
    ticks: dict[str, list[float]] = {"a": [], "b": []}

    async def main(process: Process) -> None:
        for _ in range(50):
            ticks[process.host.name].append(process.loop.now)
            await asyncio.sleep(0.001)

    async def syncing(process: Process) -> None:
        disk = process.disk()
        file = disk.open("x", create=True)
        asyncio.get_running_loop().create_task(main(process))
        for _ in range(30):
            await asyncio.sleep(0.001)
            file.datasync()
        await asyncio.sleep(1)

    async def scenario(simulation: Simulation) -> None:
        simulation.host("b").start("main", main)
        await simulation.host("a").start("main", syncing).ended

    simulate(scenario)
    assert ticks["b"][-1] - ticks["b"][0] < 0.15
    assert ticks["a"][-1] - ticks["a"][0] > ticks["b"][-1] - ticks["b"][0]


def test_callbacks_keep_their_order_over_pauses_and_slow_disks() -> None:
    ran: list[int] = []

    async def main(process: Process) -> None:
        loop, file = asyncio.get_running_loop(), process.disk().open("x", create=True)

        def callback(number: int) -> None:
            ran.append(number)
            if process.chance.random() < 0.3:
                file.datasync()

        for number in range(300):
            loop.call_soon(callback, number)
            if process.chance.random() < 0.1:
                file.datasync()
            if process.chance.random() < 0.2:
                await asyncio.sleep(0.0001)
        await asyncio.sleep(10)

    async def scenario(simulation: Simulation) -> None:
        chance = simulation.chance("test")
        process = simulation.host("a").start("main", main)
        for _ in range(100):
            await asyncio.sleep(chance.expovariate(1 / 0.003))
            process.pause() if chance.random() < 0.5 else process.resume()
        process.resume()
        await process.ended

    for seed in range(20):
        simulate(scenario, seed)
        assert ran == list(range(300))
        ran.clear()


def test_a_process_dies_before_any_callback_one_likes() -> None:
    ran: list[int] = []

    async def main(process: Process) -> None:
        for number in range(10):
            asyncio.get_running_loop().call_soon(ran.append, number)
        process.crash_at_next_callback(4)
        await asyncio.Event().wait()

    async def scenario(simulation: Simulation) -> None:
        assert await simulation.host("a").start("main", main).ended is End.PROCESS_CRASH

    simulate(scenario)
    assert ran == [0, 1, 2]


def test_a_simulation_that_waits_for_ever_or_spins_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def waiting(simulation: Simulation) -> None:
        await asyncio.Event().wait()

    async def spinning(simulation: Simulation) -> None:
        while True:
            await asyncio.sleep(0)

    monkeypatch.setattr("headrace.testing.sim.run.STEPS_LIMIT", 10_000)
    assert run_seed(waiting, 1).failure.startswith("Stuck")
    assert run_seed(spinning, 1).failure.startswith("OutOfTime")


def test_what_a_coroutine_starts_while_it_is_thrown_away_keeps_nothing_alive() -> None:
    """Else a campaign takes more memory with every seed."""
    loops: list[weakref.ref[object]] = []

    async def main(process: Process) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.gather(for_ever(process))

    async def scenario(simulation: Simulation) -> None:
        loops.append(weakref.ref(simulation.loop))
        simulation.host("a").start("main", main)
        await asyncio.sleep(1)

    simulate(scenario)
    gc.collect()
    assert loops[0]() is None
