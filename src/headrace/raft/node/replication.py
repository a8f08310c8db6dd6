"""Fetches: a leader answers them and counts by them, a follower sends them and appends what comes back. PURE.

A fetch says two things: send what comes from this offset on, and what is before it is durable here. The last epoch that
comes with it says whether both logs are the same up to there; when not, the answer names where to cut (KIP-595).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import Error, ProtocolError
from headrace.protocol import messages
from headrace.protocol.batch import Batch, scan
from headrace.raft.node import election, rpc, snapshots
from headrace.raft.node.effects import Append, Reply, Truncate
from headrace.raft.node.history import Verdict
from headrace.raft.node.roles import Follower, Leader, Progress, WaitingFetch
from headrace.raft.quorum import ReplicaKey

if TYPE_CHECKING:
    from headrace.protocol.messages import FetchRequest, FetchResponse
    from headrace.raft.node.machine import Node

REPLICAS_MAX: Final = 10_000
"""How many a leader keeps count of."""


# ----------------------------------------------------------------------------------------------------------- the leader


def fetch_requested(node: Node, request: FetchRequest, reply_to: object, now_ms: int) -> None:
    error, asked = election.check(node, request)
    if error:
        node.reply(Reply(reply_to, messages.FetchResponse(error_code=error)))
        return
    error = _objection(node, request, asked)
    if error:
        node.reply(Reply(reply_to, rpc.fetch_response(node, error)))
        return
    response = messages.FetchResponse
    place = node.history.place_of(asked.fetch_offset, asked.last_fetched_epoch)
    match place.verdict:
        case Verdict.DIVERGING:
            end = response.EpochEndOffset(epoch=place.at.epoch, end_offset=place.at.offset)
            node.reply(Reply(reply_to, rpc.fetch_response(node, Error.NONE, diverging_epoch=end)))
        case Verdict.SNAPSHOT:
            id = response.SnapshotId(end_offset=place.at.offset, epoch=place.at.epoch)
            node.reply(Reply(reply_to, rpc.fetch_response(node, Error.NONE, snapshot_id=id)))
        case Verdict.VALID:
            replica = ReplicaKey(_replica_id(request), asked.replica_directory_id)
            bytes_max = min(request.max_bytes, asked.partition_max_bytes)
            fetch = WaitingFetch(
                replica, reply_to, asked.fetch_offset, asked.high_watermark, bytes_max, now_ms + request.max_wait_ms
            )
            _fetched(node, fetch, now_ms)


def _objection(node: Node, request: FetchRequest, asked: FetchRequest.FetchPartition) -> Error:
    if (
        request.max_wait_ms < 0
        or asked.fetch_offset < 0
        or asked.last_fetched_epoch < 0
        or asked.last_fetched_epoch > asked.current_leader_epoch
        or _replica_id(request) == node.local.id
    ):
        return Error.INVALID_REQUEST
    return leader_objection(node, asked.current_leader_epoch)


def leader_objection(node: Node, epoch: int) -> Error:
    """Why a request that only the leader of an epoch may answer is refused (hazard 4)."""
    if epoch < node.epoch:
        return Error.FENCED_LEADER_EPOCH
    if epoch > node.epoch:
        return Error.UNKNOWN_LEADER_EPOCH
    return Error.NONE if node.is_leader else Error.NOT_LEADER_OR_FOLLOWER


def _replica_id(request: FetchRequest) -> int:
    """In a field of its own until version 14."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def _fetched(node: Node, fetch: WaitingFetch, now_ms: int) -> None:
    role = node.role
    assert isinstance(role, Leader)
    earlier = role.waiting.pop(fetch.replica, None)
    if earlier is not None:
        _answer(node, earlier)
    if fetch.replica.id >= 0 and (fetch.replica in role.progress or len(role.progress) < REPLICAS_MAX):
        role.progress.setdefault(fetch.replica, Progress()).fetched(fetch.offset, node.history.end_offset, now_ms)
        if fetch.replica in node.voters:
            role.acknowledged[fetch.replica.id] = None
            note_fetch(node, role, fetch.replica, now_ms)
            node.advance_high_watermark(now_ms)
    if not node.is_leader:  # that was the commit of its own removal
        node.reply(Reply(fetch.reply_to, rpc.fetch_response(node, Error.NOT_LEADER_OR_FOLLOWER)))
    elif _is_due(node, fetch) or fetch.deadline_ms <= now_ms:
        _answer(node, fetch)
    else:
        role.waiting[fetch.replica] = fetch


def note_fetch(node: Node, role: Leader, replica: ReplicaKey, now_ms: int) -> None:
    """Check-quorum: a leader that a majority fetches from is one. It counts itself, if it votes."""
    if replica not in node.voters:
        return
    role.fetched[replica.id] = None
    if len(role.fetched) + node.is_voter >= node.voters.majority:
        role.fetched.clear()
        role.check_quorum_ms = now_ms + node.timing.check_quorum_ms


def _is_due(node: Node, fetch: WaitingFetch) -> bool:
    """There is something new: records, or that more are committed than the follower knows (KIP-1166)."""
    return fetch.offset < node.history.end_offset or fetch.high_watermark < node.high_watermark


def _answer(node: Node, fetch: WaitingFetch) -> None:
    read_from = fetch.offset if fetch.offset < node.history.end_offset else None
    response = rpc.fetch_response(node, Error.NONE)
    node.reply(Reply(fetch.reply_to, response, read_from=read_from, bytes_max=fetch.bytes_max))


def wake_fetches(node: Node, role: Leader) -> None:
    for fetch in list(role.waiting.values()):
        if _is_due(node, fetch):
            del role.waiting[fetch.replica]
            _answer(node, fetch)


def expire_fetches(node: Node, role: Leader, now_ms: int) -> None:
    for fetch in list(role.waiting.values()):
        if fetch.deadline_ms <= now_ms:
            del role.waiting[fetch.replica]
            _answer(node, fetch)


def refuse_fetches(node: Node, role: Leader) -> None:
    """It leads no more: the followers are to look for another one."""
    for fetch in role.waiting.values():
        node.reply(Reply(fetch.reply_to, rpc.fetch_response(node, Error.NOT_LEADER_OR_FOLLOWER)))
    role.waiting.clear()


# --------------------------------------------------------------------------------------------------------- the follower


def fetch_if_due(node: Node, now_ms: int) -> None:
    """Fetches from the leader; without one, from any voter, which may know it.

    What is before the offset must be durable: a leader counts it. One fetch is under way at a time.
    """
    if node.is_stopping or node.installing or node.history.flushed_offset < node.history.end_offset:
        return
    role = node.role
    if isinstance(role, Follower):
        if not node.requests.may_send(role.leader_id, now_ms):
            return
        if role.fetching is None:
            node.send(role.leader_id, rpc.fetch_request(node), now_ms)
        elif not role.fetching.is_complete:
            request = rpc.fetch_snapshot_request(node, role.fetching.id, role.fetching.position)
            node.send(role.leader_id, request, now_ms)
        return
    if now_ms < node.seek_ms:
        return
    node.seek_ms = now_ms + node.timing.seek_ms
    others = [voter.key.id for voter in node.voters.others(node.local)]
    free = [id for id in others if node.requests.may_send(id, now_ms)]
    if free and not node.requests.is_any_under_way():
        node.send(free[node.jitter_ms(len(free) - 1)], rpc.fetch_request(node), now_ms)


def fetch_answered(node: Node, peer: int, request: FetchRequest, response: FetchResponse, now_ms: int) -> bool:
    answer = rpc.partition_of(response)
    if answer is None:
        return False
    asked = rpc.partition_of(request)
    leader = answer.current_leader
    if leader is not None and leader.leader_epoch >= 0 and not election.heed_answer(node, response, leader, now_ms):
        return False
    if answer.error_code:
        return False
    role = node.role
    is_of_the_leader = isinstance(role, Follower) and role.leader_id == peer
    if (
        not is_of_the_leader
        or asked.current_leader_epoch != node.epoch
        or asked.fetch_offset != node.history.end_offset
    ):
        return True  # of an epoch that is over, or from a voter that was asked who leads
    assert isinstance(role, Follower)
    if not _follow(node, role, peer, answer):
        return False
    role.deadline_ms = now_ms + node.timing.fetch_timeout_ms
    role.has_fetched = True
    return True


def _follow(node: Node, role: Follower, peer: int, answer: FetchResponse.PartitionData) -> bool:
    """Takes in what the leader says of its log. False when it makes no sense, so that it is asked again later."""
    diverging, snapshot = answer.diverging_epoch, answer.snapshot_id
    if diverging is not None and diverging.epoch >= 0:
        return _cut(node, peer, diverging.epoch, diverging.end_offset)
    if snapshot is not None and (snapshot.epoch >= 0 or snapshot.end_offset >= 0):
        return snapshots.begin(node, role, peer, snapshot.end_offset, snapshot.epoch)
    if answer.records and not _take(node, peer, memoryview(answer.records)):
        return False
    node.follow_high_watermark(answer.high_watermark)
    return True


def _cut(node: Node, peer: int, epoch: int, end_offset: int) -> bool:
    """The logs part. Cuts back to where this log's part of the named epoch ends, or the leader's: what is first."""
    history = node.history
    ours = history.end_of(epoch)
    offset = min(end_offset, ours.offset) if ours.epoch == epoch else ours.offset
    if offset < max(node.high_watermark, history.start_offset) or offset >= history.end_offset:
        node.note(
            f"is told by node {peer} to cut its log at offset {offset}, which ends at {history.end_offset} and is "
            f"committed up to {node.high_watermark}; it does not"
        )
        return False
    node.note(f"cuts its log from offset {history.end_offset} back to {offset}")
    history.truncated(offset)
    node.write(Truncate(offset))
    return True


def _take(node: Node, peer: int, records: memoryview) -> bool:
    """Appends the whole batches of an answer."""
    base_offset = node.history.end_offset
    try:
        batches = list(scan(records, partial=True))
        for batch in batches:
            batch.verify()
            _check_batch(node, batch)
            node.history.appended(batch)
    except ProtocolError as error:
        node.history.truncated(base_offset)
        node.note(f"is sent records by node {peer} that it can't take: {error}")
        return False
    if batches:
        content = records[: batches[-1].end]
        node.write(Append(base_offset, node.history.end_offset, node.epoch, content))
    return True


def _check_batch(node: Node, batch: Batch) -> None:
    history = node.history
    if batch.base_offset != history.end_offset or batch.last_offset_delta < 0:
        raise ProtocolError(f"offset {history.end_offset} is next, and {batch.base_offset} came")
    if not history.last_epoch <= batch.partition_leader_epoch <= node.epoch:
        raise ProtocolError(f"epoch {batch.partition_leader_epoch} can't follow {history.last_epoch} in {node.epoch}")
