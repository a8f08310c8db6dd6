"""Reads as the protocol has them: sessions, limits, epochs and special timestamps."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from tests.compat.conftest import MakeTopic, new_name
from tests.compat.requests import (
    BASE_MS,
    fetch_partition,
    fetch_request,
    fetched,
    metadata,
    produce_request,
    produced,
    settle,
)
from tests.compat.wire import Wire, batches_of, values_of

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -2, -1, -3, -4, -5, -6


def put(wire: Wire, topic: str, topic_id: bytes, *values: bytes, partition: int = 0, at_ms: int = BASE_MS) -> None:
    records = build([(None, value, (), at_ms) for value in values])
    answer = produced(wire.ask(produce_request(topic, topic_id, records, partition=partition), 9))
    assert answer.error_code == Error.NONE


@pytest.mark.parametrize("version", [7, 12, 17])
def test_a_session_sends_only_what_is_new(wire: Wire, make_topic: MakeTopic, version: int) -> None:
    """KIP-227: later requests name only what changed, and answers hold only what has something to say."""
    topic = make_topic(3)
    topic_id = metadata(wire, topic).topic_id
    for partition in range(3):
        put(wire, topic, topic_id, b"first", partition=partition)
    whole = [fetch_partition(0, partition) for partition in range(3)]
    first = wire.ask(fetch_request(topic, topic_id, whole, session_epoch=0), version)
    assert first.error_code == Error.NONE
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 3
    moved = [fetch_partition(1, partition) for partition in range(3)]
    session = first.session_id
    empty = wire.ask(fetch_request(topic, topic_id, moved, session_id=session, session_epoch=1), version)
    assert (empty.error_code, empty.session_id, empty.responses) == (Error.NONE, session, [])
    put(wire, topic, topic_id, b"second", partition=1)
    news = wire.ask(fetch_request(topic, topic_id, [], session_id=session, session_epoch=2), version)
    assert [data.partition_index for data in news.responses[0].partitions] == [1]
    assert values_of(fetched(news).records) == [b"second"]
    forgotten = m.FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=[1])
    asked = fetch_request(topic, topic_id, [], session_id=session, session_epoch=3, forgotten_topics_data=[forgotten])
    assert wire.ask(asked, version).responses == []
    late = wire.ask(fetch_request(topic, topic_id, [], session_id=session, session_epoch=3), version)
    assert late.error_code == Error.INVALID_FETCH_SESSION_EPOCH
    unknown = wire.ask(fetch_request(topic, topic_id, [], session_id=session ^ 0x5555, session_epoch=1), version)
    assert unknown.error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_out_of_range(wire: Wire, topic: str) -> None:
    topic_id = metadata(wire, topic).topic_id
    put(wire, topic, topic_id, b"only")
    for offset, error in (
        (0, Error.NONE),
        (1, Error.NONE),
        (2, Error.OFFSET_OUT_OF_RANGE),
        (-1, Error.OFFSET_OUT_OF_RANGE),
    ):
        answer = fetched(wire.ask(fetch_request(topic, topic_id, [fetch_partition(offset)]), 12))
        assert answer.error_code == error


def test_a_fetch_gets_at_least_one_batch_and_then_minds_its_limits(wire: Wire, topic: str) -> None:
    topic_id = metadata(wire, topic).topic_id
    for number in range(4):
        put(wire, topic, topic_id, bytes([number]) * 10_000)
    asked = fetch_request(topic, topic_id, [fetch_partition(0, max_bytes=1)])
    assert len(batches_of(fetched(wire.ask(asked, 12)).records)) == 1
    asked = fetch_request(topic, topic_id, [fetch_partition(0)], max_bytes=25_000)
    assert len(batches_of(fetched(wire.ask(asked, 12)).records)) == 2
    asked = fetch_request(topic, topic_id, [fetch_partition(0)])
    assert len(batches_of(fetched(wire.ask(asked, 12)).records)) == 4


def test_epochs_are_checked(wire: Wire, topic: str) -> None:
    found = metadata(wire, topic)
    epoch = found.partitions[0].leader_epoch
    for given, error in ((epoch, Error.NONE), (epoch + 1, Error.UNKNOWN_LEADER_EPOCH)):
        asked = fetch_request(topic, found.topic_id, [fetch_partition(0, epoch=given)])
        assert fetched(wire.ask(asked, 12)).error_code == error
        assert list_offset(wire, topic, LATEST, epoch=given).error_code == error


def test_unknown_topics_partitions_and_ids(wire: Wire, topic: str) -> None:
    topic_id = metadata(wire, topic).topic_id
    asked = fetch_request(topic, topic_id, [fetch_partition(0, partition=9)])
    assert fetched(wire.ask(asked, 12)).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    asked = fetch_request(new_name(), topic_id, [fetch_partition(0)])
    assert fetched(wire.ask(asked, 12)).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    asked = fetch_request("", bytes(range(16)), [fetch_partition(0)])
    assert fetched(wire.ask(asked, 17)).error_code == Error.UNKNOWN_TOPIC_ID
    records = build([(None, b"value", (), BASE_MS)])
    asked = produce_request("", bytes(range(16)), records)
    assert produced(wire.ask(asked, 13)).error_code == Error.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_of_list_offsets(wire: Wire, topic: str, version: int) -> None:
    topic_id = metadata(wire, topic).topic_id
    for number in range(10):
        put(wire, topic, topic_id, b"value", at_ms=BASE_MS + [0, 5, 9, 3, 1][number % 5] * 1000 + number)
    expected = {EARLIEST: 0, LATEST: 10, BASE_MS: 0, BASE_MS + 4000: 1, BASE_MS + 8500: 2, BASE_MS + 60_000: -1}
    if version >= 7:
        expected[MAX_TIMESTAMP] = 7
    if version >= 8:
        expected[EARLIEST_LOCAL] = 0
    if version >= 9:
        expected[LATEST_TIERED] = -1
    for timestamp, offset in expected.items():
        answer = list_offset(wire, topic, timestamp, version)
        assert (answer.error_code, answer.offset) == (Error.NONE, offset)


def list_offset(wire: Wire, topic: str, timestamp: int, version: int = 7, epoch: int = -1) -> Any:
    partition = m.ListOffsetsRequest.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
    )
    named = m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])
    return wire.ask(m.ListOffsetsRequest(replica_id=-1, topics=[named]), version).topics[0].partitions[0]


def epoch_end(wire: Wire, topic: str, epoch: int, *, current: int = -1, version: int) -> Any:
    """Where an epoch ended, for a client that takes `current` for the leader's."""
    asked = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    named = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])
    return wire.ask(m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[named]), version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ended(wire: Wire, topic: str, version: int) -> None:
    found = metadata(wire, topic)
    put(wire, topic, found.topic_id, b"a", b"b")
    epoch = found.partitions[0].leader_epoch
    answer = epoch_end(wire, topic, epoch, version=version)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (Error.NONE, epoch, 2)


def new_producer_id() -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )


def test_a_producer_that_repeats_itself_is_answered_as_before(wire: Wire, topic: str) -> None:
    """Idempotence: the last five batches are known, a gap is refused, and so is a producer of the past."""
    topic_id = metadata(wire, topic).topic_id
    given = wire.ask(new_producer_id(), 4)
    assert given.error_code == Error.NONE

    def send(sequence: int, epoch: int = 0) -> Any:
        records = build(
            [(None, b"value", (), BASE_MS)],
            producer_id=given.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return produced(wire.ask(produce_request(topic, topic_id, records), 9))

    assert [send(sequence).base_offset for sequence in range(5)] == [0, 1, 2, 3, 4]
    assert [(answer.error_code, answer.base_offset) for answer in map(send, range(5))] == [(0, n) for n in range(5)]
    assert send(7).error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(5).base_offset == 5
    assert send(0, epoch=1).base_offset == 6
    assert send(6, epoch=0).error_code == Error.INVALID_PRODUCER_EPOCH


def test_every_producer_gets_an_id_of_its_own(wire: Wire) -> None:
    asked = new_producer_id()
    given = [wire.ask(asked, version).producer_id for version in range(6) for _ in range(3)]
    assert len(set(given)) == len(given)


def test_auto_creation_is_asked_for(wire: Wire) -> None:
    topic = new_name()
    assert metadata(wire, topic, create=False).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    metadata(wire, topic, create=True)
    while (found := metadata(wire, topic, create=False)).error_code:
        assert found.error_code in (Error.LEADER_NOT_AVAILABLE, Error.UNKNOWN_TOPIC_OR_PARTITION)
    by_id = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=None, topic_id=found.topic_id)])
    assert wire.ask(by_id, 12).topics[0].name == topic
    unknown = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=None, topic_id=bytes(range(16)))])
    assert wire.ask(unknown, 12).topics[0].error_code == Error.UNKNOWN_TOPIC_ID


def test_hazard_9_the_id_of_a_deleted_topic_is_gone(wire: Wire, topic: str) -> None:
    old = metadata(wire, topic).topic_id
    put(wire, topic, old, b"old")
    deletion = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(topic_id=old)], timeout_ms=60_000)
    assert wire.ask(deletion, 6).responses[0].error_code == Error.NONE
    creation = m.CreateTopicsRequest(
        topics=[m.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)],
        timeout_ms=60_000,
    )
    while (made := wire.ask(creation, 7).topics[0]).error_code:
        assert made.error_code == Error.TOPIC_ALREADY_EXISTS
    assert made.topic_id != old
    settle(wire, topic, 1)
    stale = fetch_request(topic, old, [fetch_partition(0)])
    assert fetched(wire.ask(stale, 17)).error_code == Error.UNKNOWN_TOPIC_ID
    put(wire, topic, made.topic_id, b"new")
    fresh = fetch_request(topic, made.topic_id, [fetch_partition(0)])
    assert values_of(fetched(wire.ask(fresh, 17)).records) == [b"new"]
