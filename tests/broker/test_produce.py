"""Produce as a client sees it: bytes of a request go in, bytes of a reply come out."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headrace.broker.produce import Produce
from headrace.errors import Error
from headrace.net.budget import Budget
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.apis import find_api
from headrace.protocol.frame import Request, read_request, read_response, write_request, write_response
from headrace.testing.disk import FaultyDisk
from tests.replica.hosts import START_MS, TOPIC_ID, Host, change
from tests.storage.batches import batch
from tests.storage.logs import values_in

VERSIONS = range(3, 14)
NO_ID = bytes(16)


class Slot:
    def __init__(self) -> None:
        self.content: bytes | None = None

    def fill(self, buffers: list[Any]) -> None:
        assert self.content is None, "a request has one reply"
        self.content = b"".join(buffers)


class Listener:
    name = "PLAINTEXT"

    def __init__(self) -> None:
        self.budget = Budget(1 << 20)


class Coordinator:
    """Is asked for transactions, and answers when a test says so; or at once, where `at_once` is an error."""

    def __init__(self) -> None:
        self.is_enabled = True
        self.at_once: Error | None = None
        self.asked: list[dict[str, Any]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Any,
        *,
        adds: bool,
        answered: Any,
    ) -> None:
        self.asked.append(
            {
                "transaction": (transactional_id, producer_id, producer_epoch),
                "partitions": list(partitions),
                "adds": adds,
                "answered": answered,
            }
        )
        if self.at_once is not None:
            self.answer(self.at_once)

    def answer(self, error: Error = Error.NONE, number: int = -1) -> None:
        asked = self.asked[number]
        asked["answered"](dict.fromkeys(asked["partitions"], error))


class Client:
    """Speaks to the handler as the router does. `connection` is what the handler sees."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.verifier = Coordinator()
        self.produce = Produce(host.replicas, host.workers, self.verifier)
        self.listener = Listener()
        self.slots: list[Slot] = []
        self.is_closed = False

    def reserve(self) -> Slot:
        self.slots.append(Slot())
        return self.slots[-1]

    def close(self) -> None:
        self.is_closed = True

    def send(self, body: m.ProduceRequest, version: int = 12) -> Slot | None:
        """Returns where the reply is, or will be; None when there will be none."""
        frame = bytearray(b"".join(write_request(body, version, 77, "test")))
        request = read_request(memoryview(frame)[4:])
        count = len(self.slots)
        reply = self.produce.handle(cast("Connection", self), cast("Request", request))
        frame[:] = bytes(len(frame))  # the buffer is used again
        if reply is not None:
            slot = self.reserve()
            slot.fill(write_response(reply, version, 77))
            return slot
        return self.slots[-1] if len(self.slots) > count else None

    def ask(self, body: m.ProduceRequest, version: int = 12) -> m.ProduceResponse:
        slot = self.send(body, version)
        assert slot is not None
        return answer_in(slot, version)

    def one(self, content: bytes | bytearray | None, acks: int = 1, version: int = 12, **more: Any) -> Any:
        """The part of the reply for the one partition."""
        return self.ask(request_of(content, acks, **more), version).responses[0].partition_responses[0]


def answer_in(slot: Slot, version: int = 12) -> m.ProduceResponse:
    assert slot.content is not None, "there is no reply yet"
    api = find_api(0)
    assert api is not None
    correlation_id, body = read_response(api, version, slot.content[4:])
    assert correlation_id == 77
    assert isinstance(body, m.ProduceResponse)
    return body


def request_of(
    content: bytes | bytearray | None,
    acks: int = 1,
    *,
    topic: str = "t",
    topic_id: bytes = TOPIC_ID,
    index: int = 0,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> m.ProduceRequest:
    return requests_of([(topic, topic_id, index, content)], acks, timeout_ms, transactional_id)


def requests_of(
    parts: list[tuple[str, bytes, int, bytes | bytearray | None]],
    acks: int = 1,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> m.ProduceRequest:
    return m.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[
                    m.ProduceRequest.PartitionProduceData(
                        index=index, records=None if content is None else memoryview(content)
                    )
                ],
            )
            for name, topic_id, index, content in parts
        ],
    )


def client(**settings: Any) -> tuple[Host, Client]:
    host = Host()
    host.create(**settings)
    return host, Client(host)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_appends_and_tells_where(version: int) -> None:
    host, producer = client()
    assert producer.one(batch(b"a"), version=version).base_offset == 0
    answer = producer.one(batch(b"b", b"c"), version=version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (Error.NONE, 1, -1)
    if version >= 5:
        assert answer.log_start_offset == 0
    assert values_in(host.partition().log) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_waits_with_acks_all(version: int) -> None:
    host, producer = client()
    slot = producer.send(request_of(batch(b"a"), -1), version)
    assert slot is not None
    assert slot.content is None
    host.drain()
    answer = answer_in(slot, version).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (Error.NONE, 0)


def test_a_reply_names_the_topic_as_it_was_asked_for() -> None:
    _, producer = client()
    by_name = producer.ask(request_of(batch(b"a")), 12).responses[0]
    by_id = producer.ask(request_of(batch(b"a")), 13).responses[0]
    assert by_name.name == "t"
    assert by_id.topic_id == TOPIC_ID


def test_replies_that_wait_are_each_their_own() -> None:
    host, producer = client()
    slots = [producer.send(request_of(batch(b"%d" % number), -1)) for number in range(5)]
    now = producer.one(batch(b"at once"))
    host.drain()
    offsets = [answer_in(slot).responses[0].partition_responses[0].base_offset for slot in slots if slot is not None]
    assert (offsets, now.base_offset) == ([0, 1, 2, 3, 4], 5)


def test_log_append_time_is_told() -> None:
    host, producer = client(message_timestamp_type="LogAppendTime")
    assert producer.one(batch(b"a")).log_append_time_ms == host.now_ms()


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_other_acks_are_refused(acks: int) -> None:
    host, producer = client()
    assert producer.one(batch(b"a"), acks).error_code == Error.INVALID_REQUIRED_ACKS
    assert host.partition().log_end_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_wrong_with_a_batch_is_told_and_nothing_is_appended(acks: int) -> None:
    host, producer = client(max_message_bytes="300", segment_bytes="1048576")
    producer.send(request_of(batch(b"before", producer_id=5, producer_epoch=1, base_sequence=0), acks))
    host.drain()
    host.partition().log.delete_before(1)
    damaged = batch(b"damaged")
    damaged[-1] ^= 1
    # Kafka tells where the log starts when the log has refused, and not before that or when the bytes are no batch.
    wrong: list[tuple[bytes | bytearray | None, Error, int]] = [
        (None, Error.INVALID_RECORD, -1),
        (b"", Error.INVALID_RECORD, -1),
        (batch(b"a") + batch(b"b"), Error.INVALID_RECORD, -1),
        (batch(b"a")[:-1], Error.INVALID_RECORD, -1),
        (batch(b"a")[:40], Error.INVALID_RECORD, -1),
        (damaged, Error.CORRUPT_MESSAGE, -1),
        (batch(b"x" * 400), Error.MESSAGE_TOO_LARGE, -1),
        (batch(b"a", timestamps=[START_MS + 10**9]), Error.INVALID_TIMESTAMP, 1),
        (batch(b"a", producer_id=5, producer_epoch=1, base_sequence=-1), Error.INVALID_RECORD, 1),
        (batch(b"a", producer_id=5, producer_epoch=1, base_sequence=7), Error.OUT_OF_ORDER_SEQUENCE_NUMBER, 1),
        (batch(b"a", producer_id=5, producer_epoch=0, base_sequence=1), Error.INVALID_PRODUCER_EPOCH, 1),
        (batch(b"a", control=True), Error.INVALID_RECORD, 1),
    ]
    for content, error, log_start_offset in wrong:
        answer = producer.one(content, acks)
        assert (Error(answer.error_code), answer.base_offset, answer.log_start_offset) == (error, -1, log_start_offset)
        assert answer.error_message
    assert host.partition().log_end_offset == 1
    assert producer.one(batch(b"fine")).error_message is None


def test_a_topic_or_partition_that_is_not_there_is_told() -> None:
    _, producer = client()
    assert producer.one(batch(b"a"), topic="other").error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.one(batch(b"a"), index=9).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.one(batch(b"a"), version=13, topic_id=b"x" * 16).error_code == Error.UNKNOWN_TOPIC_ID


def test_one_partition_that_is_refused_leaves_the_others() -> None:
    host = Host()
    host.create("t", 2)
    producer = Client(host)
    parts: list[tuple[str, bytes, int, bytes | bytearray | None]] = [
        ("t", TOPIC_ID, 0, batch(b"a")),
        ("other", NO_ID, 0, batch(b"b")),
        ("t", TOPIC_ID, 1, batch(b"c")),
    ]
    slot = producer.send(requests_of(parts, -1))
    assert slot is not None
    assert slot.content is None
    host.drain()
    codes = [topic.partition_responses[0].error_code for topic in answer_in(slot).responses]
    assert codes == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NONE]


@pytest.mark.parametrize("version", VERSIONS)
def test_who_asks_a_deposed_leader_is_told_the_new_one(version: int) -> None:
    host, producer = client()
    host.apply(
        m.RegisterBrokerRecord(
            broker_id=2,
            broker_epoch=5,
            rack="r",
            end_points=[
                m.RegisterBrokerRecord.BrokerEndpoint(name="OTHER", host="other", port=1),
                m.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="there", port=9093),
            ],
        ),
        change(replicas=[1, 2], isr=[2], leader=2),
    )
    reply = producer.ask(request_of(batch(b"a")), version)
    answer = reply.responses[0].partition_responses[0]
    assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert answer.current_leader is not None
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
        (endpoint,) = reply.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (2, "there", 9093, "r")


def test_acks_0_gets_no_reply_and_on_an_error_the_connection_closes() -> None:
    host, producer = client()
    assert producer.send(request_of(batch(b"a"), 0)) is None
    assert host.partition().log_end_offset == 1
    assert not producer.is_closed
    assert producer.send(request_of(batch(b"a"), 0, topic="other")) is None
    assert producer.is_closed
    assert not producer.slots


def test_what_takes_too_long_is_answered_and_counts_later_all_the_same() -> None:
    host, producer = client()
    slot = producer.send(request_of(batch(b"a"), -1, timeout_ms=1500))
    assert slot is not None
    host.loop.pass_ms(1499)
    assert slot.content is None
    host.loop.pass_ms(1)
    answer = answer_in(slot).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (Error.REQUEST_TIMED_OUT, 0)
    host.drain()
    assert host.partition().high_watermark == 1
    assert producer.one(batch(b"b")).error_code == Error.NONE


@pytest.mark.parametrize("timeout_ms", [0, -1, 1, 999])
def test_a_time_out_below_what_a_sync_takes_waits_for_the_disk_all_the_same(timeout_ms: int) -> None:
    host, producer = client()
    slow, quick = (producer.send(request_of(batch(b"a"), -1, timeout_ms=timeout_ms)) for _ in range(2))
    host.loop.pass_ms(999)
    host.drain()
    assert [answer_in(slot).responses[0].partition_responses[0].error_code for slot in (slow, quick) if slot] == [0, 0]
    late = producer.send(request_of(batch(b"a"), -1, timeout_ms=timeout_ms))
    host.loop.pass_ms(1000)
    assert late is not None
    assert answer_in(late).responses[0].partition_responses[0].error_code == Error.REQUEST_TIMED_OUT


def test_only_the_partition_that_takes_too_long_timed_out() -> None:
    disks = [FaultyDisk(root="/disk0"), FaultyDisk(root="/disk1")]
    host = Host(disks)
    host.create("slow", topic_id=b"s" * 16, flush_messages="1")
    host.create("t", min_insync_replicas="2")
    producer = Client(host)
    parts: list[tuple[str, bytes, int, bytes | bytearray | None]] = [
        ("slow", b"s" * 16, 0, batch(b"a")),
        ("t", TOPIC_ID, 0, batch(b"b")),
    ]
    slot = producer.send(requests_of(parts, 1))
    assert slot is not None
    host.loop.pass_ms(1000)
    codes = [topic.partition_responses[0].error_code for topic in answer_in(slot).responses]
    assert codes == [Error.REQUEST_TIMED_OUT, Error.NONE]


def test_a_retry_of_an_idempotent_producer_is_answered_like_the_original() -> None:
    host, producer = client()
    content = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    producer.one(batch(b"before"))
    first = producer.send(request_of(content, -1))
    again = producer.send(request_of(content, -1))
    host.drain()
    late = producer.one(content, -1)
    assert first is not None
    assert again is not None
    offsets = [answer_in(slot).responses[0].partition_responses[0].base_offset for slot in (first, again)]
    assert (*offsets, late.base_offset) == (1, 1, 1)
    assert host.partition().log_end_offset == 3
    ahead = producer.one(batch(b"c", producer_id=5, producer_epoch=0, base_sequence=9))
    assert ahead.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_of_a_transaction_is_refused_because_nobody_could_end_it() -> None:
    host, producer = client()
    producer.verifier.at_once = Error.INVALID_PRODUCER_ID_MAPPING
    content = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    answer = producer.one(content, -1, transactional_id="x")
    assert answer.error_code == Error.INVALID_PRODUCER_ID_MAPPING
    assert host.partition().log_end_offset == 0


def test_acks_1_with_flush_messages_1_waits_for_the_disk() -> None:
    host, producer = client(flush_messages="1")
    slot = producer.send(request_of(batch(b"a")))
    assert slot is not None
    assert slot.content is None
    host.drain()
    assert answer_in(slot).responses[0].partition_responses[0].error_code == Error.NONE


def test_hazard_8_a_failed_sync_is_told_to_all_that_wait() -> None:
    disk = FaultyDisk(root="/disk0")
    host = Host([disk])
    host.create()
    producer = Client(host)
    slots = [producer.send(request_of(batch(b"a"), -1)) for _ in range(3)]
    disk.faults.fail_sync_at = disk.syncs + 1
    host.drain()
    for slot in slots:
        assert slot is not None
        answer = answer_in(slot).responses[0].partition_responses[0]
        assert answer.error_code == Error.KAFKA_STORAGE_ERROR
    assert producer.one(batch(b"b")).error_code == Error.KAFKA_STORAGE_ERROR


def test_hazard_15_a_full_disk_refuses_and_recovers() -> None:
    disk = FaultyDisk(root="/disk0")
    host = Host([disk])
    host.create()
    producer = Client(host)
    disk.faults.capacity_bytes = disk.platter.used_bytes() + 5
    answer = producer.one(batch(b"a"))
    assert (answer.error_code, answer.base_offset) == (Error.KAFKA_STORAGE_ERROR, -1)
    disk.faults.capacity_bytes = None
    answer = producer.one(batch(b"a"))
    assert (answer.error_code, answer.error_message, answer.base_offset) == (Error.NONE, None, 0)
