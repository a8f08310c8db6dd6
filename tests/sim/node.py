"""A node and its clients in trouble; what the clients saw is judged in the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from headrace.client import NewTopic
from headrace.errors import Error, HeadraceError, Refused
from headrace.testing.sim.chaos import Chaos, Odds
from headrace.testing.sim.history import Promise
from headrace.testing.sim.host import Host
from headrace.testing.sim.node import node_main
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation, Violation
from tests.sim.node_admin import TOPICS as OPERATED
from tests.sim.node_admin import Operator
from tests.sim.node_clients import Consumer, IdTaker, LastReader, Producer, Seen, TopicPartition, connected
from tests.sim.node_keys import COMPACTED, CONFIGS, KeyWriter
from tests.sim.node_topics import TopicMaker

TROUBLE_SECONDS = 3.0
STEPS_MAX = 100_000
"""Ten times what any seed should need."""
# Segments are small in time and in their indexes, because the least of segment.bytes is large.
SMALL_SEGMENTS = {"segment.ms": "400", "index.interval.bytes": "100", "segment.index.bytes": "120"}
TOPICS = [
    NewTopic("plain", 2, configs={"retention.ms": "-1"}),
    NewTopic("rolling", 1, configs={"retention.ms": "-1", "compression.type": "lz4", **SMALL_SEGMENTS}),
    NewTopic(COMPACTED[0], 1, configs=CONFIGS),
    NewTopic("synced", 1, configs={"retention.ms": "-1", "flush.messages": "1", "segment.ms": "300"}),
]
PARTITIONS: list[TopicPartition] = [("plain", 0), ("plain", 1), ("rolling", 0), ("synced", 0)]
NODE = {
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "900",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "log.segment.delete.delay.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "6000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
}
ODDS = Odds(machine_crash=4, terminate=2, sync_failure=2, disk_full=2)


async def node(simulation: Simulation) -> None:
    seen = await recorded(simulation)
    if seen.problems:
        raise Violation(f"{len(seen.problems)} problems, the first:\n" + "\n".join(seen.problems[:5]))
    anomalies = seen.history.anomalies()
    if anomalies:
        shown = "\n".join(map(str, anomalies[:5]))
        raise Violation(f"{len(anomalies)} anomalies in {len(seen.history.writes)} writes, the first:\n{shown}")


def promised(acks: int) -> dict[TopicPartition, Promise]:
    """What an acknowledgement is worth in each partition."""
    least = Promise.ALL_MACHINES if acks == -1 else Promise.PROCESS_CRASHES
    return {key: Promise.ALL_MACHINES if key[0] == "synced" and acks else least for key in PARTITIONS}


async def recorded(simulation: Simulation) -> Seen:
    simulation.errors_are_findings = False
    simulation.loop.steps_limit = STEPS_MAX
    chance = simulation.chance("node")
    seen = Seen(simulation)
    server = simulation.host("server")
    has_two_disks = chance.random() < 0.3
    server.start("node", node_main(NODE | ({"log.dirs": "data,more"} if has_two_disks else {})))
    operates = chance.random() < (0.7 if has_two_disks else 0.1)
    topics = [*TOPICS, *OPERATED] if operates else TOPICS
    await simulation.host("setup").start("setup", lambda process: set_up(process, topics)).ended

    producers = [
        Producer(seen, f"p{number}", acks, promised(acks))
        for number, acks in enumerate(chance.choice(((-1, 1), (-1, -1, 1), (-1, 1, 0))))
    ]
    maker = TopicMaker(seen, "maker", {"retention.ms": "-1"})
    clients: list[Producer | Consumer | TopicMaker | IdTaker | KeyWriter | Operator] = [*producers, maker]
    clients += [Consumer(seen, "c0", PARTITIONS), IdTaker(seen, "ids")]
    keys = KeyWriter(seen, "keys")
    if chance.random() < 0.3:
        clients.append(keys)
    operator = Operator(seen, "operator", [*PARTITIONS, COMPACTED])
    if operates:
        clients.append(operator)
    running = [simulation.host(client.name).start("client", client.run) for client in clients]

    chaos = Chaos(simulation, [server], ODDS, gap_seconds=0.3, outage_seconds=0.15)
    await chaos.run(TROUBLE_SECONDS)

    keeping = asyncio.ensure_future(keep_up(server))
    await bring_online(server)
    seen.is_stopping = True
    async with asyncio.timeout(300):
        await asyncio.gather(*(process.ended for process in running))

        async def last_look(process: Process) -> None:
            async with connected(process, operation_timeout_s=30.0) as client:
                await maker.look(client, is_last=True)

        await simulation.host("last").start("look", last_look).ended
        partitions = {key: seen.number(key) for key in PARTITIONS}
        reader = LastReader(seen, "last", partitions | maker.partitions())
        await simulation.host("last").start("reader", reader.run).ended
        if keys in clients:
            await simulation.host("last").start("keys", keys.check).ended
        if operator in clients:
            await simulation.host("last").start("operator", operator.check).ended
    keeping.cancel()
    seen.history.machine_crashes += simulation.losses
    return seen


async def set_up(process: Process, topics: Sequence[NewTopic] = TOPICS) -> None:
    await create(process, [*TOPICS, *OPERATED])


async def create(process: Process, topics: list[NewTopic]) -> None:
    async with connected(process, operation_timeout_s=60.0) as client:
        for topic in topics:
            while True:
                try:
                    await client.admin.create_topics([topic])
                    break
                except Refused as refused:
                    if refused.error is Error.TOPIC_ALREADY_EXISTS:
                        break
                    raise
                except HeadraceError:
                    continue


async def bring_online(server: Host) -> None:
    """A directory whose sync failed is offline until a restart."""
    process = server.processes["node"]
    if process.is_alive and any(disk.offline is not None for disk in process.disks):
        process.signal(signal.SIGTERM)
        await process.ended


async def keep_up(server: Host) -> None:
    """A supervisor: a node that exits is started again."""
    while True:
        await server.processes["node"].ended
        await asyncio.sleep(0.1)
        if not server.processes["node"].is_alive:
            server.restart("node")
