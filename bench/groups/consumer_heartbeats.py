"""What heartbeats of the new consumer protocol cost: `python -m bench.groups.consumer_heartbeats [--peers ours,kafka]`.

As `bench.groups.beating` says, a heartbeat every 5 s. The bar: 10,000 groups take at most a fifth of a core.
"""

from __future__ import annotations

from typing import Any, Final

from bench.groups import beating
from bench.node import peers
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.frame import write_request
from tests.compat.wire import Wire

TOPIC: Final = "beaten"
SETTINGS: Final = (
    "group.consumer.session.timeout.ms=600000",
    "group.consumer.max.session.timeout.ms=600000",
)


def prepare(peer: peers.Peer) -> None:
    with Wire(peer.bootstrap) as wire:
        topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        wire.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)


async def formed(first: Peer, second: Peer, group: str) -> list[bytes]:
    """Two members, one after the other, until each has a partition; returns their heartbeats."""
    kind = m.ConsumerGroupHeartbeatRequest
    ids, epochs = (f"{group}-a", f"{group}-b"), [0, 0]
    owned: list[list[Any]] = [[], []]
    while True:
        for number in (0, 1):
            body = kind(
                group_id=group,
                member_id=ids[number],
                member_epoch=epochs[number],
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=owned[number],
            )
            told: Any = await first.send(body, 1)
            assert not told.error_code, told
            epochs[number] = told.member_epoch
            owned[number] = [
                kind.TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in told.assignment.topic_partitions
            ]
        if epochs[0] == epochs[1] and owned[0] and owned[1]:
            beats = (kind(group_id=group, member_id=ids[number], member_epoch=epochs[number]) for number in (0, 1))
            return [b"".join(write_request(beat, 1, 7, "a-bench")) for beat in beats]


CONSUMER: Final = beating.Kind("Heartbeats of the new consumer protocol", 5.0, SETTINGS, formed, prepare)

if __name__ == "__main__":
    beating.main(__doc__, CONSUMER)
