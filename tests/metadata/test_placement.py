"""Where replicas go: evenly, on different racks, on live brokers first."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Error, Refused
from headrace.metadata.placement import Candidate, place


def brokers(*racks: str | None) -> list[Candidate]:
    return [Candidate(number, rack, True) for number, rack in enumerate(racks)]


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=8),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_leaders_are_even_and_replicas_distinct(
    racks: list[str | None], partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(brokers(*racks), partitions, factor, Random(seed).randrange)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        spanned = {racks[broker_id] for broker_id in replicas}
        assert len(spanned) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[number] for number in range(len(racks))) <= 1


def test_the_followers_of_one_leader_are_not_always_the_same() -> None:
    placed = place(brokers(None, None, None, None), 40, 2, lambda n: 0)
    for leader in range(4):
        assert {replicas[1] for replicas in placed if replicas[0] == leader} == set(range(4)) - {leader}


def test_brokers_that_are_not_active_get_replicas_only_when_there_are_not_enough() -> None:
    candidates = [Candidate(1, None, True), Candidate(2, None, False), Candidate(3, None, True)]
    assert all(2 not in replicas for replicas in place(candidates, 10, 2, lambda n: 0))
    for replicas in place(candidates, 10, 3, lambda n: 0):
        assert replicas[0] != 2
        assert replicas[2] == 2


def test_partitions_that_are_added_go_on_where_the_others_stopped() -> None:
    candidates = brokers(None, None, None)
    assert place(candidates, 4, 2, lambda n: 0)[2:] == place(candidates, 2, 2, lambda n: 0, first_partition=2)


def test_more_replicas_than_brokers_and_no_active_broker_are_refused() -> None:
    with pytest.raises(Refused, match="needs 2 brokers, and the cluster has 1") as refused:
        place(brokers(None), 1, 2, lambda n: 0)
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
    with pytest.raises(Refused, match="No broker is active"):
        place([Candidate(1, None, False)], 1, 1, lambda n: 0)
