"""The classic groups of a shard, and what is asked of them. PURE.

A request is answered by an outcome: records to write, replies to send. What members wait for is kept in the groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from headrace.config.topic import LogConfig
from headrace.coordinator.groups.classic import records, views
from headrace.coordinator.groups.classic.answers import (
    SEVERAL_LEAVE_VERSION,
    UNKNOWN_MEMBER,
    dismiss,
    join_refused,
    left,
    sync_refused,
    synced,
)
from headrace.coordinator.groups.classic.group import ClassicGroup
from headrace.coordinator.groups.classic.joins import Joining, Joins
from headrace.coordinator.groups.classic.member import protocols_of
from headrace.coordinator.groups.classic.rebalance import Rebalances
from headrace.coordinator.groups.classic.sessions import Sessions
from headrace.coordinator.groups.classic.states import HEARTBEAT, State
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.group import Group, SimpleGroup
from headrace.coordinator.groups.note import in_their_words
from headrace.coordinator.shard import Outcome, ProducerStamp, Reply
from headrace.coordinator.state_topic import CONSUMER_OFFSETS, fits_key
from headrace.errors import Error, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.image import ResourceType
from headrace.protocol import messages as m
from headrace.protocol.shape import Kind
from headrace.protocol.state import decode_key, decode_value

GROUP_METADATA: Final = 2
"""The kind of the records."""
MAX_MESSAGE_BYTES: Final = LogConfig.settings["max.message.bytes"]
BATCH_OVERHEAD_BYTES: Final = 200
"""What a batch takes besides its only record, and more."""
LEAVING_MAX: Final = 1000
"""How much is said of those who leave together."""
_PREFIX_MAX: Final = 249
"""How much of a client's id or instance id is taken into its member id."""


class OtherProtocol(Protocol):
    """Whoever answers members that speak the classic protocol to a group that has gone over to the new one."""

    def classic_join(self, group: Group, joining: Joining, now_ms: int) -> Outcome: ...
    def classic_sync(self, group: Group, body: m.SyncGroupRequest, reply: Reply, now_ms: int) -> Outcome: ...
    def classic_heartbeat(self, group: Group, body: m.HeartbeatRequest, reply: Reply, now_ms: int) -> Outcome: ...
    def classic_leave(
        self, group: Group, body: m.LeaveGroupRequest, version: int, reply: Reply, now_ms: int
    ) -> Outcome:
        """Of `version` 3 and later there is an answer for each member, before only one error (`left`)."""


class ClassicGroups:
    __slots__ = (
        "_config",
        "_context",
        "_groups",
        "_is_loaded",
        "_joins",
        "_too_large",
        "other_protocol",
        "rebalances",
        "sessions",
    )

    kinds = (GROUP_METADATA,)

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._groups = context.groups
        self._config = context.group_config
        self.sessions = Sessions(context.timers, self._went_silent)
        self.rebalances = Rebalances(
            self._config, context.timers, self.sessions, self._forget_if_nobody_came, self._record_bytes_max
        )
        self._joins = Joins(self.rebalances, self.sessions, self._config.group_max_size)
        self._is_loaded = False
        self._too_large: list[ClassicGroup] = []
        self.other_protocol: OtherProtocol | None = None

    # Requests of members.

    def join(
        self, body: m.JoinGroupRequest, version: int, client_id: str, client_host: str, reply: Reply, now_ms: int
    ) -> Outcome:
        out = Outcome()
        if error := self._unacceptable(body):
            out.replies.append((reply, join_refused(error, body.member_id)))
            return out
        has_rebalance_timeout = version >= 1 and body.rebalance_timeout_ms >= 0
        joining = Joining(
            member_id=body.member_id,
            instance_id=body.group_instance_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=body.rebalance_timeout_ms if has_rebalance_timeout else body.session_timeout_ms,
            session_timeout_ms=body.session_timeout_ms,
            protocol_type=body.protocol_type,
            protocols=protocols_of(body.protocols),
            version=version,
            reply=reply,
            reason=body.reason,
        )
        known = self._groups.get(body.group_id)
        if known is not None and not isinstance(known, ClassicGroup | SimpleGroup) and not known.is_empty:
            if self.other_protocol is not None:
                return self.other_protocol.classic_join(known, joining, now_ms)
            out.replies.append((reply, join_refused(Error.INCONSISTENT_GROUP_PROTOCOL)))
            return out
        group = known if isinstance(known, ClassicGroup) else None
        if group is None:
            if body.member_id:
                out.replies.append((reply, join_refused(Error.UNKNOWN_MEMBER_ID, body.member_id)))
                return out
            group = ClassicGroup(body.group_id, now_ms)
            if not group.supports(joining.protocol_type, joining.protocols):
                out.replies.append((reply, join_refused(Error.INCONSISTENT_GROUP_PROTOCOL)))
                return out
            if known is not None:
                group.may_have_offsets = True
                out.records += known.tombstones()  # of an empty group of the new protocol
            self._groups[body.group_id] = group
        new_id = self._new_id(body.group_instance_id or client_id) if not body.member_id else ""
        self._joins.join(group, joining, new_id, out, now_ms)
        return out

    def join_group(self, group: ClassicGroup, joining: Joining, out: Outcome, now_ms: int) -> None:
        """To a group that came from the new protocol just now."""
        new_id = "" if joining.member_id else self._new_id(joining.instance_id or joining.client_id)
        self._joins.join(group, joining, new_id, out, now_ms)

    def _unacceptable(self, body: m.JoinGroupRequest) -> Error:
        if not body.group_id:
            return Error.INVALID_GROUP_ID
        config = self._config
        if not config.group_min_session_timeout_ms <= body.session_timeout_ms <= config.group_max_session_timeout_ms:
            return Error.INVALID_SESSION_TIMEOUT
        # It could never be written. Kafka finds out when the leader has assigned, and all members pay for it.
        if sum(len(protocol.metadata) for protocol in body.protocols) > self._record_bytes_max():
            return Error.UNKNOWN_SERVER_ERROR
        names = (body.protocol_type, body.group_instance_id or "", *(protocol.name for protocol in body.protocols))
        return Error.NONE if all(map(fits_key, names)) else Error.UNKNOWN_SERVER_ERROR

    @property
    def record_bytes_max(self) -> int:
        return self._record_bytes_max()

    def _record_bytes_max(self) -> int:
        """What the topic has room for. Groups of thousands of members need more than the default."""
        said = self._context.image.settings(ResourceType.TOPIC, CONSUMER_OFFSETS).get(MAX_MESSAGE_BYTES.name)
        most = MAX_MESSAGE_BYTES.default if said is None else int(said)
        return int(most) - BATCH_OVERHEAD_BYTES

    def _new_id(self, prefix: str) -> str:
        text = self._context.random_bytes(16).hex()
        return f"{prefix[:_PREFIX_MAX]}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def sync(self, body: m.SyncGroupRequest, reply: Reply, now_ms: int) -> Outcome:
        out = Outcome()
        if not body.group_id:
            raise Refused(Error.INVALID_GROUP_ID)
        group = self._groups.get(body.group_id)
        if group is None or group.is_empty:
            raise Refused(Error.UNKNOWN_MEMBER_ID)
        if not isinstance(group, ClassicGroup):
            if self.other_protocol is None:
                raise Refused(Error.UNKNOWN_MEMBER_ID)
            return self.other_protocol.classic_sync(group, body, reply, now_ms)
        member = group.require_member(body.member_id, body.group_instance_id)
        if body.generation_id != group.generation:
            raise Refused(Error.ILLEGAL_GENERATION)
        if _differs(body.protocol_type, group.protocol_type) or _differs(body.protocol_name, group.protocol):
            raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL)
        if group.phase is State.PREPARING_REBALANCE:
            raise Refused(Error.REBALANCE_IN_PROGRESS)
        self.rebalances.has_synced(group, member)
        if group.phase is State.STABLE:
            out.replies.append((reply, synced(group, member.assignment)))
            return out
        if member.sync_reply is not None:  # it asks again; the answer goes to where it asks from now
            out.replies.append((member.sync_reply, sync_refused(Error.REBALANCE_IN_PROGRESS)))
        member.sync_reply = reply
        if group.leader == member.member_id:
            assignments = {one.member_id: one.assignment for one in body.assignments}
            self.rebalances.assign(group, assignments, out, now_ms)
        return out

    def is_alive(self, body: m.HeartbeatRequest, now_ms: int) -> bool:
        """A heartbeat that needs no other answer than that all is well: nearly all of them, thousands a second."""
        group = self._groups.get(body.group_id)
        if not isinstance(group, ClassicGroup):
            return False
        member = group.members.get(body.member_id)
        if (
            member is None
            or body.generation_id != group.generation
            or body.group_instance_id != member.instance_id
            or HEARTBEAT[group.phase]
        ):
            return False
        member.deadline_ms = now_ms + member.session_timeout_ms
        return True

    def heartbeat(self, body: m.HeartbeatRequest, reply: Reply, now_ms: int) -> Outcome:
        if not body.group_id:
            raise Refused(Error.INVALID_GROUP_ID)
        group = self._groups.get(body.group_id)
        if isinstance(group, ClassicGroup):
            member = group.require_member(body.member_id, body.group_instance_id)
            if body.generation_id != group.generation:
                raise Refused(Error.ILLEGAL_GENERATION)
            self.sessions.heard_of(group, member, now_ms)
            return Outcome(replies=[(reply, m.HeartbeatResponse(error_code=HEARTBEAT[group.phase]))])
        if group is None or isinstance(group, SimpleGroup) or self.other_protocol is None:
            raise Refused(Error.UNKNOWN_MEMBER_ID)
        return self.other_protocol.classic_heartbeat(group, body, reply, now_ms)

    def leave(self, body: m.LeaveGroupRequest, version: int, reply: Reply, now_ms: int) -> Outcome:
        if version < SEVERAL_LEAVE_VERSION:
            body.members = [m.LeaveGroupRequest.MemberIdentity(member_id=body.member_id)]
        if not body.group_id:
            raise Refused(Error.INVALID_GROUP_ID)
        group = self._groups.get(body.group_id)
        if group is not None and not isinstance(group, ClassicGroup | SimpleGroup) and self.other_protocol is not None:
            return self.other_protocol.classic_leave(group, body, version, reply, now_ms)
        out = Outcome()
        errors = [
            self._leaves(group, one, out) if isinstance(group, ClassicGroup) else Error.UNKNOWN_MEMBER_ID
            for one in body.members
        ]
        if isinstance(group, ClassicGroup) and Error.NONE in errors:
            if group.phase is not State.EMPTY:
                some = ", ".join(_leaving(who) for who, error in zip(body.members, errors, strict=True) if not error)
                self.rebalances.go_on(group, f"{some[:LEAVING_MAX]} left", out, now_ms)
            self._forget_if_nobody_came(group)
        out.replies.append((reply, left(body, errors, version)))
        return out

    def _leaves(self, group: ClassicGroup, who: m.LeaveGroupRequest.MemberIdentity, out: Outcome) -> Error:
        member_id: str | None = who.member_id
        if member_id in group.pending:
            self.sessions.expect_no_more(group, who.member_id)
            del group.pending[who.member_id]
            return Error.NONE
        if not member_id:  # whoever administers the group names a static member by its instance id alone
            member_id = group.instances.get(who.group_instance_id or "")
            if member_id is None:
                return Error.UNKNOWN_MEMBER_ID
        try:
            member = group.require_member(member_id, who.group_instance_id)
        except Refused as refused:
            return refused.error
        self.rebalances.remove(group, member, Error.UNKNOWN_MEMBER_ID, out)
        return Error.NONE

    def _went_silent(self, group: ClassicGroup, member_id: str, now_ms: int, out: Outcome) -> None:
        member = group.members.get(member_id)
        if member is None:
            self._joins.give_up_pending(group, member_id, out, now_ms)
        else:
            self.rebalances.remove(group, member, Error.UNKNOWN_MEMBER_ID, out)
            if group.phase is not State.PREPARING_REBALANCE:
                self.rebalances.prepare(group, out, now_ms, f"{member_id} was silent for too long")
            elif group.have_all_joined:
                self.rebalances.complete_join(group, out, now_ms)
        self._forget_if_nobody_came(group)

    def _forget_if_nobody_came(self, group: ClassicGroup) -> None:
        """A group that is not in the log and that nobody is expected in any more leaves no trace."""
        if group.phase is State.EMPTY and not group.pending and group.stored is None:
            if group.may_have_offsets:
                self._groups[group.group_id] = SimpleGroup(group.group_id)
            elif self._groups.get(group.group_id) is group:
                del self._groups[group.group_id]

    # Administration.

    def described(self, group_id: str, version: int) -> m.DescribeGroupsResponse.DescribedGroup:
        return views.described(group_id, self._groups.get(group_id), version)

    def forget(self, group_id: str) -> None:
        """A group that is deleted, and of which the log may not know."""
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup) and group.stored is None:
            self.rebalances.drop(group)
            del self._groups[group_id]

    # The log.

    def replay(
        self, kind: int, key: bytes, value: bytes | None, offset: int, timestamp_ms: int, stamp: ProducerStamp | None
    ) -> None:
        record_key = decode_key(Kind.GROUP, key)
        assert isinstance(record_key, m.GroupMetadataKey)
        group = self._groups.get(record_key.group)
        if value is None:
            if isinstance(group, ClassicGroup) and group.stored is not None:
                self.rebalances.drop(group)
                del self._groups[record_key.group]
            return
        decoded = decode_value(Kind.GROUP, record_key, value)
        assert isinstance(decoded, m.GroupMetadataValue)
        if self._is_loaded and isinstance(group, ClassicGroup):
            self.rebalances.replayed(group, decoded)
        else:
            self._groups[record_key.group] = from_log(record_key.group, decoded)

    def settle(self, now_ms: int) -> Iterator[None]:
        """Members go on as they were, and their sessions begin anew: nobody could be heard meanwhile."""
        for group in list(self._groups.values()):
            if isinstance(group, ClassicGroup):
                self.take_in(group, now_ms)
                if len(group.members) > self._config.group_max_size:
                    self._too_large.append(group)
            yield

    def loaded(self, now_ms: int) -> Outcome:
        self._is_loaded = True
        out = Outcome()
        too_large, self._too_large = self._too_large, []
        for group in too_large:
            self.rebalances.prepare(group, out, now_ms, "there are more members than may be")
        return out

    def take_in(self, group: ClassicGroup, now_ms: int) -> None:
        """A group from the log, or from the new protocol, is this part's to look after."""
        self._groups[group.group_id] = group
        for member in group.members.values():
            self.sessions.heard_of(group, member, now_ms)

    def give_away(self, group: ClassicGroup) -> None:
        """To the new protocol. Whoever waits is to be answered by the caller (`answers.dismiss`)."""
        self.rebalances.drop(group)
        self._groups.pop(group.group_id, None)

    def image_changed(self, delta: Delta, now_ms: int) -> Outcome:
        """Members of classic groups look after topics themselves."""
        return Outcome()

    def unloaded(self, now_ms: int) -> Outcome:
        out = Outcome()
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    dismiss(group, member, Error.NOT_COORDINATOR, UNKNOWN_MEMBER, out)
        return out


def from_log(group_id: str, value: m.GroupMetadataValue) -> ClassicGroup:
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.protocol_type = value.protocol_type
    for stored in value.members:
        group.add(records.member_of(stored, value.protocol), value.protocol_type)
    group.generation = value.generation
    group.protocol = value.protocol
    if value.leader in group.members:
        group.leader = value.leader
    group.phase = State.STABLE if value.members else State.EMPTY
    group.stored = value
    group.find_subscribed_topics()
    return group


def _leaving(who: m.LeaveGroupRequest.MemberIdentity) -> str:
    return f"{who.member_id or who.group_instance_id}{in_their_words(who.reason)}"


def _differs(said: str | None, agreed: str | None) -> bool:
    """Older clients do not say."""
    return said is not None and agreed is not None and said != agreed
