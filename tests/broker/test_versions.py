"""Every API in every version that is served, asked well and badly: there is always a reply that can be read.

A field that a version has no room for, or a text that is too long for it, would end the connection instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.broker.forward import fitted
from headrace.errors import Error, ProtocolError, Refused
from headrace.metadata.refusals import refusal
from headrace.protocol import messages as m
from headrace.protocol.apis import Api, find_api
from headrace.protocol.batch_builder import build
from headrace.protocol.codec import encode_bytes
from headrace.protocol.message import Message
from tests.broker import (
    admin_requests,
    consumer_group_requests,
    group_requests,
    offset_requests,
    telemetry_requests,
    transaction_requests,
)
from tests.broker.config_requests import ASKED as CONFIGS_ASKED
from tests.broker.config_requests import REFUSED as CONFIGS_REFUSED
from tests.broker.nodes import ask, connected, create, running

TOPIC = "orders"
LONG = "x" * 32_767
"""As long as a string can be before the flexible versions."""
LARGE, LEAST = 2**31 - 1, -(2**31)
UNKNOWN_ID = b"?" * 16
NO_ID = bytes(16)
SECONDS_MAX = 600
"""It asks some sixteen thousand times, which takes seconds; only a hang takes so long, on a busy machine too."""
FIRST_SERVED = {0: 3}
"""Produce is advertised from v0 on, and served from v3 on."""


def batch(**more: Any) -> memoryview:
    return memoryview(build([(b"k", b"v", (), 1_700_000_000_000)], **more))


def topics_named(topic_id: bytes) -> list[tuple[str, bytes]]:
    return [(TOPIC, NO_ID), ("", topic_id), ("none", NO_ID), ("", UNKNOWN_ID), ("", NO_ID), (LONG, NO_ID)]


def produces(topic_id: bytes) -> list[Message]:
    data, topic = m.ProduceRequest.PartitionProduceData, m.ProduceRequest.TopicProduceData
    contents: Sequence[Any] = [
        batch(),
        None,
        memoryview(b""),
        memoryview(b"\0" * 61),
        batch(producer_id=9, producer_epoch=0, base_sequence=5),
        batch(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
    ]
    requests: list[Message] = [
        m.ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                topic(
                    name=name,
                    topic_id=by_id,
                    partition_data=[data(index=index, records=records) for index in (0, 7, -1) for records in contents],
                )
            ],
        )
        for name, by_id in topics_named(topic_id)
        for acks, timeout_ms in ((1, 1000), (-1, 1000), (-1, 0), (-1, LEAST), (5, LARGE))
    ]
    return [*requests, m.ProduceRequest(acks=1, topic_data=[])]


def fetches(topic_id: bytes) -> list[Message]:
    partition, topic = m.FetchRequest.FetchPartition, m.FetchRequest.FetchTopic
    epochs: Sequence[dict[str, Any]] = (
        {},
        {"current_leader_epoch": 99},
        {"last_fetched_epoch": 0},
        {"last_fetched_epoch": 99},
    )
    requests: list[Message] = [
        m.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=level,
            session_epoch=session_epoch,
            session_id=session_id,
            topics=[
                topic(
                    topic=name,
                    topic_id=by_id,
                    partitions=[
                        partition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **more)
                        for index, offset in ((0, 0), (0, 99), (0, -1), (9, 0), (-1, 0))
                    ],
                )
            ],
        )
        for name, by_id in topics_named(topic_id)
        for max_wait_ms, min_bytes, max_bytes in ((0, 1, LARGE), (LEAST, LARGE, 0), (1, LEAST, LEAST))
        for level, session_id, session_epoch in ((0, 0, -1), (1, 0, 0), (0, 77, 3))
        for more in epochs
    ]
    return [*requests, m.FetchRequest(topics=[], max_wait_ms=0)]


def listings(topic_id: bytes) -> list[Message]:
    partition, topic = m.ListOffsetsRequest.ListOffsetsPartition, m.ListOffsetsRequest.ListOffsetsTopic
    return [
        m.ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=level,
            topics=[
                topic(
                    name=name,
                    partitions=[partition(partition_index=index, timestamp=at, **more) for index in (0, 1, 9, -1)],
                )
                for name in (TOPIC, "none", "", LONG)
            ]
            * times,
        )
        for at in (*range(-8, 2), 2**62, -(2**63))
        for replica_id, level, times in ((-1, 0, 1), (-1, 1, 1), (-2, 0, 1), (5, 0, 2))
        for more in ({}, {"current_leader_epoch": 99})
    ]


def epochs(topic_id: bytes) -> list[Message]:
    partition = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    return [
        m.OffsetForLeaderEpochRequest(
            topics=[
                topic(
                    topic=name,
                    partitions=[partition(partition=index, leader_epoch=epoch, **more) for index in (0, 0, 9, -1)],
                )
                for name in (TOPIC, "none", "", LONG)
            ],
        )
        for epoch in (-1, 0, 99, LEAST)
        for more in ({}, {"current_leader_epoch": 99})
    ]


def metadata(topic_id: bytes) -> list[Message]:
    topic = m.MetadataRequest.MetadataRequestTopic
    return [
        m.MetadataRequest(topics=topics, **more)
        for topics in (
            None,
            [],
            *([topic(name=name, topic_id=by_id)] for name, by_id in topics_named(topic_id)),
            [topic(name=None, topic_id=topic_id), topic(name=None, topic_id=UNKNOWN_ID), topic(name=None)],
            [topic(name=TOPIC)] * 3 + [topic(name="a b")] * 2,
        )
        for more in (
            {},
            {"allow_auto_topic_creation": False},
            {"include_topic_authorized_operations": True},
            {"include_cluster_authorized_operations": True},
        )
    ]


def creations(topic_id: bytes) -> list[Message]:
    kind = m.CreateTopicsRequest
    setting, assignment = kind.CreatableTopicConfig, kind.CreatableReplicaAssignment
    topics: Sequence[list[m.CreateTopicsRequest.CreatableTopic]] = [
        [],
        [kind.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)],
        [kind.CreatableTopic(name=LONG, num_partitions=1, replication_factor=1)] * 2,
        *(
            [kind.CreatableTopic(name=name, num_partitions=count, replication_factor=factor)]
            for name in ("fresh", "", "a b", LONG)
            for count, factor in ((-1, -1), (0, 1), (1, 0), (1, 9), (LARGE, 1), (LEAST, -1))
        ),
        *(
            [
                kind.CreatableTopic(
                    name="fresh",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[setting(name=name, value=value)],
                )
            ]
            for name, value in ((LONG, "1"), ("retention.ms", LONG), ("retention.ms", None), ("retention.ms", "1"))
        ),
        *(
            [
                kind.CreatableTopic(
                    name="fresh",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[assignment(partition_index=index, broker_ids=ids)],
                )
            ]
            for index, ids in ((0, [1]), (0, [9]), (0, []), (1, [1]), (0, list(range(9000, 0, -1))), (0, [9] * 9000))
        ),
    ]
    return [
        kind(topics=wanted, validate_only=True, timeout_ms=timeout_ms)
        for wanted in topics
        for timeout_ms in (10_000, 0, LEAST)
    ]


def deletions(topic_id: bytes) -> list[Message]:
    state = m.DeleteTopicsRequest.DeleteTopicState
    by_name = [m.DeleteTopicsRequest(topic_names=names, timeout_ms=1000) for names in ([], ["none"] * 2, ["", LONG])]
    by_state = [
        m.DeleteTopicsRequest(topics=states, timeout_ms=1000)
        for states in (
            [state(name="none")],
            [state(name=None, topic_id=UNKNOWN_ID)] * 2,
            [state(name=None), state(name=TOPIC, topic_id=topic_id)],
            [state(name=TOPIC), state(name=None, topic_id=topic_id)],
        )
    ]
    return [*by_name, *by_state]


def producer_ids(topic_id: bytes) -> list[Message]:
    return [
        m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **more)
        for name in (None, "", "t", LONG)
        for timeout_ms in (60_000, 0, LEAST)
        for more in ({}, {"producer_id": 5, "producer_epoch": 0}, {"producer_id": 5}, {"enable_2pc": True})
    ]


def coordinators(topic_id: bytes) -> list[Message]:
    return [
        *(m.FindCoordinatorRequest(key=key, key_type=kind) for key in ("", "g", LONG) for kind in (0, 1, 2, 99, -1)),
        *(m.FindCoordinatorRequest(coordinator_keys=keys, key_type=1) for keys in ([], ["a", "a", ""], [LONG])),
    ]


def api_versions(topic_id: bytes) -> list[Message]:
    return [
        m.ApiVersionsRequest(client_software_name=name, client_software_version=version)
        for name, version in (("a", "1"), ("", ""), ("-", "1"), (LONG, LONG))
    ]


def clusters(topic_id: bytes) -> list[Message]:
    return [
        m.DescribeClusterRequest(endpoint_type=kind, **more)
        for kind in (1, 2, 0, 99, -1)
        for more in ({}, {"include_cluster_authorized_operations": True}, {"include_fenced_brokers": True})
    ]


ASKED = {
    0: produces,
    1: fetches,
    2: listings,
    3: metadata,
    10: coordinators,
    18: api_versions,
    19: creations,
    20: deletions,
    22: producer_ids,
    23: epochs,
    60: clusters,
    **admin_requests.ASKED,
    **CONFIGS_ASKED,
    **offset_requests.ASKED,
    **consumer_group_requests.ASKED,
    **group_requests.ASKED,
    **telemetry_requests.ASKED,
    **transaction_requests.ASKED,
}


def is_carried(message: Message, version: int) -> bool:
    try:
        encode_bytes(message, version)
    except ProtocolError:
        return False
    return True


def served(advertised: m.ApiVersionsResponse) -> list[tuple[Api, range]]:
    found = []
    for one in advertised.api_keys:
        api = find_api(one.api_key)
        assert api is not None
        found.append((api, range(max(one.min_version, FIRST_SERVED.get(api.key, 0)), one.max_version + 1)))
    return found


def test_whatever_is_asked_in_any_version_is_answered() -> None:
    async def check() -> None:
        made = running(
            auto_create_topics_enable="false",
            group_initial_rebalance_delay_ms="0",
            group_min_session_timeout_ms="1",
        )
        async with made as node, connected(node) as peer:
            topic_id = await create(peer, TOPIC, 2)
            routes = served(
                await ask(peer, m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            )
            assert [api.key for api, _ in routes] == sorted(ASKED)
            for api, versions in routes:
                for version in versions:
                    requests = [request for request in ASKED[api.key](topic_id) if is_carried(request, version)]
                    assert requests, f"nothing of {api.name} v{version} is asked"
                    for request in requests:
                        try:
                            await ask(peer, request, version)
                        except Exception as error:
                            raise AssertionError(f"{api.name} v{version}: {str(request)[:500]}") from error

    asyncio.run(asyncio.wait_for(check(), SECONDS_MAX))


@pytest.mark.parametrize("ask_for", [creations, deletions, *admin_requests.REFUSED, *CONFIGS_REFUSED])
def test_what_the_controller_refuses_as_a_whole_can_be_said_in_every_version(ask_for: Any) -> None:
    refused = Refused(Error.NOT_CONTROLLER, LONG * 2)
    for request in ask_for(b"t" * 16):
        api = find_api(request.shape.key)
        assert api is not None
        for version in api.versions:
            if is_carried(request, version):
                encode_bytes(fitted(refusal(request, refused), version), version)
