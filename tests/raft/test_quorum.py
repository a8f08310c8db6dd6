"""The arithmetic: majorities, high watermarks, voter sets and tallies."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol.messages import VotersRecord
from headrace.raft.quorum import Endpoint, ReplicaKey, Tally, Voter, VoterSet, high_watermark, majority
from tests.raft.memory import key, voter_set


@given(st.integers(1, 50))
def test_two_majorities_share_a_voter_and_no_smaller_number_makes_them(voters: int) -> None:
    assert 2 * majority(voters) > voters
    assert 2 * (majority(voters) - 1) <= voters


@given(st.lists(st.none() | st.integers(0, 20), max_size=9))
def test_the_high_watermark_is_the_most_that_a_majority_has(offsets: list[int | None]) -> None:
    def has_majority(offset: int) -> bool:
        return sum(1 for end in offsets if end is not None and end >= offset) >= majority(len(offsets))

    expected = max((offset for offset in range(21) if offsets and has_majority(offset)), default=None)
    assert high_watermark(offsets) == expected


@given(st.sets(st.integers(1, 6), min_size=1), st.sets(st.integers(1, 6), min_size=1))
def test_sets_that_differ_by_one_have_no_majorities_apart(old: set[int], new: set[int]) -> None:
    if voter_set(*new).overlaps_majorities_of(voter_set(*old)):
        for one in combinations(old, majority(len(old))):
            for other in combinations(new, majority(len(new))):
                assert set(one) & set(other)
    else:
        assert len(old ^ new) > 1


def test_hazard_12_a_node_with_another_directory_is_not_the_voter() -> None:
    voters = voter_set(1, 2, 3)
    assert key(1) in voters
    assert key(1, generation=1) not in voters
    assert not voters.with_voter(Voter(key(1, generation=1))).overlaps_majorities_of(voters)


def test_a_voter_without_a_directory_is_whoever_has_its_id() -> None:
    voters = VoterSet([Voter(ReplicaKey(1))])
    assert key(1) in voters
    assert voters.is_only(key(1))
    assert voters.renewed(key(1), ()).has_directories()


@given(
    st.lists(
        st.builds(
            Voter,
            st.builds(ReplicaKey, st.integers(0, 9), st.binary(min_size=16, max_size=16)),
            st.lists(
                st.builds(Endpoint, st.sampled_from(["A", "B"]), st.just("host"), st.integers(0, 65535)),
                max_size=2,
            ).map(tuple),
        ),
        max_size=5,
    )
)
def test_a_voter_set_is_read_from_a_record_as_it_was_written(voters: list[Voter]) -> None:
    expected = VoterSet(voters)
    assert VoterSet.from_record(expected.to_record()) == expected


def test_a_record_that_names_a_node_twice_is_refused() -> None:
    record = VotersRecord(voters=[VotersRecord.Voter(voter_id=1), VotersRecord.Voter(voter_id=1)])
    with pytest.raises(ProtocolError):
        VoterSet.from_record(record)


def test_a_tally_counts_each_voter_once_and_nobody_else() -> None:
    tally = Tally(voter_set(1, 2, 3))
    tally.record(1, granted=True)
    tally.record(1, granted=True)
    tally.record(9, granted=True)
    assert not tally.is_won
    tally.record(2, granted=False)
    tally.record(2, granted=True)
    assert not tally.is_won
    assert not tally.is_lost
    tally.record(3, granted=True)
    assert tally.is_won
