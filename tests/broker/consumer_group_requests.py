"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, well and badly put."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.protocol import messages as m
from headrace.protocol.message import Message

LONG = "x" * 32_767
LARGE, LEAST = 2**31 - 1, -(2**31)


def heartbeats(topic_id: bytes) -> list[Message]:
    kind = m.ConsumerGroupHeartbeatRequest
    join: dict[str, Any] = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    owned = [
        kind.TopicPartitions(topic_id=id_, partitions=[0, 0, -1, LARGE]) for id_ in (topic_id, bytes(16), topic_id)
    ]
    asked: list[Message] = [
        kind(group_id=group_id, member_id=member_id, member_epoch=epoch, **more)
        for group_id, member_id in (("asked", "m"), ("", ""), (LONG, LONG), ("other", ""))
        for epoch in (0, 1, -1, -2, LARGE, LEAST)
        for more in (
            {},
            join,
            join | {"instance_id": "i"},
            join | {"rebalance_timeout_ms": LEAST, "subscribed_topic_names": [LONG, "", "a b"]},
            join | {"server_assignor": "range", "rack_id": "r"},
            join | {"server_assignor": LONG, "rack_id": ""},
            {"topic_partitions": owned},
        )
    ]
    asked += [
        kind(group_id="regex", member_id="m", member_epoch=0, **(join | {"subscribed_topic_regex": regex}))
        for regex in ("o.*", "(", "", LONG, "(a{1000}){1000}", "\u20ac*")
    ]
    return asked


def descriptions(topic_id: bytes) -> list[Message]:
    return [
        m.ConsumerGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=wants_operations)
        for group_ids in ([], ["asked"], ["none", "", LONG, "asked", "asked"])
        for wants_operations in (False, True)
    ]


ASKED: dict[int, Callable[[bytes], list[Message]]] = {68: heartbeats, 69: descriptions}
