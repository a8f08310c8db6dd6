"""Producers and consumers of a ledger in trouble; the history of what they saw is judged in the end."""

from __future__ import annotations

import asyncio

from headrace.testing.sim.chaos import Chaos, Odds
from headrace.testing.sim.history import History
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation, Violation
from tests.sim.ledger_clients import Consumer, Producer
from tests.sim.ledger_service import LedgerService

TROUBLE_SECONDS = 4.0


async def ledger(simulation: Simulation) -> None:
    history = await recorded(simulation)
    anomalies = history.anomalies()
    if anomalies:
        shown = "\n".join(map(str, anomalies[:5]))
        raise Violation(f"{len(anomalies)} anomalies in {len(history.writes)} writes, the first:\n{shown}")


async def recorded(simulation: Simulation) -> History:
    history = History()
    server = simulation.host("server")
    server.start("ledger", serve)
    producers = [Producer(simulation, history, f"p{number}", acks) for number, acks in enumerate((-1, 1))]
    for producer in producers:
        simulation.host(producer.name).start("producer", producer.run)
    simulation.host("c0").start("consumer", Consumer(simulation, history, "c0").run)

    chaos = Chaos(simulation, [server], Odds(machine_crash=5), gap_seconds=0.4, outage_seconds=0.2)
    await chaos.run(TROUBLE_SECONDS)

    keeping = asyncio.ensure_future(keep_up(simulation))
    for producer in producers:
        producer.is_stopping = True
    async with asyncio.timeout(120):
        while not all(producer.is_done for producer in producers):
            await asyncio.sleep(0.05)
    await simulation.host("c1").start("consumer", Consumer(simulation, history, "c1").read_to_end).ended
    keeping.cancel()
    history.machine_crashes += simulation.losses
    return history


async def serve(process: Process) -> None:
    await LedgerService(process).run()


async def keep_up(simulation: Simulation) -> None:
    """A supervisor: the ledger exits when its disk is offline, and is started again."""
    server = simulation.host("server")
    while True:
        await server.processes["ledger"].ended
        server.restart("ledger")
