"""Groups of both protocols and transactional transforms, on a node in trouble, with members that die and freeze."""

from __future__ import annotations

import asyncio

from headrace.client import Client, NewTopic
from headrace.testing.sim.chaos import Chaos, Odds
from headrace.testing.sim.history import Entry, Poll
from headrace.testing.sim.node import node_main
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation, Violation
from headrace.testing.sim.transactions import Transaction, TransactionAnomaly, anomalies
from tests.sim.group_clients import Auditor, Committed, Member
from tests.sim.node import NODE, ODDS, bring_online, create, keep_up
from tests.sim.node_clients import Consumer, Seen, TopicPartition, connected, read_all, text_of
from tests.sim.transactional_clients import Transactor, Transformer

TROUBLE_SECONDS = 2.5
STEPS_MAX = 300_000
TOPICS = [
    NewTopic("source", 2, configs={"retention.ms": "-1", "segment.ms": "700"}),
    NewTopic("image", 2, configs={"retention.ms": "-1"}),
]
SOURCE: list[TopicPartition] = [("source", 0), ("source", 1)]
IMAGE: list[TopicPartition] = [("image", 0), ("image", 1)]
COORDINATING = NODE | {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.heartbeat.interval.ms": "150",
    "offsets.topic.num.partitions": "2",
    "offsets.load.buffer.size": "300",
    "transaction.state.log.load.buffer.size": "300",
    # State topics are compacted all the time.
    "log.roll.ms": "400",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
CLIENT_ODDS = Odds(crash_in_call=0, crash_at_callback=1, machine_crash=0, cut_both=1, partition=0, stall=2)
WIRE_ODDS = Odds(process_crash=0, crash_in_call=0, crash_at_callback=0, machine_crash=0, pause=1, stall=8)
PATIENCE_SECONDS = 25.0
"""For what must come to its end by itself, when there is no more trouble."""


async def coordinators(simulation: Simulation) -> None:
    seen, transactions, final = await recorded(simulation)
    problems = seen.problems + [str(found) for found in anomalies_of(seen, transactions, final)]
    problems += [str(found) for found in seen.history.anomalies()]
    if problems:
        raise Violation(f"{len(problems)} anomalies in {len(transactions)} transactions:\n" + "\n".join(problems[:5]))


def anomalies_of(seen: Seen, transactions: list[Transaction], final: list[str]) -> list[TransactionAnomaly]:
    read_at: dict[str, float] = {}
    for poll in seen.history.polls:
        for entry in poll.entries:
            read_at[entry.value] = min(poll.end, read_at.get(entry.value, float("inf")))
    return anomalies(transactions, read_at, final)


async def recorded(simulation: Simulation) -> tuple[Seen, list[Transaction], list[str]]:
    simulation.errors_are_findings = False
    simulation.loop.steps_limit = STEPS_MAX
    chance = simulation.chance("coordinators")
    seen = Seen(simulation)
    server = simulation.host("server")
    # Members that are slower than their sessions would never be all there at once.
    weather = simulation.network.weather
    is_slow = weather.spike_chance > 0 and weather.spike_seconds_max > 0.2
    session_ms = 3000 if is_slow else chance.choice((600, 2000))
    server.start("node", node_main(COORDINATING | {"group.consumer.session.timeout.ms": str(session_ms)}))
    await simulation.host("setup").start("setup", lambda process: create(process, TOPICS)).ended

    transactions: list[Transaction] = []
    ids = chance.choice((("a", "b"), ("a", "a"), ("a", "b", "b")))
    users: dict[int, str] = {}
    transactors = [
        Transactor(seen, f"t{number}", f"id-{of}", SOURCE, transactions, users) for number, of in enumerate(ids)
    ]
    protocols = chance.choice((("consumer", "consumer"), ("classic", "classic"), ("consumer", "classic")))
    transformers = [
        Transformer(seen, f"x{number}", protocol, session_ms, transactions) for number, protocol in enumerate(protocols)
    ]
    kept = Committed()
    members = [Member(seen, f"m{number}", kind, session_ms, kept) for number, kind in enumerate(protocols)]
    auditor = Auditor(seen, "auditor", SOURCE, kept)
    reader = Consumer(seen, "c0", SOURCE, isolation_level="read_committed")
    lasting: list[Transactor | Auditor | Consumer] = [*transactors, auditor, reader]
    finishing = [simulation.host(client.name).start("client", client.run) for client in lasting]
    dying: list[Transformer | Member] = [*transformers, *members]
    mortal = [simulation.host(client.name) for client in dying]
    for host, one in zip(mortal, dying, strict=True):
        host.start("client", one.run)

    trouble = Chaos(simulation, [server], ODDS, gap_seconds=0.4, outage_seconds=0.15)
    deaths = Chaos(simulation, mortal, CLIENT_ODDS, gap_seconds=0.3, outage_seconds=0.5)
    wires = Chaos(simulation, [simulation.host(one.name) for one in transactors], WIRE_ODDS, 0.2, outage_seconds=0.6)
    await asyncio.gather(*(chaos.run(TROUBLE_SECONDS) for chaos in (trouble, deaths, wires)))

    keeping = asyncio.ensure_future(keep_up(server))
    await bring_online(server)
    seen.is_stopping = True
    async with asyncio.timeout(600):
        await asyncio.gather(*(process.ended for process in finishing))
        last = simulation.host("last")
        final: list[str] = []

        async def look(process: Process) -> None:
            final.extend(await last_look(process, seen))

        await last.start("look", look).ended
        await last.start("audit", auditor.check).ended
    keeping.cancel()
    seen.history.machine_crashes += simulation.losses
    return seen, transactions, final


async def last_look(process: Process, seen: Seen) -> list[str]:
    """What is committed at the end; and its image, when the transformers are done, must be the same."""
    final: list[str] = []
    async with connected(process, operation_timeout_s=60.0) as client:
        await nothing_hangs(client, seen, SOURCE)
        sources: dict[int, list[str]] = {}
        for partition in SOURCE:
            start = seen.simulation.now
            records = await read_all(client, partition, "read_committed")
            entries = [Entry(record.offset, text_of(record)) for record in records]
            poll = Poll("last", 0, seen.number(partition), start, seen.simulation.now, entries, reads_to_end=True)
            seen.history.polls.append(poll)
            sources[partition[1]] = [entry.value for entry in entries]
            final += sources[partition[1]]
        images: dict[int, list[str]] = {}
        changed_at = seen.simulation.now
        while seen.simulation.now < changed_at + PATIENCE_SECONDS:
            now = {image[1]: list(map(text_of, await read_all(client, image, "read_committed"))) for image in IMAGE}
            if now != images:
                images, changed_at = now, seen.simulation.now
            if images == sources:
                break
            await asyncio.sleep(0.5)
        for index, source in sources.items():
            if images[index] != source:
                seen.wrong(f"the image of source-{index} is not the source: {_difference(source, images[index])}")
    return final


async def nothing_hangs(client: Client, seen: Seen, partitions: list[TopicPartition]) -> None:
    """Every transaction ends, and then all that is written may be read (hazard 5)."""
    everything = client.consumer()
    what_is_committed = client.consumer(isolation_level="read_committed")
    deadline = seen.simulation.now + PATIENCE_SECONDS
    while True:
        ends, stable = await everything.end_offsets(partitions), await what_is_committed.end_offsets(partitions)
        if ends == stable:
            return
        if seen.simulation.now > deadline:
            seen.wrong(f"a transaction hangs: {partitions} end at {ends}, and may be read up to {stable}")
            return
        await asyncio.sleep(0.5)


def _difference(source: list[str], image: list[str]) -> str:
    twice = sorted({value for value in image if image.count(value) > 1})
    missing = [value for value in source if value not in image]
    strange = [value for value in image if value not in source]
    if twice or missing or strange:
        return f"twice {twice[:3]}, missing {missing[:3]}, strange {strange[:3]}"
    at = next((index for index, pair in enumerate(zip(source, image, strict=False)) if pair[0] != pair[1]), len(image))
    return f"another order from {at} on"
