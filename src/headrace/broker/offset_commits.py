"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have read.

A commit is answered when it is committed itself, without a task: its reply has a place on the connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from headrace.broker.slot_reply import SlotReply
from headrace.coordinator.runtime import ASKED_AT_ONCE, Runtime
from headrace.coordinator.shard import Outcome, Reply
from headrace.errors import Error, Refused
from headrace.metrics.requests import RequestFigures
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
COMMITS_THAT_FIT: Final = 1000
"""So few are not counted in bytes before they are made."""
COMMIT_BYTES_MIN: Final = 60
"""What the record of a commit takes at least, beside the name of its group."""
PARTITIONS_A_PIECE: Final = 500
"""Of a group that is asked for very many, each of which takes some microseconds."""


class OffsetCommits:
    __slots__ = ("_groups", "commit_errors", "commit_figures", "delete_errors", "fetch_errors")

    def __init__(self, groups: Runtime[GroupShard]) -> None:
        self._groups = groups
        self.commit_errors: dict[int, int] = {}
        self.commit_figures: RequestFigures | None = None
        """Of the route of OffsetCommit."""
        self.fetch_errors: dict[int, int] = {}
        self.delete_errors: dict[int, int] = {}

    # ------------------------------------------------------------------------------------------------------- committing

    def commit(self, connection: Connection, request: Request) -> None:
        reply = SlotReply(connection, request, refused_commit, self.commit_errors)
        try:
            require_room(self._groups, request.body)
        except Refused as refused:
            reply.refuse(refused.error, refused.text)
            return
        self._groups.ask(request.body.group_id, partial(_commit, request.body, request.version, reply), reply)
        if self.commit_figures is not None:
            # With the first commit: a node without groups starts sooner without it.
            from headrace.broker.repeated_commit import prepare

            prepare(connection, request, self._groups, self.commit_figures)

    # --------------------------------------------------------------------------------------------------------- fetching

    def fetch(self, connection: Connection, request: Request) -> m.OffsetFetchResponse | None:
        body: m.OffsetFetchRequest = request.body
        groups = body.groups if request.version >= GROUPS_SINCE else [_only_group(body)]
        if not groups:
            return m.OffsetFetchResponse()
        reply = SlotReply(connection, request, _refused_fetch, self.fetch_errors)
        pieces = [_pieces(asked) for asked in groups]
        gathered = _Fetches(request, reply, pieces)

        def asks() -> Iterator[None]:
            for number, asked in enumerate(chain.from_iterable(pieces)):
                part = _FetchReply(gathered, number, asked)
                self._groups.ask(
                    asked.group_id, partial(_fetch, asked, request.version, body.require_stable, part), part
                )
                yield

        is_wide = any(len(group) > 1 for group in pieces)
        self._groups.ask_many(asks(), ASKED_AT_ONCE + 1 if is_wide else len(groups))
        return None

    # --------------------------------------------------------------------------------------------------------- deleting

    def delete(self, connection: Connection, request: Request) -> None:
        reply = SlotReply(connection, request, _refused_delete, self.delete_errors)
        self._groups.ask(request.body.group_id, partial(_delete, request.body, reply), reply)


def require_room(groups: Runtime[GroupShard], body: m.OffsetCommitRequest | m.TxnOffsetCommitRequest) -> None:
    """All of a commit is kept in one batch, or nothing. What can't fit is refused before any of it is looked at."""
    count = sum(len(topic.partitions) for topic in body.topics)
    if count < COMMITS_THAT_FIT:
        return
    index = groups.index_of(body.group_id)
    if index < 0 or groups.refusal(index):
        return  # and so is all of it
    bytes_max = groups.find(index).log.config.max_message_bytes
    if count * (COMMIT_BYTES_MIN + len(body.group_id)) > bytes_max:
        raise Refused(Error.UNKNOWN_SERVER_ERROR, f"{count} offsets do not fit into a batch of {bytes_max} bytes.")


def _commit(body: m.OffsetCommitRequest, version: int, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return shard.offsets.commit(body, version, reply, now_ms)


def _fetch(
    asked: AskedGroup, version: int, require_stable: bool, reply: Reply, shard: GroupShard, now_ms: int
) -> Outcome:
    return shard.offsets.fetch(asked, version, require_stable=require_stable, reply=reply)


def _delete(body: m.OffsetDeleteRequest, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return shard.offsets.delete(body, reply)


def refused_commit(request: Request, error: Error, text: str | None) -> m.OffsetCommitResponse:
    from headrace.coordinator.offsets.commit_plan import answer_to_all

    return answer_to_all(request.body, error)


def _refused_delete(request: Request, error: Error, text: str | None) -> m.OffsetDeleteResponse:
    return m.OffsetDeleteResponse(error_code=error)


# ------------------------------------------------------------------------------------------------ many groups at a time


class _Fetches:
    """The reply to one OffsetFetch, which is complete when all of its groups are there, and all pieces of them."""

    __slots__ = ("_found", "_groups", "_left", "_reply", "_request")

    def __init__(self, request: Request, reply: Reply, groups: Sequence[Sequence[AskedGroup]]) -> None:
        """`groups` are in pieces."""
        self._request = request
        self._reply = reply
        self._groups = groups
        self._left = sum(map(len, groups))
        self._found: list[FetchedGroup] = [m.OffsetFetchResponse.OffsetFetchResponseGroup()] * self._left

    def put(self, number: int, found: FetchedGroup) -> None:
        self._found[number] = found
        self._left -= 1
        if not self._left:
            pieces = iter(self._found)
            groups = [_joined(group, [*islice(pieces, len(group))]) for group in self._groups]
            self._reply(_fetched(self._request.version, groups))


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


def _pieces(asked: AskedGroup) -> list[AskedGroup]:
    """What is asked of a group: all at once where that is about few partitions, else some at a time."""
    if asked.topics is None or sum(len(topic.partition_indexes) + 1 for topic in asked.topics) <= PARTITIONS_A_PIECE:
        return [asked]
    kind = m.OffsetFetchRequest
    pieces: list[AskedGroup] = []
    topics: list[m.OffsetFetchRequest.OffsetFetchRequestTopics] = []
    room = 0
    for topic in asked.topics:
        for start in range(0, max(1, len(topic.partition_indexes)), PARTITIONS_A_PIECE):
            some = topic.partition_indexes[start : start + PARTITIONS_A_PIECE]
            if room <= 0:
                topics, room = [], PARTITIONS_A_PIECE
                pieces.append(
                    kind.OffsetFetchRequestGroup(
                        group_id=asked.group_id,
                        member_id=asked.member_id,
                        member_epoch=asked.member_epoch,
                        topics=topics,
                    )
                )
            is_whole = len(some) == len(topic.partition_indexes)
            topics.append(
                topic
                if is_whole
                else kind.OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=some)
            )
            room -= 1 + len(some)
    return pieces


def _joined(asked: Sequence[AskedGroup], found: list[FetchedGroup]) -> FetchedGroup:
    """The pieces of a group as one again, and of a topic. Where one was refused, the group is."""
    first = found[0]
    if len(found) == 1:
        return first
    error = next((piece.error_code for piece in found if piece.error_code), Error.NONE)
    if error:
        first.error_code = error
        for piece, wanted in zip(found, asked, strict=True):
            piece.topics = _without_offsets(wanted, error)
    last = ("", b"")
    topics: list[m.OffsetFetchResponse.OffsetFetchResponseTopics] = []
    for piece in found:
        for topic in piece.topics:
            if topics and (topic.name, topic.topic_id) == last:
                topics[-1].partitions += topic.partitions
            else:
                topics.append(topic)
                last = (topic.name, topic.topic_id)
    first.topics = topics
    return first


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
