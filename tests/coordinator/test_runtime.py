"""The runtime, with a shard that counts: what waits for what, and what is left after a failure."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator import hosted
from headrace.coordinator.runtime import ASKED_AT_ONCE
from headrace.coordinator.shard import ProducerStamp
from headrace.errors import Error, Refused
from headrace.metadata.image import Image
from headrace.protocol import messages as m
from headrace.protocol.batch import scan
from headrace.protocol.batch_builder import build_rows
from headrace.protocol.control import build_marker
from headrace.protocol.kernel_types import Row
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import SteppedWorkers
from tests.coordinator.toy import TOPIC, Toy, Toys
from tests.replica.hosts import TOPIC_ID, change


def marker(stamp: ProducerStamp, *, is_commit: bool) -> bytearray:
    return build_marker(
        committed=is_commit,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        coordinator_epoch=0,
        timestamp_ms=1,
    )


def disk_of(toys: Toys) -> FaultyDisk:
    disk = toys.host.disks[0]
    assert isinstance(disk, FaultyDisk)
    return disk


# --- what waits for what ----------------------------------------------------------------------------------------------


def test_a_reply_waits_until_its_records_are_committed_and_the_next_request_sees_them_before() -> None:
    toys = Toys()
    first, second = toys.add("a"), toys.add("a")
    assert toys.shard.counts == {"a": 2}
    toys.host.run_soon()  # appended, and the flush is under way
    assert not first.is_there
    toys.host.drain()
    assert (str(first.message), str(second.message)) == ("a=1", "a=2")


@pytest.mark.parametrize("count", [ASKED_AT_ONCE, ASKED_AT_ONCE + 1])
def test_a_request_about_very_many_keys_lets_others_be_served_in_between(count: int) -> None:
    toys, asked = Toys(), 0

    def asks() -> Iterator[None]:
        nonlocal asked
        for _ in range(count):
            toys.get("a")
            asked += 1
            yield

    toys.runtime.ask_many(asks(), count)
    assert asked == (count if count <= ASKED_AT_ONCE else 0), "not in the round in which the request came"
    toys.host.drain()
    assert asked == count


def test_what_one_round_of_the_loop_decides_is_one_batch() -> None:
    toys = Toys()
    for _ in range(5):
        toys.add("a")
    toys.host.drain()
    partition = toys.host.partition(TOPIC)
    assert partition.log_end_offset == 5
    data = partition.log.read(0, 1 << 20, 5).take()
    assert int.from_bytes(data[8:12]) + 12 == len(data), "one batch"


def test_a_read_waits_for_what_it_read() -> None:
    toys = Toys()
    toys.add("a")
    read = toys.get("a")
    assert not read.is_there
    toys.host.drain()
    assert str(read.message) == "a=1"
    assert str(toys.get("a").message) == "a=1", "and is answered at once when nothing is on its way"


def test_a_refusal_waits_for_what_it_read_too() -> None:
    toys = Toys()
    toys.add("a")
    refused = toys.ask(lambda shard, reply: shard.refuse(reply))
    assert not refused.is_there
    toys.host.drain()
    assert (refused.error, refused.text) == (Error.UNKNOWN_MEMBER_ID, "no")


def test_effects_come_after_the_commit_and_timers_ring_at_their_time() -> None:
    toys = Toys()
    toys.ask(lambda shard, reply: shard.ring("bell", toys.host.now_ms() + 1000))
    toys.host.loop.pass_ms(999)
    toys.host.drain()
    assert toys.rung == []
    toys.host.loop.pass_ms(1)
    assert toys.shard.counts == {"bell": 0}
    assert toys.rung == [], "nothing is brought about before it is committed"
    toys.host.drain()
    assert toys.rung == ["bell"]


def test_a_timer_that_is_put_off_rings_once_at_its_last_time() -> None:
    toys = Toys()
    for _ in range(3):
        toys.ask(lambda shard, reply: shard.ring("bell", toys.host.now_ms() + 1000))
        toys.host.loop.pass_ms(600)
    toys.host.drain()
    assert toys.rung == []
    toys.host.loop.pass_ms(400)
    toys.host.drain()
    assert toys.rung == ["bell"]


def test_whoever_waits_too_long_is_told_to_ask_again_and_what_was_decided_stays() -> None:
    toys = Toys(commit_timeout_ms=5000)
    slow = toys.add("a")
    toys.host.run_soon()
    toys.host.loop.pass_ms(5000)
    assert slow.error is Error.COORDINATOR_NOT_AVAILABLE
    toys.host.drain()
    assert str(toys.get("a").message) == "a=1"


def test_what_does_not_fit_into_a_batch_is_refused_before_it_changes_anything() -> None:
    toys = Toys()
    large = toys.add("a", size=2 << 20)
    assert large.error is Error.UNKNOWN_SERVER_ERROR
    assert toys.shard.counts == {}
    toys.add("b")
    toys.host.drain()
    assert toys.shard.counts == {"b": 1}


# --- what comes again -------------------------------------------------------------------------------------------------


def batches_of(toys: Toys) -> list[int]:
    """How many records each batch of the log has."""
    partition = toys.host.partition(TOPIC)
    data = partition.log.read(0, 1 << 24, partition.log_end_offset).take()
    return [batch.record_count for batch in scan(memoryview(data))]


def test_what_comes_again_is_one_batch_with_the_rest_of_the_round_and_told_when_that_is_committed() -> None:
    toys = Toys()
    answers = [toys.add("a"), toys.add_again("a"), toys.add_again("b"), toys.add("a")]
    toys.host.run_soon()
    assert not any(answer.is_there for answer in answers)
    toys.host.drain()
    assert [str(answer.message) for answer in answers] == ["a=1", "a=2", "b=1", "a=3"]
    assert batches_of(toys) == [4]
    after = toys.restart()
    assert (after.shard.counts, after.shard.offsets) == (toys.shard.counts, toys.shard.offsets)


def test_whoever_asks_next_sees_what_came_again_before_it() -> None:
    toys = Toys()
    toys.add_again("a")
    read = toys.get("a")
    toys.add_again("a")
    toys.ask(lambda shard, reply: shard.ring("bell", toys.host.now_ms()))
    assert toys.shard.counts == {"a": 2}
    toys.add_again("a")
    toys.host.create("other", topic_id=b"o" * 16)
    assert toys.shard.counts["a"] == 3, "before the shard hears of a change of the cluster too"
    toys.host.drain()
    assert str(read.message) == "a=1"


def test_what_comes_again_is_before_a_marker_and_in_no_transaction() -> None:
    toys, stamp = Toys(), ProducerStamp(7, 0)
    toys.add("t", stamp=stamp)
    toys.add_again("a")
    toys.runtime.append_marker(0, marker(stamp, is_commit=False), stamp, is_commit=False)
    toys.add_again("b")
    toys.host.drain()
    assert batches_of(toys) == [1, 1, 1, 1]
    assert toys.shard.counts == {"a": 1, "b": 1}
    after = toys.restart()
    assert (after.shard.counts, after.shard.offsets) == (toys.shard.counts, toys.shard.offsets)


def test_a_refusal_of_what_comes_again_waits_too_and_leaves_no_empty_batch() -> None:
    toys = Toys()
    first, refused = toys.add("a"), toys.add_again("no")
    toys.host.run_soon()
    assert not refused.is_there
    toys.host.drain()
    assert (str(first.message), str(refused.message)) == ("a=1", "no")
    refused = toys.add_again("no")
    toys.host.drain()
    assert str(refused.message) == "no"
    assert batches_of(toys) == [1]


def test_what_is_refused_takes_no_room_in_a_batch_and_begins_none() -> None:
    toys = Toys()
    answers = [toys.add_again("no", size=400_000) for _ in range(3)] + [toys.add_again("a")]
    toys.host.drain()
    assert [str(answer.message) for answer in answers] == ["no", "no", "no", "a=1"]
    assert batches_of(toys) == [1]


def test_a_batch_is_as_full_as_what_is_in_it_whatever_was_refused_behind_it() -> None:
    toys = Toys()
    toys.add_again("a", size=900_000)
    toys.add_again("no", size=200_000)
    toys.get("a")
    toys.add_again("a", size=800_000)
    toys.host.drain()
    assert batches_of(toys) == [1, 1], "both are more than max.message.bytes"


def test_more_than_fits_into_a_batch_becomes_several() -> None:
    toys = Toys()
    answers = [toys.add_again("a", size=400_000) for _ in range(5)]
    toys.host.drain()
    assert [str(answer.message) for answer in answers] == [f"a={count}" for count in range(1, 6)]
    assert batches_of(toys) == [2, 2, 1]


def test_should_what_comes_again_fail_all_of_the_round_is_refused_and_the_shard_loaded_anew() -> None:
    toys = Toys()
    toys.add("a")
    toys.host.drain()
    answers = [toys.add_again("a"), toys.add_again("odd"), toys.add_again("a")]
    read = toys.get("a")
    assert [answer.error for answer in answers] == [Error.UNKNOWN_SERVER_ERROR] * 3
    assert read.error is Error.COORDINATOR_NOT_AVAILABLE
    toys.host.loop.pass_ms(1000)
    toys.host.drain()
    assert str(toys.get("a").message) == "a=1"


def test_an_event_of_a_shard_that_failed_before_it_does_not_come_about() -> None:
    toys = Toys()
    toys.ask(lambda shard, reply: shard.ring("bell", toys.host.now_ms() + 10))
    toys.host.drain()
    failed = toys.add_again("odd")
    toys.host.loop.pass_ms(10)
    assert failed.error is Error.UNKNOWN_SERVER_ERROR
    toys.host.loop.pass_ms(1000)
    toys.host.drain()
    toys.add("a")
    toys.host.drain()
    assert toys.rung == [], "what it would have written was never written"
    assert toys.restart().shard.counts == {"a": 1}


def test_a_shard_that_can_not_be_written_leaves_the_others_of_the_round_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    toys = Toys(partitions=2)
    broken, sound = (next(name for name in "abcdefgh" if toys.runtime.index_of(name) == index) for index in (0, 1))
    faults = [ValueError("odd")]

    def build(rows: list[Row]) -> memoryview:
        if faults:
            raise faults.pop()
        return build_rows(rows)

    monkeypatch.setattr(hosted, "build_rows", build)
    first, second = toys.add_again(broken), toys.add_again(sound)
    toys.host.drain()
    assert first.error is Error.UNKNOWN_SERVER_ERROR
    assert str(second.message) == f"{sound}=1"
    toys.host.loop.pass_ms(1000)
    toys.host.drain()
    again = toys.add_again(broken)
    toys.host.drain()
    assert str(again.message) == f"{broken}=1", "loaded anew, from a log without it"


def test_what_comes_again_is_refused_where_another_node_is_elected_or_the_disk_is_full() -> None:
    toys = Toys()
    waiting = toys.add_again("a")
    toys.host.apply(change(leader=2, isr=[2], replicas=[1, 2]))
    assert waiting.error is Error.NOT_COORDINATOR
    toys = Toys()
    disk_of(toys).faults.capacity_bytes = 0
    waiting = toys.add_again("a")
    toys.host.run_soon()
    assert waiting.error is Error.NOT_COORDINATOR


# --- where a shard is -------------------------------------------------------------------------------------------------


def test_another_shard_is_asked_where_its_partition_is() -> None:
    toys = Toys()
    toys.host.apply(change(leader=2, isr=[2], replicas=[1, 2]))
    toys.host.drain()
    assert toys.get("a").error is Error.NOT_COORDINATOR


def test_who_waits_when_another_node_is_elected_looks_for_it_there(caplog: pytest.LogCaptureFixture) -> None:
    toys = Toys()
    held = toys.ask(lambda shard, reply: shard.hold(reply))
    waiting = toys.add("a")
    toys.host.run_soon()
    toys.host.apply(change(leader=2, isr=[2], replicas=[1, 2]))
    assert str(held.message) == "gone", "the shard says it to those whom it keeps"
    assert waiting.error is Error.NOT_COORDINATOR
    toys.host.drain()
    assert caplog.messages == [], "nothing is wrong: a node that stops does so each time"


def test_a_leader_that_stays_in_a_new_epoch_keeps_its_shard() -> None:
    toys = Toys()
    toys.add("a")
    toys.host.apply(change(leader=1))
    toys.host.drain()
    assert len(toys.shards) == 1
    assert str(toys.get("a").message) == "a=1"


def test_shards_end_with_their_topic() -> None:
    toys = Toys()
    waiting = toys.add("a")
    toys.host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    toys.host.drain()
    assert waiting.error is Error.NOT_COORDINATOR
    assert toys.get("a").error is Error.NOT_COORDINATOR
    assert toys.runtime.index_of("a") == -1


def test_a_shard_hears_of_changes_of_the_cluster_once_it_is_loaded() -> None:
    toys = Toys()
    toys.host.create("other", topic_id=b"o" * 16)
    assert toys.shard.images == 1


# --- loading ----------------------------------------------------------------------------------------------------------


def test_a_shard_that_is_loaded_says_so_and_then_knows_what_it_knew() -> None:
    toys = Toys()
    for name in "aab":
        toys.add(name)
    toys.host.drain()
    after = toys.restart()
    assert after.shard.is_loaded
    assert after.shard.counts == {"a": 2, "b": 1}
    assert after.shard.offsets == toys.shard.offsets


def test_while_it_is_loaded_nobody_is_served() -> None:
    toys = Toys()
    toys.add("a")
    toys.host.drain()
    loads = SteppedWorkers()
    after = Toys(toys.host.restart(), loads=loads)
    after.host.drain()
    assert after.get("a").error is Error.COORDINATOR_LOAD_IN_PROGRESS
    loads.step()
    after.host.drain()
    assert str(after.get("a").message) == "a=1"


def test_what_is_loaded_and_not_committed_yet_is_told_when_it_is_committed() -> None:
    loads = SteppedWorkers()
    toys, stamp = Toys(loads=loads), ProducerStamp(7, 0)
    toys.add("a")
    toys.host.partition(TOPIC).append_own(
        memoryview(marker(stamp, is_commit=True)), 1
    )  # so that the shard is loaded anew
    toys.host.run_soon()
    toys.host.loop.pass_ms(1000)
    loads.step()
    toys.host.run_soon()  # loaded, while the flush is under way
    assert len(toys.shards) == 2
    read = toys.get("a")
    assert not read.is_there
    toys.host.drain()
    assert str(read.message) == "a=1"


def test_a_large_log_is_loaded_in_many_chunks() -> None:
    toys = Toys()
    for number in range(300):
        toys.add(f"n{number % 7}", size=100)
        toys.host.drain()
    host = toys.host.restart()
    after = Toys(host, load_bytes=1000)
    assert after.shard.counts == toys.shard.counts


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_a_transaction_wrote_counts_when_its_marker_says_so_live_and_loaded(is_commit: bool) -> None:
    toys, stamp = Toys(), ProducerStamp(7, 0)
    toys.add("a")
    toys.add("a", stamp=stamp)
    toys.runtime.append_marker(0, marker(stamp, is_commit=is_commit), stamp, is_commit=is_commit)
    toys.add("b")
    toys.host.drain()
    assert toys.shard.counts == {"a": 2 if is_commit else 1, "b": 1}
    after = toys.restart()
    assert after.shard.counts == toys.shard.counts
    assert after.shard.pending == {}
    assert after.shard.offsets == toys.shard.offsets, "what is replayed live has the offsets of the log"


def test_an_open_transaction_is_pending_after_a_load() -> None:
    toys, stamp = Toys(), ProducerStamp(7, 0)
    toys.add("a", stamp=stamp)
    toys.host.drain()
    assert toys.restart().shard.pending == {7: {"a": 1}}


def test_an_end_of_a_transaction_that_comes_while_a_shard_settles_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    toys, stamp = Toys(), ProducerStamp(7, 0)
    toys.add("a", stamp=stamp)
    toys.host.drain()
    host = toys.host.restart()

    def settle(self: Toy, image: Image, now_ms: int) -> Iterator[None]:
        assert self.pending == {7: {"a": 1}}
        yield
        host.partition(TOPIC).append_own(memoryview(marker(stamp, is_commit=True)), 1)
        yield

    monkeypatch.setattr(Toy, "settle", settle)
    after = Toys(host)
    assert after.shard.counts == {"a": 1}
    assert not after.get("a").error


def test_what_rang_for_a_shard_that_could_not_be_loaded_does_not_ring_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toys = Toys()
    toys.add("a")
    toys.host.drain()
    host = toys.host.restart()

    def settle(self: Toy, image: Image, now_ms: int) -> Iterator[None]:
        if len(after.shards) == 1:
            self.timers.at("bell", now_ms + 10, lambda now_ms: self._rung("bell"))
            host.loop.pass_ms(20)  # as a slow load does
            yield
            raise ValueError("a group that is not right")
        yield

    monkeypatch.setattr(Toy, "settle", settle)
    after = Toys(host, loads=(loads := SteppedWorkers()))
    for _ in range(10):
        while len(loads):
            loads.step()
        host.loop.pass_ms(500)
        host.drain()
    assert len(after.shards) == 2
    assert after.shard.counts == {"a": 1}


# --- failures ---------------------------------------------------------------------------------------------------------


def test_hazard_13_after_a_full_disk_the_state_is_that_of_the_log_and_who_waited_asks_again() -> None:
    toys = Toys()
    toys.add("a")
    toys.host.drain()
    disk = disk_of(toys)
    toys.host.partition(TOPIC).log.trim()
    disk.faults.capacity_bytes = 0
    lost = toys.add("a")
    held = toys.ask(lambda shard, reply: shard.hold(reply))
    assert toys.shard.counts == {"a": 2}
    toys.host.run_soon()
    assert lost.error is Error.NOT_COORDINATOR
    assert str(held.message) == "gone"
    assert toys.get("a").error is Error.COORDINATOR_NOT_AVAILABLE
    disk.faults.capacity_bytes = None
    toys.host.loop.pass_ms(1000)
    toys.host.drain()
    assert str(toys.get("a").message) == "a=1"


def test_loading_after_failures_is_tried_more_and_more_rarely() -> None:
    toys = Toys()
    disk_of(toys).faults.capacity_bytes = 0
    for _ in range(3000):
        toys.add("a")
        toys.host.loop.pass_ms(20)
        toys.host.drain()
    assert 5 < len(toys.shards) < 20


def test_somebody_else_who_writes_to_the_log_is_noticed() -> None:
    toys, stamp = Toys(), ProducerStamp(7, 0)
    toys.host.partition(TOPIC).append_own(memoryview(marker(stamp, is_commit=True)), 1)
    lost = toys.add("a")
    toys.host.drain()
    assert lost.error is Error.UNKNOWN_SERVER_ERROR
    toys.host.loop.pass_ms(1000)
    toys.host.drain()
    assert str(toys.get("a").message) == "a=1", "it may have been written all the same"


def test_a_marker_for_a_shard_that_is_elsewhere_is_refused() -> None:
    toys, stamp = Toys(), ProducerStamp(7, 0)
    toys.host.apply(change(leader=2, isr=[2], replicas=[1, 2]))
    toys.host.drain()
    with pytest.raises(Refused):
        toys.runtime.append_marker(0, marker(stamp, is_commit=True), stamp, is_commit=True)


# --- at random --------------------------------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False))
def test_hazard_13_what_was_told_is_there_after_a_crash_and_a_load_gives_what_was_lived(chance: random.Random) -> None:
    """A crash comes anywhere between a decision and its commit. What a load gives is what live replay gave."""
    toys = Toys()
    stamps = [ProducerStamp(7, 0), ProducerStamp(8, 0)]
    told: dict[str, int] = {}
    for _ in range(3):
        asked = []
        for _ in range(chance.randrange(30)):
            act, stamp = chance.random(), chance.choice(stamps)
            if act < 0.25:
                asked.append(toys.add(chance.choice("ab")))
            elif act < 0.4:
                asked.append(toys.add_again(chance.choice("ab")))
            elif act < 0.5:
                toys.add("t", stamp=stamp)
            elif act < 0.6:
                is_commit = chance.random() < 0.5
                toys.runtime.append_marker(0, marker(stamp, is_commit=is_commit), stamp, is_commit=is_commit)
            elif act < 0.7:
                asked.append(toys.get(chance.choice("ab")))
            else:
                toys.host.turn(chance)
        power_lost = chance.random() < 0.5
        if not power_lost:
            toys.host.run_soon()
        lived = toys.shard
        toys = toys.restart(power_lost=power_lost)
        if not power_lost:
            assert (toys.shard.counts, toys.shard.pending) == (lived.counts, lived.pending)
            assert toys.shard.offsets == lived.offsets
        for answer in asked:
            if answer.message is not None:
                name, _, text = str(answer.message).partition("=")
                told[name] = max(told.get(name, 0), int(text))
        for name, count in told.items():
            assert toys.shard.counts.get(name, 0) >= count
