"""What members of classic groups ask, and those who look after groups, well and badly (see test_versions).

Sessions and rebalances take a millisecond here, so that nobody waits for the members that these requests leave behind.
"""

from __future__ import annotations

from headrace.protocol import messages as m
from headrace.protocol.message import Message

LONG = "x" * 32_767
LARGE, LEAST = 2**31 - 1, -(2**31)
GROUPS = ("g", "", "none", LONG)
REFUSED_GROUPS = ("", LONG)
"""Their names decide, whatever else is asked. To place a long one takes milliseconds, so little is asked of it."""
PEOPLE: tuple[tuple[str, str | None], ...] = (
    ("", None),
    ("nobody", None),
    ("", "i"),
    ("nobody", "i"),
    ("", ""),
    (LONG, LONG),
    ("", LONG),
)
TIMES: tuple[tuple[int, int], ...] = ((1, 1), (1, LEAST), (LEAST, 1), (LARGE, 1))
"""Of the session, and of a rebalance."""
GENERATIONS = (0, 1, -1, LARGE, LEAST)
PROTOCOLS: tuple[tuple[str, list[str], bytes], ...] = (
    ("consumer", ["range"], b"\0\0\0\0"),
    ("consumer", ["range", "range", LONG], b""),
    (LONG, ["range"], b""),
    ("", [], b""),
    ("consumer", ["other"], b""),
)


def joins(topic_id: bytes) -> list[Message]:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol
    whole = [
        (group_id, *person, *times, *protocols)
        for group_id in ("g", "none")
        for person in PEOPLE
        for times in TIMES
        for protocols in PROTOCOLS
    ]
    few = [(group_id, *person, *TIMES[0], *PROTOCOLS[0]) for group_id in REFUSED_GROUPS for person in PEOPLE]
    return [
        m.JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=kind,
            protocols=[protocol(name=name, metadata=metadata) for name in names],
            reason=LONG,
        )
        for group_id, member_id, instance_id, session_ms, rebalance_ms, kind, names, metadata in (*whole, *few)
    ]


def syncs(topic_id: bytes) -> list[Message]:
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment
    return [
        m.SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=kind,
            protocol_name=kind,
            assignments=[assignment(member_id=member_id, assignment=b"a"), assignment(member_id=LONG)],
        )
        for group_id in GROUPS
        for member_id, instance_id in PEOPLE
        for generation in ((1,) if group_id in REFUSED_GROUPS else GENERATIONS)
        for kind in (None, LONG)
    ]


def heartbeats(topic_id: bytes) -> list[Message]:
    return [
        m.HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        for group_id in GROUPS
        for member_id, instance_id in PEOPLE
        for generation in ((1,) if group_id in REFUSED_GROUPS else GENERATIONS)
    ]


def leaves(topic_id: bytes) -> list[Message]:
    identity = m.LeaveGroupRequest.MemberIdentity
    members = [identity(member_id=who, group_instance_id=instance, reason=LONG) for who, instance in PEOPLE]
    return [
        *(m.LeaveGroupRequest(group_id=group_id, member_id=who) for group_id in GROUPS for who, _ in PEOPLE),
        *(m.LeaveGroupRequest(group_id=group_id, members=some) for group_id in GROUPS for some in ([], members)),
    ]


def listings(topic_id: bytes) -> list[Message]:
    return [
        m.ListGroupsRequest(states_filter=states, types_filter=types)
        for states in ([], ["Stable", " empty"], ["no state"], [LONG])
        for types in ([], ["classic", "Consumer"], ["no type"], [LONG])
    ]


def descriptions(topic_id: bytes) -> list[Message]:
    return [
        m.DescribeGroupsRequest(groups=groups, include_authorized_operations=asked)
        for groups in ([], list(GROUPS), ["g"] * 3)
        for asked in (False, True)
    ]


def deletions(topic_id: bytes) -> list[Message]:
    return [m.DeleteGroupsRequest(groups_names=groups) for groups in ([], ["none"] * 2, list(GROUPS))]


ASKED = {
    11: joins,
    12: heartbeats,
    13: leaves,
    14: syncs,
    15: descriptions,
    16: listings,
    42: deletions,
}
