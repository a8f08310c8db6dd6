"""Groups: what members of the classic protocol ask (JoinGroup, SyncGroup, Heartbeat, LeaveGroup), and what those ask
who look after groups of either protocol (ListGroups, DescribeGroups, DeleteGroups).

A reply may be long in coming: whoever joins waits for the others. It has a place on its connection, and costs no task.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.group_replies import Gathered
from headrace.broker.operations import GROUP_OPERATIONS
from headrace.broker.slot_reply import SlotReply
from headrace.coordinator.groups.listing import listed
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import Outcome, Reply
from headrace.errors import Error, Refused
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.coordinator.groups.shard import GroupShard

    DescribedGroup = m.DescribeGroupsResponse.DescribedGroup
    DeletedGroup = m.DeleteGroupsResponse.DeletableGroupResult


NO_PROTOCOL_SINCE: Final = 7
"""From this version on, JoinGroup can say that there is no protocol (KIP-559)."""
PROTOCOL_SINCE: Final = 5
"""From this version on, SyncGroup must say what the group agreed on (KIP-559)."""
MESSAGE_SINCE: Final = 6
"""From this version on, DescribeGroups has room for a sentence."""


class GroupApis:
    __slots__ = (
        "_groups",
        "delete_errors",
        "describe_errors",
        "heartbeat_errors",
        "join_errors",
        "leave_errors",
        "list_errors",
        "sync_errors",
    )

    def __init__(self, groups: Runtime[GroupShard]) -> None:
        self._groups = groups
        self.join_errors: dict[int, int] = {}
        self.sync_errors: dict[int, int] = {}
        self.heartbeat_errors: dict[int, int] = {}
        self.leave_errors: dict[int, int] = {}
        self.list_errors: dict[int, int] = {}
        self.describe_errors: dict[int, int] = {}
        self.delete_errors: dict[int, int] = {}

    # ---------------------------------------------------------------------------------------------------------- members

    def join(self, connection: Connection, request: Request) -> None:
        kind = _JoinReply if request.version >= NO_PROTOCOL_SINCE else SlotReply
        reply = kind(connection, request, _refused_join, self.join_errors)
        host = "/" + connection.peer_host
        self._groups.ask(request.body.group_id, partial(_join, request, host, reply), reply)

    def sync(self, connection: Connection, request: Request) -> m.SyncGroupResponse | None:
        body: m.SyncGroupRequest = request.body
        if request.version >= PROTOCOL_SINCE and (body.protocol_type is None or body.protocol_name is None):
            return m.SyncGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL)
        reply = SlotReply(connection, request, _refused_sync, self.sync_errors)
        self._groups.ask(body.group_id, partial(_sync, body, reply), reply)
        return None

    def heartbeat(self, connection: Connection, request: Request) -> m.HeartbeatResponse | None:
        """Nearly all of them say nothing new, and are answered at once."""
        body: m.HeartbeatRequest = request.body
        groups = self._groups
        shard = groups.shard_of(body.group_id)
        if shard is not None and shard.classic.is_alive(body, groups.now_ms()):
            return m.HeartbeatResponse()
        reply = SlotReply(connection, request, _refused_heartbeat, self.heartbeat_errors)
        groups.ask(body.group_id, partial(_heartbeat, body, reply), reply)
        return None

    def leave(self, connection: Connection, request: Request) -> None:
        reply = SlotReply(connection, request, _refused_leave, self.leave_errors)
        self._groups.ask(request.body.group_id, partial(_leave, request, reply), reply)

    # --------------------------------------------------------------------------------------------------- administration

    def list(self, connection: Connection, request: Request) -> m.ListGroupsResponse | None:
        """Of the shards on this node. A client asks every node."""
        body: m.ListGroupsRequest = request.body
        indexes = self._groups.indexes()
        if not indexes:
            return m.ListGroupsResponse()
        reply = SlotReply(connection, request, _refused_list, self.list_errors)
        gathered = Gathered(len(indexes), partial(_listed, reply))
        for place, index in enumerate(indexes):
            part = gathered.part(place, _refused_part)
            self._groups.ask_shard(index, partial(_list, body, part), part)
        return None

    def describe(self, connection: Connection, request: Request) -> m.DescribeGroupsResponse | None:
        body: m.DescribeGroupsRequest = request.body
        group_ids = list(dict.fromkeys(body.groups))
        if not group_ids:
            return m.DescribeGroupsResponse()
        reply = SlotReply(connection, request, _refused_describe, self.describe_errors)
        gathered = Gathered(len(group_ids), partial(_described, reply, body))

        def asks() -> Iterator[None]:
            for place, group_id in enumerate(group_ids):
                part = gathered.part(place, partial(_refused_group, group_id, request.version))
                self._groups.ask(group_id, partial(_describe, group_id, request.version, part), part)
                yield

        self._groups.ask_many(asks(), len(group_ids))
        return None

    def delete(self, connection: Connection, request: Request) -> m.DeleteGroupsResponse | None:
        body: m.DeleteGroupsRequest = request.body
        group_ids = list(dict.fromkeys(body.groups_names))
        if not group_ids:
            return m.DeleteGroupsResponse()
        reply = SlotReply(connection, request, _refused_delete, self.delete_errors)
        gathered = Gathered(len(group_ids), partial(_deleted, reply))

        def asks() -> Iterator[None]:
            for place, group_id in enumerate(group_ids):
                part = gathered.part(place, partial(_refused_deletion, group_id))
                self._groups.ask(group_id, partial(_delete, group_id, part), part)
                yield

        self._groups.ask_many(asks(), len(group_ids))
        return None


# What is asked of a shard.


def _join(request: Request, host: str, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return shard.classic.join(request.body, request.version, request.client_id or "", host, reply, now_ms)


def _sync(body: m.SyncGroupRequest, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return shard.classic.sync(body, reply, now_ms)


def _heartbeat(body: m.HeartbeatRequest, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return shard.classic.heartbeat(body, reply, now_ms)


def _leave(request: Request, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return shard.classic.leave(request.body, request.version, reply, now_ms)


def _list(body: m.ListGroupsRequest, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    found = listed(shard.context.groups.values(), body.states_filter, body.types_filter)
    return Outcome(replies=[(reply, m.ListGroupsResponse(groups=found))])


def _describe(group_id: str, version: int, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    return Outcome(replies=[(reply, shard.classic.described(group_id, version))])


def _delete(group_id: str, reply: Reply, shard: GroupShard, now_ms: int) -> Outcome:
    """With all its offsets. Those come first: should the coordinator be lost in between, it is asked again."""
    group = shard.context.groups.get(group_id)
    if group is None:
        raise Refused(Error.GROUP_ID_NOT_FOUND)
    group.validate_delete()
    records = [*shard.offsets.tombstones(group_id), *group.tombstones()]
    shard.classic.forget(group_id)
    return Outcome(records, [(reply, m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id))], is_atomic=False)


# What is answered.


class _JoinReply(SlotReply):
    """Who is refused is told no protocol, not one without a name."""

    __slots__ = ()

    def __call__(self, message: Message, /) -> None:
        assert isinstance(message, m.JoinGroupResponse)
        if message.error_code:
            message.protocol_name = None
        super().__call__(message)


def _listed(reply: Reply, parts: list[m.ListGroupsResponse]) -> None:
    """A shard that another node has by now is that node's to tell of; one that is being loaded is nobody's yet."""
    error = next((part.error_code for part in parts if part.error_code not in (Error.NONE, Error.NOT_COORDINATOR)), 0)
    groups = [] if error else [group for part in parts for group in part.groups]
    reply(m.ListGroupsResponse(error_code=error, groups=groups))


def _described(reply: Reply, body: m.DescribeGroupsRequest, groups: list[DescribedGroup]) -> None:
    for group in groups:
        if body.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
    reply(m.DescribeGroupsResponse(groups=groups))


def _deleted(reply: Reply, results: list[DeletedGroup]) -> None:
    reply(m.DeleteGroupsResponse(results=results))


def _refused_join(request: Request, error: Error, text: str | None) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(error_code=error, member_id=request.body.member_id)


def _refused_sync(request: Request, error: Error, text: str | None) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(error_code=error)


def _refused_heartbeat(request: Request, error: Error, text: str | None) -> m.HeartbeatResponse:
    # Nobody's session ends while its group is loaded, so all is well.
    return m.HeartbeatResponse(error_code=Error.NONE if error is Error.COORDINATOR_LOAD_IN_PROGRESS else error)


def _refused_leave(request: Request, error: Error, text: str | None) -> m.LeaveGroupResponse:
    return m.LeaveGroupResponse(error_code=error)


def _refused_list(request: Request, error: Error, text: str | None) -> m.ListGroupsResponse:
    return m.ListGroupsResponse(error_code=error)


def _refused_part(error: Error, text: str | None) -> m.ListGroupsResponse:
    return m.ListGroupsResponse(error_code=error)


def _refused_describe(request: Request, error: Error, text: str | None) -> m.DescribeGroupsResponse:
    return m.DescribeGroupsResponse(
        groups=[_refused_group(group_id, request.version, error, text) for group_id in request.body.groups]
    )


def _refused_group(group_id: str, version: int, error: Error, text: str | None) -> DescribedGroup:
    said = text if version >= MESSAGE_SINCE else None
    return m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=error, error_message=said)


def _refused_delete(request: Request, error: Error, text: str | None) -> m.DeleteGroupsResponse:
    return m.DeleteGroupsResponse(results=[_refused_deletion(one, error, text) for one in request.body.groups_names])


def _refused_deletion(group_id: str, error: Error, text: str | None) -> DeletedGroup:
    return m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
