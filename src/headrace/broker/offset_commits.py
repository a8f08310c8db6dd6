"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have read.

A commit is answered when it is committed itself, without a task: its reply has a place on the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.slot_reply import SlotReply
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import Outcome, Reply
from headrace.errors import Error
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.coordinator.groups.shard import GroupShard

    FetchedGroup = m.OffsetFetchResponse.OffsetFetchResponseGroup
    AskedGroup = m.OffsetFetchRequest.OffsetFetchRequestGroup

GROUPS_SINCE: Final = 8
"""From this version of OffsetFetch on, one request asks for many groups (KIP-709)."""
GROUP_ERROR_SINCE: Final = 2
"""Before it, an error of the group is said of each of its partitions."""


class OffsetCommits:
    __slots__ = ("_groups", "commit_errors", "delete_errors", "fetch_errors")

    def __init__(self, groups: Runtime[GroupShard]) -> None:
        self._groups = groups
        self.commit_errors: dict[int, int] = {}
        self.fetch_errors: dict[int, int] = {}
        self.delete_errors: dict[int, int] = {}

    # ------------------------------------------------------------------------------------------------------- committing

    def commit(self, connection: Connection, request: Request) -> None:
        reply = SlotReply(connection, request, refused_commit, self.commit_errors)
        self._groups.ask(request.body.group_id, partial(_commit, request.body, request.version, reply), reply)

    # --------------------------------------------------------------------------------------------------------- fetching

    def fetch(self, connection: Connection, request: Request) -> m.OffsetFetchResponse | None:
        body: m.OffsetFetchRequest = request.body
        groups = body.groups if request.version >= GROUPS_SINCE else [_only_group(body)]
        if not groups:
            return m.OffsetFetchResponse()
        reply = SlotReply(connection, request, _refused_fetch, self.fetch_errors)
        gathered = _Fetches(request, reply, len(groups))

        def asks() -> Iterator[None]:
            for index, asked in enumerate(groups):
                part = _FetchReply(gathered, index, asked)
                self._groups.ask(
                    asked.group_id, partial(_fetch, asked, request.version, body.require_stable, part), part
                )
                yield

        self._groups.ask_many(asks(), len(groups))
        return None

    # --------------------------------------------------------------------------------------------------------- deleting

    def delete(self, connection: Connection, request: Request) -> None:
        reply = SlotReply(connection, request, _refused_delete, self.delete_errors)
        self._groups.ask(request.body.group_id, partial(_delete, request.body, reply), reply)


def _commit(body: m.OffsetCommitRequest, version: int, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return shard.offsets.commit(body, version, reply, now_ms)


def _fetch(
    asked: AskedGroup, version: int, require_stable: bool, reply: Reply, shard: GroupShard, now_ms: int
) -> Outcome:
    return shard.offsets.fetch(asked, version, require_stable=require_stable, reply=reply)


def _delete(body: m.OffsetDeleteRequest, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return shard.offsets.delete(body, reply)


def refused_commit(request: Request, error: Error, text: str | None) -> m.OffsetCommitResponse:
    kind = m.OffsetCommitResponse
    return kind(
        topics=[
            kind.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.body.topics
        ]
    )


def _refused_delete(request: Request, error: Error, text: str | None) -> m.OffsetDeleteResponse:
    return m.OffsetDeleteResponse(error_code=error)


# ------------------------------------------------------------------------------------------------ many groups at a time


class _Fetches:
    """The reply to one OffsetFetch, which is complete when all of its groups are there."""

    __slots__ = ("_groups", "_left", "_reply", "_request")

    def __init__(self, request: Request, reply: Reply, count: int) -> None:
        self._request = request
        self._reply = reply
        self._groups: list[FetchedGroup] = [m.OffsetFetchResponse.OffsetFetchResponseGroup()] * count
        self._left = count

    def put(self, index: int, found: FetchedGroup) -> None:
        self._groups[index] = found
        self._left -= 1
        if not self._left:
            self._reply(_fetched(self._request.version, self._groups))


class _FetchReply:
    """The part of one group."""

    __slots__ = ("_asked", "_fetches", "_index")

    def __init__(self, fetches: _Fetches, index: int, asked: AskedGroup) -> None:
        self._fetches = fetches
        self._index = index
        self._asked = asked

    def __call__(self, message: Message, /) -> None:
        assert isinstance(message, m.OffsetFetchResponse.OffsetFetchResponseGroup)
        if message.error_code and not message.topics:
            message.topics = _without_offsets(self._asked, message.error_code)
        self._fetches.put(self._index, message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        if error is Error.COORDINATOR_NOT_AVAILABLE:
            error = Error.NOT_COORDINATOR  # which is all that consumers know what to do with
        self(m.OffsetFetchResponse.OffsetFetchResponseGroup(group_id=self._asked.group_id, error_code=error))


def _fetched(version: int, groups: list[FetchedGroup]) -> m.OffsetFetchResponse:
    kind = m.OffsetFetchResponse
    if version >= GROUPS_SINCE:
        for group in groups:
            if group.error_code:
                group.topics = []
        return kind(groups=groups)
    (group,) = groups
    return kind(
        error_code=group.error_code,
        topics=[
            kind.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    kind.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in (group.topics if version < GROUP_ERROR_SINCE or not group.error_code else [])
        ],
    )


def _without_offsets(asked: AskedGroup, error: int) -> list[m.OffsetFetchResponse.OffsetFetchResponseTopics]:
    kind = m.OffsetFetchResponse
    return [
        kind.OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                kind.OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in asked.topics or ()
    ]


def _only_group(body: m.OffsetFetchRequest) -> AskedGroup:
    """What was asked before there were many groups."""
    kind = m.OffsetFetchRequest
    return kind.OffsetFetchRequestGroup(
        group_id=body.group_id,
        member_id=None,
        member_epoch=-1,
        topics=None
        if body.topics is None
        else [
            kind.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in body.topics
        ],
    )


def _refused_fetch(request: Request, error: Error, text: str | None) -> m.OffsetFetchResponse:
    raise AssertionError("the groups of a fetch are refused one by one")
