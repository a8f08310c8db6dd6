"""How a follower gets what the leader's log no longer has: the latest snapshot, part by part (KIP-630). PURE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Error
from headrace.protocol import messages
from headrace.raft.node import election, replication, rpc
from headrace.raft.node.effects import InstallSnapshot, Reply, WriteSnapshot
from headrace.raft.node.roles import Follower, Leader, SnapshotFetch
from headrace.raft.quorum import OffsetAndEpoch, ReplicaKey, VoterSet

if TYPE_CHECKING:
    from headrace.protocol.messages import FetchSnapshotRequest, FetchSnapshotResponse
    from headrace.raft.node.machine import Node


def fetch_requested(node: Node, request: FetchSnapshotRequest, reply_to: object, now_ms: int) -> None:
    error, asked = election.check(node, request)
    if error:
        node.reply(Reply(reply_to, messages.FetchSnapshotResponse(error_code=error)))
        return
    id = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    error = replication.leader_objection(node, asked.current_leader_epoch)
    if not error and id not in node.history.snapshots:
        error = Error.SNAPSHOT_NOT_FOUND
    if not error and asked.position < 0:
        error = Error.POSITION_OUT_OF_RANGE
    response = rpc.fetch_snapshot_response(node, error, id, asked.position)
    if error:
        node.reply(Reply(reply_to, response))
        return
    assert isinstance(node.role, Leader)
    replication.note_fetch(node, node.role, ReplicaKey(request.replica_id, asked.replica_directory_id), now_ms)
    node.reply(Reply(reply_to, response, read_snapshot=id, position=asked.position, bytes_max=request.max_bytes))


def begin(node: Node, role: Follower, peer: int, end_offset: int, epoch: int) -> bool:
    """The leader says that a snapshot is needed. One that would take committed records away makes no sense."""
    id = OffsetAndEpoch(end_offset, epoch)
    if epoch < 0 or end_offset < max(node.high_watermark, node.history.start_offset) or id in node.history.snapshots:
        node.note(f"is told by node {peer} to load snapshot {end_offset}-{epoch}, which can't be; it does not")
        return False
    node.note(f"fetches snapshot {end_offset}-{epoch} from node {peer}")
    role.fetching = SnapshotFetch(id)
    return True


def fetch_answered(
    node: Node, peer: int, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now_ms: int
) -> bool:
    answer = rpc.partition_of(response)
    if answer is None:
        return False
    asked = rpc.partition_of(request)
    leader = answer.current_leader
    if leader is not None and leader.leader_epoch >= 0 and not election.heed_answer(node, response, leader, now_ms):
        return False
    role = node.role
    if not isinstance(role, Follower) or role.fetching is None or asked.current_leader_epoch != node.epoch:
        return True
    fetching = role.fetching
    content = answer.unaligned_records
    is_next = answer.position == fetching.position and answer.snapshot_id.end_offset == fetching.id.offset
    if answer.error_code or not is_next or not len(content) or fetching.position + len(content) > answer.size:
        role.fetching = None  # the leader has another one by now: a fetch will tell which
        return False
    role.deadline_ms = now_ms + node.timing.fetch_timeout_ms
    role.has_fetched = True
    node.write(WriteSnapshot(fetching.id, fetching.position, content))
    fetching.position += len(content)
    if fetching.position == answer.size:
        fetching.is_complete = True
        node.installing = fetching.id
        node.write(InstallSnapshot(fetching.id))
    return True


def installed(node: Node, id: OffsetAndEpoch, voters: VoterSet | None, now_ms: int) -> None:
    """The snapshot is in place and the log begins where it ends. All of it is committed."""
    node.history.restarted(id, voters)
    node.high_watermark = max(node.high_watermark, id.offset)
    _forget(node, id)
    node.tick(now_ms)


def failed(node: Node, id: OffsetAndEpoch, now_ms: int) -> None:
    node.note(f"does not take snapshot {id.offset}-{id.epoch}, and asks again")
    _forget(node, id)
    node.tick(now_ms)


def _forget(node: Node, id: OffsetAndEpoch) -> None:
    node.installing = None
    if isinstance(node.role, Follower) and node.role.fetching is not None and node.role.fetching.id == id:
        node.role.fetching = None
