"""Offsets of groups on a running node, as clients ask for them in all versions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.offset_commits import PARTITIONS_A_PIECE
from headrace.coordinator.offsets.offsets import Offsets
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)


async def commit(
    peer: Peer, version: int, offset: int, *, topic: tuple[str, bytes], group: str = "g", index: int = 0, **more: Any
) -> int:
    kind = m.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata="why", committed_leader_epoch=4
    )
    asked = kind.OffsetCommitRequestTopic(name=topic[0], topic_id=topic[1], partitions=[partition])
    response = await ask(peer, kind(group_id=group, topics=[asked], **more), version)
    ((answered,),) = [answer.partitions for answer in response.topics]
    assert answered.partition_index == index
    return int(answered.error_code)


async def fetch(
    peer: Peer, version: int, *, topic: tuple[str, bytes], group: str = "g", index: int = 0, **more: Any
) -> tuple[int, int, str, int]:
    """Offset, leader epoch, metadata and error."""
    kind = m.OffsetFetchRequest
    if version < 8:
        asked = [kind.OffsetFetchRequestTopic(name=topic[0], partition_indexes=[index])]
        (found,) = (await ask(peer, kind(group_id=group, topics=asked, **more), version)).topics
    else:
        wanted = kind.OffsetFetchRequestTopics(name=topic[0], topic_id=topic[1], partition_indexes=[index])
        request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=[wanted])], **more)
        (answered,) = (await ask(peer, request, version)).groups
        (found,) = answered.topics
    (one,) = found.partitions
    return one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code


async def ready(peer: Peer, *groups: str) -> None:
    """The coordinator of the groups is there: FindCoordinator answers when the state topic does."""
    for group in groups or ("g",):
        while (await ask(peer, m.FindCoordinatorRequest(key=group, key_type=0), 3)).error_code:
            pass
        while await is_loading(peer, group):
            pass


async def is_loading(peer: Peer, group: str) -> bool:
    response = await ask(peer, m.OffsetFetchRequest(group_id=group, topics=[]), 7)
    return bool(response.error_code)


def test_an_offset_that_was_committed_in_any_version_is_read_in_any_version() -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="2") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 2))
            await ready(peer)
            for version in COMMIT_VERSIONS:
                assert not await commit(peer, version, 100 + version, topic=topic)
                for read_version in FETCH_VERSIONS:
                    offset, epoch, metadata, error = await fetch(peer, read_version, topic=topic)
                    assert (offset, metadata, error) == (100 + version, "why", 0)
                    assert epoch == (4 if version >= 6 and read_version >= 5 else -1)

    run(check())


def test_a_group_or_partition_without_offsets_has_minus_one_and_no_error() -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="2") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 2))
            await ready(peer)
            await commit(peer, 9, 5, topic=topic)
            for version in FETCH_VERSIONS:
                for group, index in (("g", 1), ("nobody", 0), ("g", 77)):
                    assert await fetch(peer, version, topic=topic, group=group, index=index) == (-1, -1, "", 0)
            assert await fetch(peer, 9, topic=("none", b"")) == (-1, -1, "", 0)
            assert (await fetch(peer, 10, topic=("", b"?" * 16)))[3] == Error.UNKNOWN_TOPIC_ID

    run(check())


def test_all_offsets_of_many_groups_are_read_at_once() -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="3") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 2))
            await ready(peer, *"abcd")
            for number, group in enumerate("abcd"):
                await commit(peer, 9, number, topic=topic, group=group)
                await commit(peer, 9, number, topic=topic, group=group, index=1)
            kind = m.OffsetFetchRequest
            for version in (8, 9, 10):
                request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=None) for group in "dcba!"])
                found = (await ask(peer, request, version)).groups
                assert [group.group_id for group in found] == list("dcba!")
                assert [
                    [(one.partition_index, one.committed_offset) for named in group.topics for one in named.partitions]
                    for group in found
                ] == [[(0, 3), (1, 3)], [(0, 2), (1, 2)], [(0, 1), (1, 1)], [(0, 0), (1, 0)], []]
            response = await ask(peer, kind(group_id="a", topics=None), 7)
            assert [named.name for named in response.topics] == ["t"]

    run(check())


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commits_to_what_is_not_there_are_refused_one_by_one(version: int) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            unknown = Error.UNKNOWN_TOPIC_ID if version >= 10 else Error.UNKNOWN_TOPIC_OR_PARTITION
            assert await commit(peer, version, 1, topic=("none", b"?" * 16)) == unknown
            assert await commit(peer, version, 1, topic=topic, index=1) == Error.UNKNOWN_TOPIC_OR_PARTITION
            assert not await commit(peer, version, 1, topic=topic)

    run(check())


@pytest.mark.parametrize(
    ("version", "error"), [(8, Error.ILLEGAL_GENERATION), (9, Error.GROUP_ID_NOT_FOUND), (10, Error.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_not_there_does_not_commit(version: int, error: Error) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            more: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
            assert await commit(peer, version, 1, topic=topic, **more) == error
            assert (await fetch(peer, version, topic=topic))[0] == -1
            assert not await commit(peer, version, 1, topic=topic)
            assert await commit(peer, version, 2, topic=topic, **more) == Error.UNKNOWN_MEMBER_ID

    run(check())


def test_metadata_that_is_too_long_is_refused_and_the_rest_of_the_commit_is_not() -> None:
    async def check() -> None:
        async with (
            running(offsets_topic_num_partitions="1", offset_metadata_max_bytes="3") as node,
            connected(node) as peer,
        ):
            await create(peer, "t", 2)
            await ready(peer)
            kind = m.OffsetCommitRequest
            partitions = [
                kind.OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata=text)
                for index, text in ((0, "four"), (1, "öüé"))
            ]
            asked = kind.OffsetCommitRequestTopic(name="t", partitions=partitions)
            (answered,) = (await ask(peer, kind(group_id="g", topics=[asked]), 8)).topics
            assert [one.error_code for one in answered.partitions] == [Error.OFFSET_METADATA_TOO_LARGE, 0]
            assert (await fetch(peer, 5, topic=("t", b""), index=1))[0] == 7
            assert (await fetch(peer, 5, topic=("t", b""), index=0))[0] == -1

    run(check())


def test_offsets_survive_a_restart() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk, offsets_topic_num_partitions="2") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            await commit(peer, 9, 42, topic=topic)
        async with running(disk.restart(), offsets_topic_num_partitions="2") as node, connected(node) as peer:
            await ready(peer)
            assert (await fetch(peer, 9, topic=topic))[0] == 42

    run(check())


def test_hazard_9_a_topic_of_the_same_name_has_no_offsets_of_the_one_before_it() -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="2") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            await ready(peer)
            await commit(peer, 9, 42, topic=topic)
            deletion = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=5000)
            assert not (await ask(peer, deletion, 6)).responses[0].error_code
            again = ("t", await create(peer, "t", 1))
            for version in FETCH_VERSIONS:
                assert (await fetch(peer, version, topic=again))[0] == -1

    run(check())


def test_offsets_are_deleted() -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 2))
            await ready(peer)
            kind = m.OffsetDeleteRequest
            named = kind.OffsetDeleteRequestTopic(
                name="t", partitions=[kind.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 5)]
            )
            assert (await ask(peer, kind(group_id="g", topics=[named]), 0)).error_code == Error.GROUP_ID_NOT_FOUND
            assert (await ask(peer, kind(group_id="", topics=[named]), 0)).error_code == Error.INVALID_GROUP_ID
            await commit(peer, 9, 42, topic=topic)
            response = await ask(peer, kind(group_id="g", topics=[named]), 0)
            assert not response.error_code
            (answered,) = response.topics
            assert [one.error_code for one in answered.partitions] == [0, 0, Error.UNKNOWN_TOPIC_OR_PARTITION]
            assert (await fetch(peer, 9, topic=topic))[0] == -1

    run(check())


def test_a_node_that_coordinates_nothing_yet_says_so() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 1))
            assert await commit(peer, 9, 1, topic=topic) == Error.COORDINATOR_NOT_AVAILABLE
            response = await ask(peer, m.OffsetFetchRequest(group_id="g", topics=None), 7)
            assert response.error_code == Error.NOT_COORDINATOR, "which consumers know what to do with"
            kind = m.OffsetFetchRequest
            asked = kind.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
            (found,) = (await ask(peer, kind(group_id="g", topics=[asked]), 1)).topics
            assert [one.error_code for one in found.partitions] == [Error.NOT_COORDINATOR] * 2

    run(check())


@given(sizes=st.lists(st.sampled_from([0, 1, 3, 499, 500, 501, 1200]), max_size=6), version=st.sampled_from([5, 7, 9]))
def test_very_many_offsets_are_read_in_pieces_and_told_as_one(sizes: list[int], version: int) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await create(peer, "topic-2", 3)
            await ready(peer, "g")
            assert await commit(peer, 8, 7, topic=("topic-2", bytes(16)), index=1) == Error.NONE
            kind = m.OffsetFetchRequest
            topic = kind.OffsetFetchRequestTopics if version >= 8 else kind.OffsetFetchRequestTopic
            topics: list[Any] = [
                topic(name=f"topic-{number}", partition_indexes=list(range(size))) for number, size in enumerate(sizes)
            ]
            if version >= 8:
                wanted = [kind.OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in ("g", "h")]
                groups = (await ask(peer, kind(groups=wanted), version)).groups
                assert [group.group_id for group in groups] == ["g", "h"]
            else:
                groups = [await ask(peer, kind(group_id="g", topics=topics), version)]
            for group in groups:
                told = [
                    (one.name, [(part.partition_index, part.committed_offset) for part in one.partitions])
                    for one in group.topics
                ]
                offset = 7 if group is groups[0] else -1
                assert told == [
                    (
                        f"topic-{number}",
                        [(index, offset if (number, index) == (2, 1) else -1) for index in range(size)],
                    )
                    for number, size in enumerate(sizes)
                ]

    run(check())


def test_very_many_offsets_of_a_group_are_read_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fetch_of = Offsets.fetch

    def noted(self: Offsets, asked: Any, *arguments: Any, **more: Any) -> Any:
        sizes.append(sum(len(topic.partition_indexes) for topic in asked.topics))
        return fetch_of(self, asked, *arguments, **more)

    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await ready(peer, "g")
            monkeypatch.setattr(Offsets, "fetch", noted)
            kind = m.OffsetFetchRequest
            topic = kind.OffsetFetchRequestTopics(name="t", partition_indexes=list(range(4000)))
            await ask(peer, kind(groups=[kind.OffsetFetchRequestGroup(group_id="g", topics=[topic])]), 9)
            assert sum(sizes) == 4000
            assert max(sizes) <= PARTITIONS_A_PIECE

    run(check())


async def commit_many(peer: Peer, count: int) -> list[int]:
    kind = m.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = kind.OffsetCommitRequestTopic(name="t", partitions=[partition] * count)
    response = await ask(peer, kind(group_id="g", generation_id_or_member_epoch=-1, topics=[topic]), 8)
    return [answer.error_code for answer in response.topics[0].partitions]


def test_a_commit_that_does_not_fit_is_refused_before_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await create(peer, "t")
            await ready(peer, "g")
            assert await commit_many(peer, 5000) == [Error.NONE] * 5000
            assert await commit_many(peer, 15_000) == [Error.UNKNOWN_SERVER_ERROR] * 15_000
            looked: list[Any] = []
            monkeypatch.setattr(Offsets, "commit", lambda *arguments: looked.append(arguments))
            assert await commit_many(peer, 20_000) == [Error.UNKNOWN_SERVER_ERROR] * 20_000, "as before"
            assert not looked

    run(check())
