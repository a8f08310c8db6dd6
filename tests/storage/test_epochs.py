"""The leader epochs of a log: KIP-101's rules, against a model that keeps the epoch of every offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.checkpoint import CheckpointDamaged
from headrace.storage.epochs import UNDEFINED, EpochEnd, LeaderEpochs
from headrace.testing.disk import FaultyDisk


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    epochs = LeaderEpochs([(2, 6), (5, 9), (8, 15)])
    assert epochs.end_offset_for(2, 20) == (2, 9)
    assert epochs.end_offset_for(5, 20) == (5, 15)
    assert epochs.end_offset_for(8, 20) == (8, 20), "the latest ends with the log"


def test_kip_279_an_epoch_that_is_not_here_gives_the_largest_before_it_and_its_end() -> None:
    epochs = LeaderEpochs([(2, 6), (5, 9), (8, 15)])
    assert epochs.end_offset_for(4, 20) == (2, 9)
    assert epochs.end_offset_for(7, 20) == (5, 15)


def test_an_epoch_before_all_of_ours_ends_where_ours_begin() -> None:
    assert LeaderEpochs([(2, 6), (5, 9)]).end_offset_for(1, 20) == (1, 6)


def test_an_epoch_after_all_of_ours_and_no_epoch_are_undefined() -> None:
    epochs = LeaderEpochs([(2, 6)])
    assert epochs.end_offset_for(3, 20) == UNDEFINED
    assert epochs.end_offset_for(-1, 20) == UNDEFINED
    assert LeaderEpochs().end_offset_for(0, 20) == UNDEFINED


def test_an_epoch_is_assigned_once_unless_it_begins_earlier() -> None:
    epochs = LeaderEpochs()
    assert epochs.assign(2, 6)
    assert not epochs.assign(2, 7)
    assert not epochs.assign(2, 6)
    assert epochs.assign(2, 5)
    assert epochs.entries() == [(2, 5)]
    assert epochs.latest == 2


def test_a_new_epoch_at_the_same_offset_takes_the_place_of_one_that_wrote_nothing() -> None:
    epochs = LeaderEpochs([(2, 6), (3, 9)])
    epochs.assign(4, 9)
    assert epochs.entries() == [(2, 6), (4, 9)]


def test_an_older_epoch_or_offset_removes_what_contradicts_it() -> None:
    epochs = LeaderEpochs([(2, 6), (5, 9), (8, 15)])
    epochs.assign(6, 10)
    assert epochs.entries() == [(2, 6), (5, 9), (6, 10)]
    epochs.assign(9, 7)
    assert epochs.entries() == [(2, 6), (9, 7)]


def test_the_epoch_after_another() -> None:
    epochs = LeaderEpochs([(2, 6), (5, 9)])
    assert [epochs.next_epoch(epoch) for epoch in (1, 2, 4, 5)] == [2, 5, 5, -1]


def test_the_start_of_the_log_moves_into_an_epoch() -> None:
    epochs = LeaderEpochs([(2, 6), (3, 8), (4, 11)])
    epochs.truncate_from_start(8)
    assert epochs.entries() == [(3, 8), (4, 11)]
    epochs.truncate_from_start(9)
    assert epochs.entries() == [(3, 9), (4, 11)]
    epochs.truncate_from_start(5)
    assert epochs.entries() == [(3, 9), (4, 11)]
    epochs.truncate_from_start(100)
    assert epochs.entries() == [(4, 100)]


def test_epochs_are_kept_in_kafkas_checkpoint() -> None:
    disk = FaultyDisk()
    epochs = LeaderEpochs([(0, 0)])
    assert not epochs.is_dirty
    epochs.assign(2, 44)
    assert epochs.is_dirty
    epochs.persist(disk, "leader-epoch-checkpoint")
    assert not epochs.is_dirty
    assert disk.read("leader-epoch-checkpoint") == b"0\n2\n0 0\n2 44\n"
    assert LeaderEpochs.load(disk, "leader-epoch-checkpoint").entries() == [(0, 0), (2, 44)]
    disk.platter.flip_bit("leader-epoch-checkpoint", 0)
    with pytest.raises(CheckpointDamaged):
        LeaderEpochs.load(disk, "leader-epoch-checkpoint")


class Model:
    """The epoch of every offset, written down."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[int] = []

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def end_offset_for(self, epoch: int) -> EpochEnd:
        known = sorted(set(self.records))
        if epoch < 0 or not known or epoch > known[-1]:
            return UNDEFINED
        found = max((mine for mine in known if mine <= epoch), default=epoch)
        later = [offset for offset, mine in enumerate(self.records, self.start) if mine > epoch]
        return EpochEnd(found, later[0] if later else self.end)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("lead"), st.integers(1, 3)),
        st.tuples(st.just("cut"), st.integers(0, 30)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


@given(steps)
def test_after_any_appends_elections_and_cuts_epochs_are_those_of_the_records(script: list[tuple[str, int]]) -> None:
    disk = FaultyDisk()
    epochs = LeaderEpochs()
    model = Model()
    epoch = 0
    for what, number in script:
        if what == "append":
            epochs.assign(epoch, model.end)
            model.records += [epoch] * number
        elif what == "lead":
            epoch += number
        elif what == "cut":
            end = max(model.start, min(number, model.end))
            del model.records[end - model.start :]
            epochs.truncate_from_end(end)
        elif what == "delete":
            start = max(model.start, min(number, model.end))
            del model.records[: start - model.start]
            model.start = start
            epochs.truncate_from_start(start)
            epochs.truncate_from_end(model.end)
        else:
            epochs.persist(disk, "epochs")
            epochs = LeaderEpochs.load(disk, "epochs")
        assert epochs.latest == (model.records[-1] if model.records else -1)
        for offset, mine in enumerate(model.records, model.start):
            assert epochs.epoch_for_offset(offset) == mine
        for asked in range(-1, epoch + 2):
            assert epochs.end_offset_for(asked, model.end) == model.end_offset_for(asked)


@given(st.data())
def test_hazards_1_and_2_a_follower_that_cuts_by_epochs_ends_as_a_prefix_of_its_leader(data: st.DataObject) -> None:
    """Two logs with a common past and different tails; the follower asks and cuts until the epochs agree (KIP-279)."""

    def grow(records: list[int], epochs: list[int]) -> list[int]:
        return records + [epoch for epoch in epochs for _ in range(data.draw(st.integers(1, 3)))]

    def logged(records: list[int]) -> LeaderEpochs:
        known = LeaderEpochs()
        for offset, epoch in enumerate(records):
            known.assign(epoch, offset)
        return known

    past = grow([], sorted(data.draw(st.sets(st.integers(0, 5)))))
    # An epoch has one leader, so the tails have no epoch in common.
    tails = sorted(data.draw(st.sets(st.integers(6, 20))))
    split = data.draw(st.lists(st.booleans(), min_size=len(tails), max_size=len(tails)))
    leader_records = grow(past, [epoch for epoch, mine in zip(tails, split, strict=True) if mine] + [21])
    follower_records = grow(past, [epoch for epoch, mine in zip(tails, split, strict=True) if not mine])

    leader, follower = logged(leader_records), logged(follower_records)
    done = follower.latest == -1
    while not done:
        epoch, leader_end = leader.end_offset_for(follower.latest, len(leader_records))
        mine = follower.end_offset_for(epoch, len(follower_records))
        done = mine.epoch == epoch  # else the leader's answer is an epoch that the follower never had: ask again
        cut = min(leader_end, mine.end_offset) if done else mine.end_offset
        assert done or cut < len(follower_records), "each question cuts something"
        del follower_records[cut:]
        follower.truncate_from_end(cut)
    assert follower_records == leader_records[: len(follower_records)]
    assert len(follower_records) >= len(past), "and nothing that both had is cut"
