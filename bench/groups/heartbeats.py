"""What heartbeats of classic groups cost: `python -m bench.groups.heartbeats [--peers ours,kafka] [--groups 10000]`.

As `bench.groups.beating` says, a heartbeat every 3 s. The bar: 10,000 groups take at most a third of a core.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from bench.groups import beating
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.frame import write_request

SESSION_MS: Final = 300_000


async def formed(first: Peer, second: Peer, group: str) -> list[bytes]:
    """Both wait for each other."""
    return list(await asyncio.gather(member(first, group), member(second, group)))


async def member(peer: Peer, group: str) -> bytes:
    """Joins and gets its assignment; returns its heartbeat."""
    body = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(64))],
    )
    joined: Any = await peer.send(body, 3)
    assert not joined.error_code, joined
    assignments = [
        m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=one.member_id, assignment=bytes(32))
        for one in joined.members
    ]
    asked = m.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=assignments,
    )
    synced: Any = await peer.send(asked, 3)
    assert not synced.error_code, synced
    beat = m.HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    return b"".join(write_request(beat, 4, 7, "a-bench"))


CLASSIC: Final = beating.Kind("Heartbeats of classic groups", 3.0, ("group.initial.rebalance.delay.ms=300",), formed)

if __name__ == "__main__":
    beating.main(__doc__, CLASSIC)
