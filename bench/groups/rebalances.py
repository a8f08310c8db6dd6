"""How long a large classic group takes to be stable: `python -m bench.groups.rebalances [--peers ours,kafka]`.

200 members over 400 partitions, all started at once, without an initial delay, with heartbeats of 1 s: the time from
the first join until each has its assignment in one generation; and the same after one member falls silent, beyond its
session of 6 s. Members join again when a heartbeat says so, and the leader assigns.

The bar: not above Kafka's.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.groups import rebalancing
from bench.groups.rebalancing import BEAT_S, MEMBERS, PARTITIONS, SESSION_MS
from bench.node import peers
from headrace.errors import Error
from headrace.protocol import messages as m


class Member(rebalancing.Member):
    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.member_id = ""
        self.generation = -1
        self.is_assigned = False

    async def _run(self) -> None:
        while True:
            if await self._join() and await self._sync():
                self.is_assigned = True
                self._group.changed.set()
                while not await self.beat():
                    await asyncio.sleep(BEAT_S)
                self.is_assigned = False

    async def _join(self) -> bool:
        body = m.JoinGroupRequest(
            group_id=self._group.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(64))],
        )
        self.joined: Any = await self._peer.send(body, 9)
        if self.joined.error_code == Error.MEMBER_ID_REQUIRED:
            self.member_id = self.joined.member_id
        elif self.joined.error_code == Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = self.joined.generation_id
        return not self.joined.error_code

    async def _sync(self) -> bool:
        count = max(len(self.joined.members), 1)
        body = m.SyncGroupRequest(
            group_id=self._group.name,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=one.member_id, assignment=bytes(16 + 4 * (PARTITIONS // count))
                )
                for one in self.joined.members
            ],
        )
        return not (await self._peer.send(body, 5)).error_code

    async def beat(self) -> int:
        body = m.HeartbeatRequest(group_id=self._group.name, generation_id=self.generation, member_id=self.member_id)
        error: int = (await self._peer.send(body, 4)).error_code
        return error


class Group(rebalancing.Group[Member]):
    def __init__(self, peer: peers.Peer, name: str) -> None:
        super().__init__(peer, name)
        self.members = [Member(self) for _ in range(MEMBERS)]

    def stable(self) -> int | None:
        """Everybody has an assignment of the same generation."""
        generations = {member.generation for member in self.members if member.is_assigned}
        is_stable = len(generations) == 1 and all(member.is_assigned for member in self.members)
        return generations.pop() if is_stable else None

    async def lose(self, generation: int) -> float:
        lost = self.members.pop()
        await lost.beat()
        heard_of_s = time.perf_counter()
        lost.stop()
        while await self.until_stable() == generation:
            await asyncio.sleep(0.01)
        return heard_of_s


if __name__ == "__main__":
    rebalancing.main(
        __doc__, "A large classic group, without an initial delay", ("group.initial.rebalance.delay.ms=0",), Group
    )
