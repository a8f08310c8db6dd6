"""Fetch sessions, by a client that follows them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.fetch_session import FetchedPartition, Sessions, next_epoch
from headrace.errors import Error
from headrace.protocol.messages import FetchRequest, FetchResponse

T = b"t" * 16
PartitionData = FetchResponse.PartitionData


def request(
    *partitions: tuple[int, int], session_id: int = 0, epoch: int = 0, forgotten: tuple[int, ...] = ()
) -> FetchRequest:
    """(partition, offset) each."""
    topics = [
        FetchRequest.FetchTopic(
            topic="t", topic_id=T, partitions=[_wanted(index, offset) for index, offset in partitions]
        )
    ]
    gone = [FetchRequest.ForgottenTopic(topic="t", topic_id=T, partitions=list(forgotten))]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else [],
        forgotten_topics_data=gone if forgotten else [],
    )


def _wanted(index: int, offset: int) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)


def told(response: FetchResponse) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


def sessions(**limits: int) -> Sessions:
    return Sessions(random.Random(1).randbytes, **limits)


def results(context: Any, **changed: Any) -> list[tuple[FetchedPartition, PartitionData]]:
    """The same for every partition, but for what `p1={...}` says."""
    found = []
    for partition in context.partitions:
        fields = {"high_watermark": 10, "log_start_offset": 0, **changed.get(f"p{partition.index}", {})}
        found.append((partition, PartitionData(partition_index=partition.index, **fields)))
    return found


def opened(cache: Sessions, *indexes: int, now_ms: int = 0, is_follower: bool = False) -> int:
    context = cache.begin(request(*((index, 0) for index in indexes)), 13, now_ms)
    return context.reply(results(context), is_follower=is_follower).session_id


def test_a_full_fetch_opens_a_session_and_is_told_everything() -> None:
    cache = sessions()
    context = cache.begin(request((0, 5), (1, 6)), 13, 0)
    assert [(partition.index, partition.fetch_offset) for partition in context.partitions] == [(0, 5), (1, 6)]
    response = context.reply(results(context))
    assert response.session_id in cache
    assert told(response) == [0, 1]


def test_a_fetch_with_the_final_epoch_closes_its_session_and_opens_none() -> None:
    cache = sessions()
    session_id = opened(cache, 0)
    context = cache.begin(request((0, 5), session_id=session_id, epoch=-1), 13, 0)
    assert (context.reply(results(context)).session_id, len(cache)) == (0, 0)


def test_a_full_fetch_with_a_session_replaces_it() -> None:
    cache = sessions()
    session_id = opened(cache, 0)
    context = cache.begin(request((0, 5), session_id=session_id, epoch=0), 13, 0)
    new_id = context.reply(results(context)).session_id
    assert session_id not in cache
    assert new_id in cache


@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        ({}, False),
        ({"high_watermark": 11}, True),
        ({"log_start_offset": 1}, True),
        ({"records": b"x"}, True),
        ({"error_code": 3}, True),
        ({"preferred_read_replica": 2}, True),
        ({"diverging_epoch": FetchResponse.EpochEndOffset(epoch=0, end_offset=1)}, True),
        ({"last_stable_offset": 3}, False),
    ],
)
def test_an_incremental_reply_has_what_the_client_does_not_know(change: dict[str, Any], is_told: bool) -> None:
    cache = sessions()
    session_id = opened(cache, 0, 1)
    context = cache.begin(request(session_id=session_id, epoch=1), 13, 0)
    assert told(context.reply(results(context, p1=change))) == ([1] if is_told else [])


def test_after_an_error_a_partition_is_told_again() -> None:
    cache = sessions()
    session_id = opened(cache, 0)
    for epoch, change, expected in ((1, {"error_code": 3}, [0]), (2, {}, [0]), (3, {}, [])):
        context = cache.begin(request(session_id=session_id, epoch=epoch), 13, 0)
        assert told(context.reply(results(context, p0=change))) == expected


def test_a_partition_that_gave_records_goes_to_the_end_of_the_line() -> None:
    cache = sessions()
    session_id = opened(cache, 0, 1, 2)
    context = cache.begin(request(session_id=session_id, epoch=1), 13, 0)
    context.reply(results(context, p0={"records": b"x"}))
    context = cache.begin(request(session_id=session_id, epoch=2), 13, 0)
    assert [partition.index for partition in context.partitions] == [1, 2, 0]


def test_a_session_is_refused_by_unknown_id_wrong_epoch_and_another_kind_of_version() -> None:
    cache = sessions()
    session_id = opened(cache, 0)
    cases = (
        (request(session_id=session_id + 1, epoch=1), 13, Error.FETCH_SESSION_ID_NOT_FOUND),
        (request(session_id=session_id, epoch=2), 13, Error.INVALID_FETCH_SESSION_EPOCH),
        (request(session_id=session_id, epoch=1), 12, Error.FETCH_SESSION_TOPIC_ID_ERROR),
    )
    for wrong, version, error in cases:
        response = cache.begin(wrong, version, 0).reply([])
        assert (response.error_code, response.session_id, response.responses) == (error, 0, [])
    assert not cache.begin(request(session_id=session_id, epoch=1), 13, 0).error


def test_of_two_fetches_of_a_session_at_once_only_the_later_counts() -> None:
    cache = sessions()
    session_id = opened(cache, 0)
    first = cache.begin(request(session_id=session_id, epoch=1), 13, 0)
    second = cache.begin(request(session_id=session_id, epoch=2), 13, 0)
    assert first.reply(results(first)).error_code == Error.INVALID_FETCH_SESSION_EPOCH
    assert second.reply(results(second)).error_code == 0


def test_a_session_that_forgot_all_its_partitions_is_closed() -> None:
    cache = sessions()
    session_id = opened(cache, 0, 1)
    context = cache.begin(request(session_id=session_id, epoch=1, forgotten=(0, 1)), 13, 0)
    assert (context.reply([]).session_id, len(cache)) == (0, 0)


def test_epochs_go_round_without_0() -> None:
    assert (next_epoch(1), next_epoch(2**31 - 1)) == (2, 1)


# ------------------------------------------------------------------------------------------------------ who finds room


def test_without_room_a_fetch_goes_without_a_session() -> None:
    cache = sessions(capacity=1)
    first = opened(cache, 0)
    assert opened(cache, 0, 1, 2) == 0
    assert first in cache


def test_hazard_15_sessions_know_a_bounded_number_of_partitions_together() -> None:
    cache = sessions(partitions_max=1000)
    large = opened(cache, *range(900))
    assert large
    assert not opened(cache, *range(101))
    small = opened(cache, *range(100))  # of such there are few enough
    assert small
    context = cache.begin(request(*((index, 0) for index in range(900, 1000)), session_id=large, epoch=1), 13, 0)
    assert context.error is Error.FETCH_SESSION_ID_NOT_FOUND
    assert large not in cache
    context = cache.begin(request((100, 0), session_id=small, epoch=1), 13, 0)
    assert context.error is Error.NONE
    assert opened(cache, *range(800))


def test_a_session_that_is_not_used_makes_room() -> None:
    cache = sessions(capacity=1, eviction_ms=100)
    first = opened(cache, 0, 1)
    assert opened(cache, 0, now_ms=100) == 0
    assert opened(cache, 0, now_ms=101) != 0
    assert first not in cache
    assert cache.evictions == 1


def test_an_old_session_gives_way_to_a_larger_one_only() -> None:
    cache = sessions(capacity=1, eviction_ms=100)
    first = opened(cache, 0, 1)
    cache.begin(request(session_id=first, epoch=1), 13, 101)
    assert opened(cache, 0, 1, now_ms=102) == 0
    assert opened(cache, 0, 1, 2, now_ms=102) != 0
    assert first not in cache


def test_a_follower_takes_the_place_of_a_client_at_once_and_not_the_other_way_round() -> None:
    cache = sessions(capacity=1, eviction_ms=100)
    opened(cache, 0, 1)
    follower = opened(cache, 0, is_follower=True)
    assert follower in cache
    cache.begin(request(session_id=follower, epoch=1), 13, 101)
    assert opened(cache, 0, 1, 2, now_ms=102) == 0


def test_without_slots_there_are_no_sessions() -> None:
    assert opened(sessions(capacity=0), 0) == 0


# ------------------------------------------------------------------------------------------- a client that follows them

steps = st.lists(
    st.tuples(st.sampled_from(["fetch", "grow", "forget", "add", "error", "lose"]), st.integers(0, 4), st.booleans()),
    max_size=40,
)


@given(steps)
def test_who_follows_incremental_replies_knows_what_a_full_one_would_say(steps: list[tuple[str, int, bool]]) -> None:
    cache = sessions()
    truth = {index: [0, 0] for index in range(5)}  # high watermark and error
    known: dict[int, tuple[int, int]] = {}
    wants, changed, forgotten = {0: 0, 1: 0}, {0, 1}, set[int]()
    session_id = epoch = 0
    for step, index, takes in [*steps, ("fetch", 0, True), ("fetch", 0, True)]:
        if step == "grow":
            truth[index][0] += 1
        elif step == "error":
            truth[index][1] ^= 3
        elif step == "lose":
            session_id = epoch = 0
        elif step == "add":
            wants[index] = wants.get(index, 0) + 1
            changed.add(index)
            forgotten.discard(index)
        elif step == "forget" and index in wants and len(wants) > 1:
            del wants[index]
            known.pop(index, None)
            changed.discard(index)
            forgotten.add(index)
        elif step == "fetch":
            asked = sorted(wants if not epoch else changed)
            context = cache.begin(
                request(
                    *((one, wants[one]) for one in asked),
                    session_id=session_id,
                    epoch=epoch,
                    forgotten=tuple(sorted(forgotten)) if epoch else (),
                ),
                13,
                0,
            )
            assert not context.error
            assert {part.index: part.fetch_offset for part in context.partitions} == wants
            found = []
            for part in context.partitions:
                mark, error = truth[part.index]
                records = b"x" if takes and not error and mark > part.fetch_offset else b""
                data = PartitionData(
                    partition_index=part.index,
                    error_code=error,
                    high_watermark=-1 if error else mark,
                    log_start_offset=-1 if error else 0,
                    records=records,
                )
                found.append((part, data))
            response = context.reply(found)
            assert response.error_code == 0
            session_id, epoch = response.session_id, epoch + 1
            changed.clear()
            forgotten.clear()
            for topic in response.responses:
                for data in topic.partitions:
                    known[data.partition_index] = (data.high_watermark, data.error_code)
                    if data.records:
                        wants[data.partition_index] += 1
                        changed.add(data.partition_index)
            assert known == {one: (-1 if truth[one][1] else truth[one][0], truth[one][1]) for one in wants}
