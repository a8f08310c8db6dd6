"""Batches of transactions: the first waits for the coordinator, and what comes too late opens nothing (hazard 5)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Error
from headrace.protocol.control import build_marker
from headrace.storage.verification import Verifications
from tests.broker.test_produce import Client, Slot, answer_in, client, request_of, requests_of
from tests.replica.hosts import TOPIC_ID, Host
from tests.storage.batches import batch
from tests.storage.logs import values_in

OLD, ABORTABLE, ADDS = 9, 11, 12
"""Versions of Produce: before TRANSACTION_ABORTABLE, with it, and of transaction version 2."""


def of_transaction(value: bytes, sequence: int = 0, epoch: int = 0, producer_id: int = 5) -> bytearray:
    return batch(value, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)


def send(producer: Client, content: bytearray, version: int = OLD) -> Slot:
    slot = producer.send(request_of(content, 1, transactional_id="x"), version)
    assert slot is not None
    return slot


def error_of(slot: Slot, version: int = OLD) -> Error:
    return Error.of(answer_in(slot, version).responses[0].partition_responses[0].error_code)


def end(host: Host, *, commits: bool, epoch: int = 0, version: int = 0, coordinator_epoch: int = 0) -> None:
    marker = build_marker(
        committed=commits, producer_id=5, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp_ms=0
    )
    host.partition().append_own(memoryview(marker), host.now_ms(), version)


def written(host: Host) -> list[Any]:
    return [value for _, value in values_in(host.partition().log) if value in (b"a", b"b", b"c")]


def is_hanging(host: Host) -> bool:
    return host.partition().log.producers.transaction_offset(5) is not None


@pytest.mark.parametrize("version", [OLD, ABORTABLE, ADDS])
def test_the_first_batch_waits_for_the_coordinator_and_the_next_ones_do_not(version: int) -> None:
    host, producer = client()
    first = send(producer, of_transaction(b"a"), version)
    assert first.content is None
    (asked,) = producer.verifier.asked
    assert asked["transaction"] == ("x", 5, 0)
    assert asked["partitions"] == [("t", 0)]
    assert asked["adds"] == (version >= ADDS)
    producer.verifier.answer()
    assert error_of(first, version) == Error.NONE
    assert error_of(send(producer, of_transaction(b"b", 1), version), version) == Error.NONE
    assert len(producer.verifier.asked) == 1
    assert written(host) == [b"a", b"b"]


def test_only_a_log_that_was_asked_tells_where_it_starts() -> None:
    _, producer = client()

    def told(content: bytearray, version: int, *answers: Error) -> tuple[Error, int]:
        slot = send(producer, content, version)
        for error in answers:
            producer.verifier.answer(error)
        answer = answer_in(slot, version).responses[0].partition_responses[0]
        return Error.of(answer.error_code), answer.log_start_offset

    refused = of_transaction(b"a", epoch=1)
    assert told(refused, OLD, Error.TRANSACTION_ABORTABLE) == (Error.INVALID_TXN_STATE, -1)
    assert told(refused, ADDS, Error.PRODUCER_FENCED) == (Error.INVALID_PRODUCER_EPOCH, -1)
    assert told(of_transaction(b"a", epoch=1), OLD, Error.NONE) == (Error.NONE, 0)
    assert told(of_transaction(b"a", 7, epoch=1), OLD) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    assert told(of_transaction(b"a", 1, epoch=0), OLD) == (Error.INVALID_PRODUCER_EPOCH, -1)


def test_what_comes_meanwhile_waits_behind_it_in_order_whoever_sent_it() -> None:
    host, producer = client()
    slots = [
        send(producer, of_transaction(b"a")),
        send(producer, of_transaction(b"b", 1)),
        send(producer, batch(b"c")),
    ]
    assert [slot.content for slot in slots] == [None] * 3
    assert len(producer.verifier.asked) == 1, "one question for all of them"
    producer.verifier.answer()
    assert [error_of(slot) for slot in slots] == [Error.NONE] * 3
    assert written(host) == [b"a", b"b", b"c"]


def test_after_the_end_of_a_transaction_the_next_one_is_verified_again() -> None:
    host, producer = client()
    producer.verifier.at_once = Error.NONE
    send(producer, of_transaction(b"a"))
    end(host, commits=True)
    send(producer, of_transaction(b"b", 1))
    assert len(producer.verifier.asked) == 2
    assert written(host) == [b"a", b"b"]


def test_hazard_5_a_batch_that_is_verified_while_its_transaction_is_aborted_is_refused() -> None:
    """The coordinator said yes, then decided to abort, and its marker was faster than its answer."""
    host, producer = client()
    slot = send(producer, of_transaction(b"a"))
    end(host, commits=False)
    producer.verifier.answer()
    assert error_of(slot) == Error.INVALID_TXN_STATE
    assert not is_hanging(host)
    assert written(host) == []


@pytest.mark.parametrize("is_known", [True, False])
def test_the_marker_of_a_transaction_does_not_end_the_next_one_that_is_being_verified(is_known: bool) -> None:
    """A producer of transaction version 2 may begin it as soon as the end is decided, with the epoch of its markers."""
    host, producer = client()
    if is_known:
        first = send(producer, of_transaction(b"a"), ADDS)
        producer.verifier.answer()
        assert error_of(first, ADDS) == Error.NONE
    second = send(producer, of_transaction(b"b", epoch=1), ADDS)
    end(host, commits=True, epoch=1, version=2)
    producer.verifier.answer(number=len(producer.verifier.asked) - 1)
    assert error_of(second, ADDS) == Error.NONE
    assert written(host) == [b"a", b"b"][not is_known :]
    end(host, commits=False, epoch=2, version=2)
    assert not is_hanging(host)


def test_hazard_5_it_is_refused_even_when_the_next_transaction_of_its_producer_is_being_verified() -> None:
    """With the protocol before transaction version 2 both have one epoch: a stale yes must not count for the other."""
    host, producer = client()
    first = send(producer, of_transaction(b"a"))
    end(host, commits=False)
    second = send(producer, of_transaction(b"b", 1))
    producer.verifier.answer(number=0)
    assert error_of(first) == Error.INVALID_TXN_STATE
    producer.verifier.answer(Error.TRANSACTION_ABORTABLE, number=1)
    assert error_of(second) == Error.INVALID_TXN_STATE
    assert not is_hanging(host)


def test_hazard_5_without_the_end_of_verifications_a_transaction_would_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above are worth something: take the fix away, and the transaction hangs."""
    monkeypatch.setattr(Verifications, "end", lambda self, producer_id, last_epoch=0: None)
    host, producer = client()
    slot = send(producer, of_transaction(b"a"))
    end(host, commits=False)
    producer.verifier.answer()
    assert error_of(slot) == Error.NONE
    assert is_hanging(host)


def test_hazard_5_a_batch_that_waits_behind_others_when_its_transaction_ends_is_refused() -> None:
    host, producer = client()
    producer.verifier.at_once = Error.NONE
    send(producer, of_transaction(b"a"))
    producer.verifier.at_once = None
    other = send(producer, of_transaction(b"c", producer_id=6))
    late = send(producer, of_transaction(b"b", 1))
    assert late.content is None, "its transaction is open, but it waits behind the other one"
    end(host, commits=False)
    producer.verifier.answer()
    assert error_of(other) == Error.NONE
    assert error_of(late) == Error.INVALID_TXN_STATE
    assert not is_hanging(host)


def test_hazard_5_the_epoch_of_a_marker_fences_what_comes_late_at_once() -> None:
    """Transaction version 2: the marker has the next epoch, and nobody needs to be asked."""
    host, producer = client()
    producer.verifier.at_once = Error.NONE
    send(producer, of_transaction(b"a"), ADDS)
    end(host, commits=False, epoch=1, version=2)
    assert error_of(send(producer, of_transaction(b"b", 1), ADDS), ADDS) == Error.INVALID_PRODUCER_EPOCH
    assert len(producer.verifier.asked) == 1
    assert not is_hanging(host)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (Error.TRANSACTION_ABORTABLE, OLD, Error.INVALID_TXN_STATE),
        (Error.TRANSACTION_ABORTABLE, ABORTABLE, Error.TRANSACTION_ABORTABLE),
        (Error.PRODUCER_FENCED, OLD, Error.INVALID_PRODUCER_EPOCH),
        (Error.PRODUCER_FENCED, ADDS, Error.INVALID_PRODUCER_EPOCH),
        (Error.INVALID_PRODUCER_ID_MAPPING, OLD, Error.INVALID_PRODUCER_ID_MAPPING),
        (Error.CONCURRENT_TRANSACTIONS, ADDS, Error.NOT_ENOUGH_REPLICAS),
        (Error.COORDINATOR_LOAD_IN_PROGRESS, OLD, Error.NOT_ENOUGH_REPLICAS),
        (Error.COORDINATOR_NOT_AVAILABLE, OLD, Error.NOT_ENOUGH_REPLICAS),
        (Error.NOT_COORDINATOR, OLD, Error.NOT_ENOUGH_REPLICAS),
        (Error.NETWORK_EXCEPTION, OLD, Error.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_the_coordinator_says_is_told_in_the_producers_words(said: Error, version: int, told: Error) -> None:
    host, producer = client()
    producer.verifier.at_once = said
    assert error_of(send(producer, of_transaction(b"a"), version), version) == told
    assert host.partition().log_end_offset == 0


def test_a_later_batch_does_not_go_first_when_the_one_before_is_to_be_tried_again() -> None:
    host, producer = client()
    slots = [send(producer, of_transaction(b"a")), send(producer, of_transaction(b"b", 1))]
    producer.verifier.answer(Error.NOT_COORDINATOR)
    assert [error_of(slot) for slot in slots] == [Error.NOT_ENOUGH_REPLICAS] * 2
    assert error_of(send(producer, of_transaction(b"c", 2))) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.verifier.at_once = Error.NONE
    for sequence, value in enumerate((b"a", b"b", b"c")):
        assert error_of(send(producer, of_transaction(value, sequence))) == Error.NONE
    assert written(host) == [b"a", b"b", b"c"]


def test_the_first_batch_of_an_epoch_has_sequence_0_in_transaction_version_2() -> None:
    host, producer = client()
    assert error_of(send(producer, of_transaction(b"b", 1), ADDS), ADDS) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not producer.verifier.asked
    assert host.partition().log_end_offset == 0


@pytest.mark.parametrize("version", [OLD, ABORTABLE, ADDS])
def test_every_batch_of_a_transaction_needs_its_transactional_id(version: int) -> None:
    host, producer = client()
    producer.verifier.at_once = Error.NONE
    unnamed = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer.one(of_transaction(b"a"), 1, version).error_code == unnamed
    assert error_of(send(producer, of_transaction(b"a"), version), version) == Error.NONE
    assert producer.one(of_transaction(b"b", 1), 1, version).error_code == unnamed
    without_producer = batch(b"c", transactional=True)
    assert producer.one(without_producer, 1, version).error_code == unnamed
    assert producer.one(without_producer, 1, version, transactional_id="x").error_code == Error.INVALID_RECORD
    assert producer.one(without_producer[:60], 1, version).error_code == Error.INVALID_RECORD
    assert written(host) == [b"a"]


def test_without_verification_nobody_is_asked_except_to_add() -> None:
    host, producer = client()
    producer.verifier.is_enabled = False
    assert error_of(send(producer, of_transaction(b"a"))) == Error.NONE
    assert not producer.verifier.asked
    end(host, commits=True, epoch=1, version=2)
    slot = send(producer, of_transaction(b"b", epoch=1), ADDS)
    assert len(producer.verifier.asked) == 1
    producer.verifier.answer()
    assert error_of(slot, ADDS) == Error.NONE


def test_batches_of_two_producers_in_one_request_are_refused() -> None:
    _, producer = client(partitions=2)
    parts: list[Any] = [
        ("t", TOPIC_ID, 0, of_transaction(b"a")),
        ("t", TOPIC_ID, 1, of_transaction(b"b", producer_id=6)),
    ]
    response = producer.ask(requests_of(parts, transactional_id="x"), OLD)
    errors = [answer.error_code for topic in response.responses for answer in topic.partition_responses]
    assert errors == [Error.INVALID_PRODUCER_ID_MAPPING] * 2


def test_many_partitions_of_one_request_are_one_question() -> None:
    _, producer = client(partitions=2)
    producer.verifier.at_once = Error.NONE
    parts: list[Any] = [("t", TOPIC_ID, index, of_transaction(b"a")) for index in (0, 1)]
    response = producer.ask(requests_of(parts, transactional_id="x"), ADDS)
    assert [answer.error_code for topic in response.responses for answer in topic.partition_responses] == [0, 0]
    (asked,) = producer.verifier.asked
    assert asked["partitions"] == [("t", 0), ("t", 1)]


def test_failed_verifications_are_remembered_within_bounds() -> None:
    host, producer = client()
    producer.verifier.at_once = Error.NOT_COORDINATOR
    for producer_id in range(2500):
        send(producer, of_transaction(b"a", producer_id=producer_id))
    assert len(host.partition().log.producers.verifications) <= 1001
    producer.verifier.at_once = Error.INVALID_PRODUCER_ID_MAPPING
    before = len(host.partition().log.producers.verifications)
    for producer_id in range(3000, 3500):
        send(producer, of_transaction(b"a", producer_id=producer_id))
    assert len(host.partition().log.producers.verifications) <= before


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_nobody_writes_to_the_topics_of_coordinators(topic: str) -> None:
    host, producer = client()
    host.create(topic, topic_id=bytes(15) + b"s")
    answer = producer.one(batch(b"a"), 1, OLD, topic=topic)
    assert answer.error_code == Error.INVALID_TOPIC_EXCEPTION
