"""A connection that commits again and again: the same answers as a commit that is looked at from the start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.broker import loggers, request_log
from headrace.broker.node import Node
from headrace.broker.repeated_commit import MISSES_MAX, RepeatedCommit
from headrace.coordinator.state_topic import CONSUMER_OFFSETS, partition_for
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.takes import noted_takes
from tests.broker.test_offset_commits import COMMIT_VERSIONS, commit, fetch, ready
from tests.broker.test_request_log import produce

LOG = "broker.request_log"


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    yield
    loggers.set_levels({LOG: None})


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each commit on a connection that has committed: whether it was taken for the same."""
    return noted_takes(monkeypatch, RepeatedCommit)


def answered(node: Node) -> int:
    assert node._coordinators is not None
    assert node._coordinators.offsets.commit_figures is not None
    return node._coordinators.offsets.commit_figures.answered


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_offsets_of_a_commit_that_comes_again_are_kept(version: int, taken: list[bool]) -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk, offsets_topic_num_partitions="2") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 2))
            await ready(peer)
            for offset in (5, 6, 2**62, 0):
                assert not await commit(peer, version, offset, topic=topic)
                assert (await fetch(peer, 9, topic=topic))[:3] == (offset, 4 if version >= 6 else -1, "why")
            assert taken == [True, True, True]
        async with running(disk.restart(), offsets_topic_num_partitions="2") as node, connected(node) as peer:
            await ready(peer)
            assert (await fetch(peer, 9, topic=topic))[0] == 0

    run(check())


async def commit_all(peer: Peer, topics: dict[str, bytes], offset: int, version: int) -> list[int]:
    kind = m.OffsetCommitRequest
    asked = [
        kind.OffsetCommitRequestTopic(
            name=name,
            topic_id=topic_id,
            partitions=[
                kind.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset + index)
                for index in range(3)
            ],
        )
        for name, topic_id in topics.items()
    ]
    response = await ask(peer, kind(group_id="g", topics=asked), version)
    assert [(topic.name, topic.topic_id) for topic in response.topics] == [
        (name if version < 10 else "", topic_id if version >= 10 else bytes(16)) for name, topic_id in topics.items()
    ]
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", [5, 9, 10])
def test_so_are_those_of_many_partitions(version: int, taken: list[bool]) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="2") as node, connected(node) as peer:
            topics = {name: await create(peer, name, 3) for name in ("a", "long" * 50)}
            await ready(peer)
            for offset in (10, 20, 30):
                assert await commit_all(peer, topics, offset, version) == [0] * 6
            assert taken == [True, True]
            for topic in topics.items():
                assert [(await fetch(peer, 9, topic=topic, index=index))[0] for index in range(3)] == [30, 31, 32]

    run(check())


def test_hazard_13_a_member_that_was_replaced_does_not_commit_as_before(taken: list[bool]) -> None:
    async def check() -> None:
        async with (
            running(offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="0") as node,
            connected(node) as peer,
        ):
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            join = m.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=b"")],
            )
            join.member_id = (await ask(peer, join, 9)).member_id
            joined = await ask(peer, join, 9)
            given = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=join.member_id, assignment=b"")
            sync = m.SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=join.member_id,
                protocol_type="consumer",
                protocol_name="p",
                assignments=[given],
            )
            assert not (await ask(peer, sync, 5)).error_code
            member = {"member_id": join.member_id, "generation_id_or_member_epoch": joined.generation_id}
            for offset in (1, 2):
                assert not await commit(peer, 9, offset, topic=topic, **member)
            leave = m.LeaveGroupRequest(
                group_id="g", members=[m.LeaveGroupRequest.MemberIdentity(member_id=join.member_id)]
            )
            await ask(peer, leave, 5)
            assert await commit(peer, 9, 3, topic=topic, **member) == Error.UNKNOWN_MEMBER_ID
            assert taken == [True, True]
            assert (await fetch(peer, 9, topic=topic))[0] == 2

    run(check())


def test_a_burst_of_large_ones_that_are_refused_writes_nothing(taken: list[bool]) -> None:
    async def check() -> None:
        name, kind = "t" * 249, m.OffsetCommitRequest
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await create(peer, name, 100)
            await ready(peer)
            partitions = [kind.OffsetCommitRequestPartition(partition_index=index) for index in range(100)]
            body = kind(
                group_id="g" * 255,
                member_id="m",
                generation_id_or_member_epoch=5,
                topics=[kind.OffsetCommitRequestTopic(name=name, partitions=partitions)],
            )
            await ask(peer, body, 8)
            for response in await asyncio.gather(*(ask(peer, body, 8) for _ in range(40))):
                codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
                assert codes == {Error.ILLEGAL_GENERATION}
            assert taken == [True] * 40
            partition = node._replicas.find(CONSUMER_OFFSETS, 0)  # type: ignore[union-attr]
            assert partition.log_end_offset == 0

    run(check())


def test_hazard_9_what_was_known_of_a_topic_is_not_taken_for_the_next_one_of_its_name(taken: list[bool]) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            for offset in (1, 2):
                assert not await commit(peer, 9, offset, topic=topic)
            await create(peer, "other")  # which changes nothing for this one
            assert not await commit(peer, 9, 3, topic=topic)
            assert taken == [True, True]
            deletion = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=5000)
            assert not (await ask(peer, deletion, 6)).responses[0].error_code
            taken.clear()
            assert await commit(peer, 9, 4, topic=topic) == Error.UNKNOWN_TOPIC_OR_PARTITION
            assert taken == [False]
            again = ("t", await create(peer, "t", 1))
            assert (await fetch(peer, 9, topic=again))[0] == -1
            for offset in (5, 6):
                assert not await commit(peer, 9, offset, topic=again)
            assert (await fetch(peer, 10, topic=again))[0] == 6
            assert taken == [False, True], "it is known again"

    run(check())


def test_a_connection_that_commits_this_and_that_is_not_prepared_for_each(taken: list[bool]) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="2") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            groups = [f"g{number}" for number in range(MISSES_MAX + 2)]
            await ready(peer, *groups)
            for offset in (1, 2, 3):
                for group in groups:
                    assert not await commit(peer, 9, offset, topic=topic, group=group)
            for group in groups:
                assert (await fetch(peer, 9, topic=topic, group=group))[0] == 3

    run(check())


def test_they_are_counted_and_told_in_the_log_of_requests(taken: list[bool], caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            before = answered(node)
            for offset in (1, 2):
                await commit(peer, 9, offset, topic=topic)
            loggers.set_levels({LOG: "DEBUG"})
            caplog.clear()
            for offset in (3, 4):
                await commit(peer, 9, offset, topic=topic)
            told = [record.getMessage() for record in caplog.records if record.name == request_log.__name__]
            assert [line.split(" of ")[0] for line in told] == ["OffsetCommit v9"] * 2
            assert all(line.endswith("no error") for line in told)
            assert taken == [True, True, True]
            assert answered(node) == before + 4

    run(check())


def test_a_commit_that_can_not_be_kept_is_refused(taken: list[bool]) -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk, offsets_topic_num_partitions="1") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            for offset in (1, 2):
                assert not await commit(peer, 9, offset, topic=topic)
            node._coordinators.groups.stop()  # type: ignore[union-attr]
            assert await commit(peer, 9, 3, topic=topic) == Error.NOT_COORDINATOR
            assert taken == [True, False]

    run(check())


def test_commits_share_the_group_commit_of_what_came_with_them() -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            await commit(peer, 9, 1, topic=topic)
            (flusher,) = node._flushers.values()
            for offset in (2, 3, 4):
                produced = asyncio.ensure_future(ask(peer, produce("t"), 9))
                committed = asyncio.ensure_future(commit(peer, 9, offset, topic=topic))
                groups = flusher.groups
                await asyncio.gather(produced, committed)
                assert flusher.groups == groups + 1

    run(check())


def test_a_commit_that_comes_again_finds_its_group_where_it_is_when_the_state_topic_has_grown() -> None:
    async def check() -> None:
        async with running(FaultyDisk(), offsets_topic_num_partitions="1") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 2))
            await ready(peer)
            for offset in (5, 6):
                assert not await commit(peer, 9, offset, topic=topic)
            grown = m.CreatePartitionsRequest.CreatePartitionsTopic(name=CONSUMER_OFFSETS, count=7, assignments=None)
            await ask(peer, m.CreatePartitionsRequest(topics=[grown], timeout_ms=5000), 3)
            assert partition_for("g", 7)
            while await commit(peer, 9, 8, topic=topic):  # until that partition is loaded
                await asyncio.sleep(0.01)
            assert (await fetch(peer, 9, topic=topic))[0] == 8

    run(check())


@pytest.mark.parametrize(
    ("group", "metadata"), [("g" * 256, ""), ("g", "m" * 100)], ids=["a long group id", "a large request"]
)
def test_what_is_large_is_not_kept_for_the_next_commit(group: str, metadata: str, taken: list[bool]) -> None:
    kind = m.OffsetCommitRequest
    partitions = [
        kind.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=metadata)
        for index in range(90)
    ]
    request = kind(group_id=group, topics=[kind.OffsetCommitRequestTopic(name="t", partitions=partitions)])

    async def check() -> None:
        async with running(FaultyDisk(), offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await create(peer, "t", 90)
            await ready(peer, group)
            for _ in range(3):
                response = await ask(peer, request, 8)
                assert not any(partition.error_code for partition in response.topics[0].partitions)
            assert not any(taken)

    run(check())
