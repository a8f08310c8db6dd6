"""What of offsets is asked well and badly, for the test of all versions."""

from __future__ import annotations

from typing import Any

from headrace.protocol import messages as m
from headrace.protocol.message import Message

LONG = "x" * 32_767
LARGE, LEAST = 2**31 - 1, -(2**31)
UNKNOWN_ID, NO_ID = b"?" * 16, bytes(16)


def commits(topic_id: bytes) -> list[Message]:
    kind = m.OffsetCommitRequest
    members: list[dict[str, Any]] = [
        {},
        {"generation_id_or_member_epoch": 5, "member_id": "m"},
        {"generation_id_or_member_epoch": LEAST, "member_id": LONG},
        {"group_instance_id": "i"},
        {"retention_time_ms": 0},
        {"retention_time_ms": LEAST},
    ]
    return [
        *(
            kind(
                group_id=group_id,
                topics=[
                    kind.OffsetCommitRequestTopic(
                        name=name,
                        topic_id=by_id,
                        partitions=[
                            kind.OffsetCommitRequestPartition(
                                partition_index=index, committed_offset=offset, committed_metadata=metadata, **more
                            )
                            for index, offset in ((0, 5), (0, 6), (9, 0), (-1, -(2**63)))
                            for metadata in ("", None, "é" * 10, LONG)
                            for more in ({}, {"committed_leader_epoch": 3})
                        ],
                    )
                ],
                **member,
            )
            for name, by_id in (("orders", topic_id), ("none", UNKNOWN_ID), ("", NO_ID), (LONG, NO_ID))
            for group_id in ("g", "", LONG)
            for member in members
        ),
        kind(group_id="g", topics=[]),
    ]


def fetches(topic_id: bytes) -> list[Message]:
    kind = m.OffsetFetchRequest
    stable: tuple[dict[str, Any], ...] = ({}, {"require_stable": True})
    member_fields: tuple[dict[str, Any], ...] = (
        {},
        {"member_id": "m", "member_epoch": 3},
        {"member_id": "", "member_epoch": LEAST},
    )
    old = [
        kind(group_id=group_id, topics=topics, **more)
        for group_id in ("g", "none", "", LONG)
        for topics in (
            None,
            [],
            [kind.OffsetFetchRequestTopic(name=name, partition_indexes=[0, 0, 9, -1]) for name in ("orders", "", LONG)],
        )
        for more in stable
    ]
    new = [
        kind(
            groups=[
                kind.OffsetFetchRequestGroup(group_id=group_id, topics=topics, **member)
                for group_id in ("g", "none", "", LONG, "g")
                for topics in (
                    None,
                    [],
                    [
                        kind.OffsetFetchRequestTopics(name=name, topic_id=by_id, partition_indexes=[0, 0, 9, -1])
                        for name, by_id in (("orders", topic_id), ("none", UNKNOWN_ID), ("", NO_ID))
                    ],
                )
            ],
            require_stable=is_stable,
        )
        for is_stable in (True, False)
        for member in member_fields
    ]
    return [*old, *new, kind(groups=[])]


def deletions(topic_id: bytes) -> list[Message]:
    kind = m.OffsetDeleteRequest
    return [
        kind(
            group_id=group_id,
            topics=[
                kind.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[kind.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9, -1)],
                )
                for name in names
            ],
        )
        for group_id in ("g", "none", "", LONG)
        for names in ([], ["orders", "none", "", LONG])
    ]


ASKED = {8: commits, 9: fetches, 47: deletions}
