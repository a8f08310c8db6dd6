"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the new consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.operations import GROUP_OPERATIONS
from headrace.broker.slot_reply import SlotReply
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import Operation, Outcome, Reply
from headrace.errors import Error
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.coordinator.groups.shard import GroupShard

    DescribedGroup = m.ConsumerGroupDescribeResponse.DescribedGroup


class ConsumerGroupApis:
    __slots__ = ("_groups", "describe_errors", "heartbeat_errors")

    def __init__(self, groups: Runtime[GroupShard]) -> None:
        self._groups = groups
        self.heartbeat_errors: dict[int, int] = {}
        self.describe_errors: dict[int, int] = {}

    def heartbeat(self, connection: Connection, request: Request) -> m.ConsumerGroupHeartbeatResponse | None:
        body: m.ConsumerGroupHeartbeatRequest = request.body
        client_id, host = request.client_id or "", "/" + connection.peer_host
        shard = self._groups.shard_of(body.group_id)
        if shard is not None:
            idle = shard.consumer.idle(body, client_id, host, self._groups.now_ms())
            if idle is not None:
                return idle
        reply = SlotReply(connection, request, _refused_heartbeat, self.heartbeat_errors)
        operation = partial(_heartbeat, body, request.version, client_id, host, reply)
        if body.subscribed_topic_regex:
            # To compile and match an expression may take milliseconds, and hundreds may come together. What is behind
            # it on the connection, such as the member's leave, waits for it.
            connection.mute()
            self._groups.slices.add(self._asks(connection, body.group_id, operation, reply))
        else:
            self._groups.ask(body.group_id, operation, reply)
        return None

    def _asks(
        self, connection: Connection, group_id: str, operation: Operation[GroupShard], reply: SlotReply
    ) -> Iterator[None]:
        self._groups.ask(group_id, operation, reply)
        connection.unmute()
        yield

    def describe(self, connection: Connection, request: Request) -> m.ConsumerGroupDescribeResponse | None:
        body: m.ConsumerGroupDescribeRequest = request.body
        group_ids = list(dict.fromkeys(body.group_ids))
        if not group_ids:
            return m.ConsumerGroupDescribeResponse()
        gathered = _Described(SlotReply(connection, request, _refused_describe, self.describe_errors), body, group_ids)

        def asks() -> Iterator[None]:
            for index, group_id in enumerate(group_ids):
                part = _DescribedReply(gathered, index)
                if group_id:
                    self._groups.ask(group_id, partial(_describe, group_id, part), part)
                else:
                    part.refuse(Error.INVALID_GROUP_ID)
                yield

        self._groups.ask_many(asks(), len(group_ids))
        return None


def _heartbeat(
    body: m.ConsumerGroupHeartbeatRequest,
    version: int,
    client_id: str,
    host: str,
    reply: Reply,
    shard: GroupShard,
    now_ms: int,
) -> Outcome:
    return shard.consumer.heartbeat(body, version, client_id, host, reply, now_ms)


def _describe(group_id: str, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return Outcome(replies=[(reply, shard.consumer.describe(group_id))])


class _Described:
    """Groups of several shards, in the order in which they were asked for."""

    __slots__ = ("_groups", "_is_with_operations", "_left", "_reply", "group_ids")

    def __init__(self, reply: SlotReply, body: m.ConsumerGroupDescribeRequest, group_ids: list[str]) -> None:
        self._reply = reply
        self._is_with_operations = body.include_authorized_operations
        self.group_ids = group_ids
        self._groups: list[DescribedGroup] = [m.ConsumerGroupDescribeResponse.DescribedGroup() for _ in group_ids]
        self._left = len(group_ids)

    def put(self, index: int, group: DescribedGroup) -> None:
        if self._is_with_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        self._groups[index] = group
        self._left -= 1
        if not self._left:
            self._reply(m.ConsumerGroupDescribeResponse(groups=self._groups))


class _DescribedReply:
    __slots__ = ("_gathered", "_index")

    def __init__(self, gathered: _Described, index: int) -> None:
        self._gathered = gathered
        self._index = index

    def __call__(self, message: Message, /) -> None:
        assert isinstance(message, m.ConsumerGroupDescribeResponse.DescribedGroup)
        self._gathered.put(self._index, message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        group_id = self._gathered.group_ids[self._index]
        self._gathered.put(
            self._index,
            m.ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error, error_message=text),
        )


def _refused_heartbeat(request: Request, error: Error, text: str | None) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(error_code=error, error_message=text)


def _refused_describe(request: Request, error: Error, text: str | None) -> m.ConsumerGroupDescribeResponse:
    groups = [
        m.ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error, error_message=text)
        for group_id in request.body.group_ids
    ]
    return m.ConsumerGroupDescribeResponse(groups=groups)
