"""What of transactions is asked well and badly, for the test of all versions."""

from __future__ import annotations

from typing import Any

from headrace.protocol import messages as m
from headrace.protocol.message import Message

LONG = "x" * 32_767
LEAST, LEAST_64 = -(2**31), -(2**63)
NAMES = ("t", "", LONG)
PRODUCERS: tuple[dict[str, Any], ...] = (
    {"producer_id": 0, "producer_epoch": 0},
    {"producer_id": LEAST_64, "producer_epoch": -(2**15)},
    {"producer_id": -1, "producer_epoch": -1},
)
TOPICS: tuple[tuple[str, list[int]], ...] = (
    ("orders", [0, 1]),
    ("orders", [7, -1]),
    ("none", [0]),
    ("__transaction_state", [0]),
    (LONG, []),
)


def partitions_added(topic_id: bytes) -> list[Message]:
    kind = m.AddPartitionsToTxnRequest
    topics = [kind.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in TOPICS]
    old: list[Message] = [
        kind(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer["producer_id"],
            v3_and_below_producer_epoch=producer["producer_epoch"],
            v3_and_below_topics=some,
        )
        for name in NAMES
        for producer in PRODUCERS
        for some in (topics[:1], topics, [])
    ]
    new: list[Message] = [
        kind(
            transactions=[
                kind.AddPartitionsToTxnTransaction(transactional_id=name, topics=some, verify_only=verifies, **producer)
                for name in NAMES
                for producer in PRODUCERS
                for some in (topics[:1], topics, [])
            ]
        )
        for verifies in (True, False)
    ]
    return [*old, *new, kind()]


def offsets_added(topic_id: bytes) -> list[Message]:
    return [
        m.AddOffsetsToTxnRequest(transactional_id=name, group_id=group_id, **producer)
        for name in NAMES
        for group_id in ("g", "", LONG)
        for producer in PRODUCERS
    ]


def ends(topic_id: bytes) -> list[Message]:
    return [
        m.EndTxnRequest(transactional_id=name, committed=committed, **producer)
        for name in NAMES
        for committed in (True, False)
        for producer in PRODUCERS
    ]


def markers(topic_id: bytes) -> list[Message]:
    kind = m.WriteTxnMarkersRequest
    asked: list[Message] = [
        kind(
            markers=[
                kind.WritableTxnMarker(
                    producer_id=producer_id,
                    producer_epoch=0,
                    transaction_result=result,
                    coordinator_epoch=coordinator_epoch,
                    topics=[
                        kind.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                        for name, indexes in (
                            ("orders", [0, 9, -1]),
                            ("none", [0]),
                            ("__consumer_offsets", [0]),
                            ("", []),
                        )
                    ],
                    **more,
                )
                for producer_id in (7, 8)
                for result in (True, False)
                for coordinator_epoch in (5, LEAST)
            ]
        )
        for more in ({}, {"transaction_version": 2})
    ]
    return [*asked, kind(markers=[])]


def offset_commits(topic_id: bytes) -> list[Message]:
    kind = m.TxnOffsetCommitRequest
    members: tuple[dict[str, Any], ...] = ({}, {"generation_id": 5, "member_id": "m"}, {"group_instance_id": LONG})
    return [
        kind(
            transactional_id=name,
            group_id=group_id,
            topics=[
                kind.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        kind.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                        for index, offset in ((0, 5), (9, 0), (-1, LEAST_64))
                        for metadata in (None, "", LONG)
                    ],
                )
                for topic in ("orders", "none", "")
            ],
            **member,
            **producer,
        )
        for name in NAMES
        for group_id in ("g", "")
        for member in members
        for producer in PRODUCERS
    ]


def descriptions(topic_id: bytes) -> list[Message]:
    return [
        m.DescribeTransactionsRequest(transactional_ids=names) for names in ([], ["t"], ["t", "t", "", "none"], [LONG])
    ]


def listings(topic_id: bytes) -> list[Message]:
    filters: tuple[dict[str, Any], ...] = (
        {},
        {"state_filters": ["Ongoing", "ongoing", "", LONG]},
        {"producer_id_filters": [0, -1, LEAST_64]},
        {"duration_filter": 0},
        {"duration_filter": LEAST_64},
        {"transactional_id_pattern": "t.*"},
        {"transactional_id_pattern": ""},
        {"transactional_id_pattern": "("},
        {"transactional_id_pattern": "(a*)*" * 1000},
        {"transactional_id_pattern": LONG},
    )
    return [m.ListTransactionsRequest(**some) for some in filters]


ASKED = {
    24: partitions_added,
    25: offsets_added,
    26: ends,
    27: markers,
    28: offset_commits,
    65: descriptions,
    66: listings,
}
