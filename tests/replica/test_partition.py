"""A partition as its clients see it: what is acknowledged when, and what they are told when it will not be."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Error, Refused
from headrace.replica.partition import LARGE_BYTES, Partition
from headrace.storage.append import Appended
from headrace.storage.scan import PAGE_BYTES
from headrace.testing.disk import FaultyDisk
from headrace.testing.disk_platter import Platter
from tests.replica.hosts import NODE, Host, change, setting
from tests.storage.batches import batch
from tests.storage.logs import values_in


class Acks:
    """Appends with an acks level, and what became of each."""

    def __init__(self, host: Host, partition: Partition) -> None:
        self.host = host
        self.partition = partition
        self.answers: dict[int, Error] = {}
        """By the first offset."""
        self.appended: dict[int, int] = {}

    def append(self, acks: int, *values: bytes, **header: Any) -> Appended:
        content = batch(*(values or (b"v",)), **header)
        appended = self.partition.append(memoryview(content), acks, self.host.now_ms())
        offset = appended.first_offset
        self.appended[offset] = acks
        if self.partition.must_wait(appended, acks):
            self.partition.when_acknowledged(appended, acks, lambda error: self.answers.__setitem__(offset, error))
        else:
            self.answers[offset] = Error.NONE
        return appended


class Watching:
    def __init__(self) -> None:
        self.grown_bytes: list[int] = []
        self.changes = 0

    def progressed(self, partition: Partition, grown_bytes: int) -> None:
        self.grown_bytes.append(grown_bytes)

    def changed(self, partition: Partition) -> None:
        self.changes += 1


def hosted(**settings: Any) -> tuple[Host, Partition, Acks]:
    host = Host()
    host.create(**settings)
    partition = host.partition()
    return host, partition, Acks(host, partition)


def test_acks_1_is_acknowledged_and_visible_at_once() -> None:
    _, partition, acks = hosted()
    acks.append(1)
    assert acks.answers == {0: Error.NONE}
    assert partition.high_watermark == 1


def test_acks_all_on_one_replica_waits_for_the_disk_and_holds_back_what_comes_after_it() -> None:
    host, partition, acks = hosted()
    acks.append(1)
    acks.append(-1)
    acks.append(1)
    assert acks.answers == {0: Error.NONE, 2: Error.NONE}
    assert partition.high_watermark == 1
    host.drain()
    assert acks.answers[1] is Error.NONE
    assert partition.high_watermark == 3 == partition.log.flushed_offset


def test_all_appends_of_a_round_share_a_flush() -> None:
    host, partition, acks = hosted()
    host.drain()
    before = partition.log.unsynced._flusher.groups  # type: ignore[attr-defined]
    for _ in range(5):
        acks.append(-1)
    host.drain()
    assert partition.log.unsynced._flusher.groups == before + 1  # type: ignore[attr-defined]
    assert len(acks.answers) == 5


def test_what_waits_for_the_end_of_the_round_is_flushed_before_a_large_append() -> None:
    host, partition, acks = hosted()
    host.drain()
    acks.append(-1)
    acks.append(1, b"v" * 1000)
    assert not len(host.workers)
    acks.append(1, b"v" * LARGE_BYTES)
    assert len(host.workers) == 1, "before the end of the round"
    host.workers.step()
    assert acks.answers[0] is Error.NONE
    assert (partition.log.flushed_offset, partition.log.log_end_offset) == (2, 3)


def test_flush_messages_1_waits_for_the_disk_at_every_level() -> None:
    host, partition, acks = hosted(flush_messages="1")
    acks.append(1)
    acks.append(0)
    assert partition.high_watermark == 0
    assert 0 not in acks.answers
    host.drain()
    assert acks.answers == {0: Error.NONE, 1: Error.NONE}
    assert partition.high_watermark == 2


def test_flush_messages_flushes_after_that_many_records_and_nobody_waits() -> None:
    host, partition, acks = hosted(flush_messages="3")
    acks.append(1, b"a", b"b")
    host.drain()
    assert partition.log.flushed_offset == 0
    acks.append(1)
    assert acks.answers == {0: Error.NONE, 2: Error.NONE}
    host.drain()
    assert partition.log.flushed_offset == 3


def test_a_duplicate_with_acks_all_waits_for_its_original() -> None:
    host, _, acks = hosted()
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    acks.append(-1, **producer)
    again = Acks(host, acks.partition)
    assert again.append(-1, **producer).is_duplicate
    assert not again.answers
    host.drain()
    assert again.answers == acks.answers == {0: Error.NONE}
    assert again.append(-1, **producer).is_duplicate
    assert again.answers == {0: Error.NONE}


def test_a_duplicate_with_acks_all_of_what_came_with_acks_1_is_on_the_disk_before_it_is_acknowledged() -> None:
    host, partition, acks = hosted()
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    acks.append(1, **producer)
    again = Acks(host, partition)
    again.append(-1, **producer)
    assert partition.high_watermark == 1
    assert not again.answers
    host.drain()
    assert again.answers == {0: Error.NONE}
    assert partition.log.flushed_offset == 1


def test_hazard_4_a_deposed_leader_refuses_and_whoever_waits_is_sent_away() -> None:
    host, partition, acks = hosted()
    watching = Watching()
    partition.watch(watching)
    acks.append(-1)
    host.apply(change(leader=2, isr=[2], replicas=[1, 2]))
    assert acks.answers == {0: Error.NOT_LEADER_OR_FOLLOWER}
    assert watching.changes == 1
    with pytest.raises(Refused) as refused:
        acks.append(1)
    assert refused.value.error is Error.NOT_LEADER_OR_FOLLOWER
    host.drain()  # the flush that was under way ends, and moves nothing
    assert partition.high_watermark == 0


def test_hazard_4_who_asks_for_another_epoch_is_fenced() -> None:
    host, partition, _ = hosted()
    partition.require_leader()
    partition.require_leader(0)
    host.apply(change(leader=NODE))
    for epoch, error in ((0, Error.FENCED_LEADER_EPOCH), (2, Error.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(Refused) as refused:
            partition.require_leader(epoch)
        assert refused.value.error is error
    partition.require_leader(1)


def test_the_end_of_the_current_epoch_is_known_before_it_has_a_record() -> None:
    host, partition, acks = hosted()
    acks.append(1)
    host.apply(change(leader=NODE))
    assert partition.end_offset_for(1) == (1, 1)
    assert partition.end_offset_for(0) == (0, 1)
    acks.append(1)
    assert partition.end_offset_for(0) == (0, 1)
    assert partition.end_offset_for(1) == (1, 2)


def test_with_too_few_in_sync_acks_all_is_refused_and_acks_1_is_not_visible() -> None:
    host, partition, acks = hosted(min_insync_replicas="2")
    host.apply(change(replicas=[1, 2]))
    with pytest.raises(Refused) as refused:
        acks.append(-1)
    assert refused.value.error is Error.NOT_ENOUGH_REPLICAS
    acks.append(1)
    assert acks.answers == {0: Error.NONE}
    assert partition.high_watermark == 0
    host.apply(setting("min.insync.replicas", "1"))
    assert partition.high_watermark == 1


def test_watchers_are_told_of_what_readers_may_see_and_not_before() -> None:
    host, partition, acks = hosted()
    watching = Watching()
    partition.watch(watching)
    size_bytes = acks.append(1).size_bytes
    assert watching.grown_bytes == [size_bytes]
    acks.append(-1)
    acks.append(1)
    assert len(watching.grown_bytes) == 1
    host.drain()
    assert sum(watching.grown_bytes) == 3 * size_bytes
    partition.unwatch(watching)
    acks.append(1)
    assert sum(watching.grown_bytes) == 3 * size_bytes


def test_hazard_8_a_failed_sync_fails_all_that_wait_and_takes_the_directory_offline() -> None:
    disk = FaultyDisk(root="/disk0")
    host = Host([disk])
    host.create("t", 2)
    watching = Watching()
    first, second = Acks(host, host.partition("t", 0)), Acks(host, host.partition("t", 1))
    host.partition("t", 1).watch(watching)
    gone: list[str] = []
    host.replicas.on_offline = lambda directory: gone.append(directory.root)
    first.append(-1)
    second.append(-1)
    disk.faults.fail_sync_at = disk.syncs + 1
    host.drain()
    assert first.answers == second.answers == {0: Error.KAFKA_STORAGE_ERROR}
    assert gone == ["/disk0"]
    assert watching.changes == 1
    assert host.partition("t", 0).high_watermark == 0
    with pytest.raises(Refused) as refused:
        first.append(1)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused):
        host.partition("t", 0).require_leader()


def test_hazard_15_a_full_disk_refuses_and_recovers() -> None:
    disk = FaultyDisk(root="/disk0")
    host = Host([disk])
    host.create()
    acks = Acks(host, host.partition())
    acks.append(-1, b"before")
    host.drain()
    disk.faults.capacity_bytes = disk.platter.used_bytes() + 10
    with pytest.raises(Refused) as refused:
        acks.append(-1, b"refused" * PAGE_BYTES)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert values_in(host.partition().log) == [(0, b"before")]
    disk.faults.capacity_bytes = None
    acks.append(-1, b"after")
    host.drain()
    assert values_in(host.partition().log) == [(0, b"before"), (1, b"after")]
    assert acks.answers == {0: Error.NONE, 1: Error.NONE}


def test_hazard_7_a_retry_after_a_restart_is_still_a_duplicate() -> None:
    host, _, acks = hosted()
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    acks.append(-1, **producer)
    host.drain()
    for clean in (True, False):
        host = host.restart(clean=clean, extra=[change(leader=NODE)])
        again = Acks(host, host.partition())
        assert again.append(1, **producer).is_duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_what_a_restart_finds_is_visible_once_it_is_on_the_disk(clean: bool) -> None:
    host, _, acks = hosted()
    acks.append(1)
    acks.append(-1)
    host = host.restart(clean=clean, extra=[change(leader=NODE)])
    host.drain()
    assert host.partition().high_watermark == 2
    assert host.partition().leader_epoch == 1


@given(st.integers(0, 2**32), st.lists(st.sampled_from([0, 1, -1]), min_size=1, max_size=25), st.booleans())
def test_an_acknowledged_record_survives_what_it_promises_to_survive(seed: int, levels: list[int], fails: bool) -> None:
    """Appends at random levels while flushes begin and end at random; then the power goes."""
    chance = random.Random(seed)
    disk = FaultyDisk(Platter(seed), root="/disk0")
    host = Host([disk])
    host.create()
    host.checkpoint()
    partition = host.partition()
    acks = Acks(host, partition)
    failing_at = chance.randrange(len(levels)) if fails else -1
    seen = 0
    for number, level in enumerate(levels):
        if number == failing_at:
            disk.faults.fail_sync_at = disk.syncs + 1
        try:
            acks.append(level, b"%d" % number)
        except Refused as refused:
            assert refused.error is Error.KAFKA_STORAGE_ERROR
            break
        for _ in range(chance.randrange(4)):
            host.turn(chance)
        promised = [offset for offset, acked in acks.appended.items() if acked == -1]
        assert seen <= partition.high_watermark <= partition.log_end_offset
        seen = partition.high_watermark
        for offset in promised:
            if acks.answers.get(offset) is Error.NONE or offset < seen:
                assert offset < partition.log.flushed_offset
            if acks.answers.get(offset) is Error.NONE:
                assert offset < seen
    if not fails and chance.random() < 0.5:
        host.drain()
        assert [acks.answers[offset] for offset in acks.appended] == [Error.NONE] * len(levels)
        assert partition.high_watermark == partition.log_end_offset
    must_survive = [o for o, acked in acks.appended.items() if acked == -1 and acks.answers.get(o) is Error.NONE]
    host = host.restart(power_lost=True)
    found = dict(values_in(host.partition().log))
    for offset in must_survive:
        assert found[offset] == b"%d" % offset
    host.partition().append(memoryview(batch(b"later")), 1, host.now_ms())
