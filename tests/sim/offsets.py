"""Offsets of groups on a node in trouble: what was acknowledged is what is read, whatever happens in between.

A commit whose fate is not known may still be on its way, and so its group is left alone: in the end it has the offset
of before it, or its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.errors import Error, HeadraceError
from headrace.protocol import messages as m
from headrace.testing.sim.chaos import Chaos
from headrace.testing.sim.node import node_main
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation, Violation
from tests.sim.node import NODE, ODDS, STEPS_MAX, TROUBLE_SECONDS, bring_online, keep_up
from tests.sim.node_clients import Seen, connected

TOPIC = "read"
SETTINGS = NODE | {
    "offsets.topic.num.partitions": "2",
    "offsets.load.buffer.size": "300",
    "offsets.commit.timeout.ms": "700",
    "log.roll.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.index.interval.bytes": "100",
}
CLIENTS = 3


async def offsets(simulation: Simulation) -> None:
    simulation.errors_are_findings = False
    simulation.loop.steps_limit = STEPS_MAX
    seen = Seen(simulation)
    server = simulation.host("server")
    server.start("node", node_main(SETTINGS))
    await simulation.host("setup").start("setup", set_up).ended
    committers = [Committer(seen, f"c{number}") for number in range(CLIENTS)]
    running = [simulation.host(client.name).start("client", client.run) for client in committers]
    chaos = Chaos(simulation, [server], ODDS, gap_seconds=0.3, outage_seconds=0.15)
    await chaos.run(TROUBLE_SECONDS)
    keeping = asyncio.ensure_future(keep_up(server))
    await bring_online(server)
    seen.is_stopping = True
    async with asyncio.timeout(300):
        await asyncio.gather(*(process.ended for process in running))
        for client in committers:
            await simulation.host("last").start("look", client.check).ended
    keeping.cancel()
    if seen.problems:
        raise Violation(f"{len(seen.problems)} problems, the first:\n" + "\n".join(seen.problems[:5]))


async def set_up(process: Process) -> None:
    kind = m.CreateTopicsRequest
    wanted = kind.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    async with connected(process, operation_timeout_s=60.0) as client:
        while True:
            try:
                (made,) = (await client.admin.request(kind(topics=[wanted], timeout_ms=1000))).topics
            except HeadraceError:
                continue
            if made.error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                return


class Committer:
    """Commits rising offsets to a group of its own, and to another one after each whose fate it does not know."""

    def __init__(self, seen: Seen, name: str) -> None:
        self.name = name
        self._seen = seen
        self._number = 0
        self._groups: dict[str, set[int]] = {}
        """What each group may have: -1 at first."""
        self._topic_id = b""

    async def run(self, process: Process) -> None:
        chance = process.chance
        async with connected(process, operation_timeout_s=1.0) as client:
            await self._find_topic(client)
            if not self._topic_id:
                return
            group = self._new_group()
            while not self._seen.is_stopping:
                if not await self._commit(client, group):
                    group = self._new_group()
                if chance.random() < 0.5:
                    await self._look(client, chance.choice(list(self._groups)[-3:]))
                await asyncio.sleep(chance.expovariate(1 / 0.05))

    async def check(self, process: Process) -> None:
        async with connected(process, operation_timeout_s=30.0) as client:
            for group in self._groups:
                while not await self._look(client, group):
                    await asyncio.sleep(0.05)

    def _new_group(self) -> str:
        name = f"{self.name}-{len(self._groups)}"
        self._groups[name] = {-1}
        return name

    async def _find_topic(self, client: Any) -> None:
        asked = m.MetadataRequest.MetadataRequestTopic(name=TOPIC)
        while not self._seen.is_stopping:
            try:
                (topic,) = (await client.admin.request(m.MetadataRequest(topics=[asked]))).topics
            except HeadraceError:
                continue
            if not topic.error_code:
                self._topic_id = bytes(topic.topic_id)
                return

    async def _commit(self, client: Any, group: str) -> bool:
        """False when nobody knows what became of it."""
        self._number += 1
        kind, offset = m.OffsetCommitRequest, self._number
        partition = kind.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=f"{offset}"
        )
        topic = kind.OffsetCommitRequestTopic(name=TOPIC, topic_id=self._topic_id, partitions=[partition])
        try:
            if await self._is_missing(client, group):
                return True
            response = await client.admin.request(kind(group_id=group, topics=[topic]))
        except HeadraceError:
            self._groups[group].add(offset)
            return False
        if response.topics[0].partitions[0].error_code:
            # Who is refused does not know either: the client may have asked twice, and the first time may count.
            self._groups[group].add(offset)
            return False
        self._groups[group] = {offset}
        return True

    async def _is_missing(self, client: Any, group: str) -> bool:
        found = await client.admin.request(m.FindCoordinatorRequest(coordinator_keys=[group], key_type=0))
        return bool(found.coordinators[0].error_code)

    async def _look(self, client: Any, group: str) -> bool:
        """True when it was answered."""
        kind = m.OffsetFetchRequest
        topic = kind.OffsetFetchRequestTopics(name=TOPIC, topic_id=self._topic_id, partition_indexes=[0])
        request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=[topic])], require_stable=True)
        may_be = set(self._groups[group])
        try:
            await self._is_missing(client, group)
            (answered,) = (await client.admin.request(request)).groups
        except HeadraceError:
            return False
        if answered.error_code:
            return False
        (found,) = answered.topics[0].partitions
        if found.error_code:
            return False
        if found.committed_offset not in may_be:
            self._seen.wrong(f"{group} has offset {found.committed_offset}, and not one of {sorted(may_be)}")
        elif found.committed_offset == max(may_be):
            # What was read once is committed: nothing but a later commit takes its place, and there was none.
            self._groups[group] -= {offset for offset in may_be if offset < found.committed_offset}
        if found.committed_offset >= 0 and found.metadata != f"{found.committed_offset}":
            self._seen.wrong(f"{group} has {found.metadata!r} with offset {found.committed_offset}")
        return True
