"""What voters say to each other to get a leader, and when one ends: Vote, BeginQuorumEpoch, EndQuorumEpoch. PURE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import Error
from headrace.protocol import messages
from headrace.raft.node import rpc
from headrace.raft.node.effects import Reply
from headrace.raft.node.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from headrace.raft.quorum import NO_NODE, Endpoint, OffsetAndEpoch, ReplicaKey, Tally

if TYPE_CHECKING:
    from headrace.protocol.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest, VoteResponse
    from headrace.raft.node.machine import Node


# ---------------------------------------------------------------------------------------------------------------- votes


def count_own_vote(node: Node, tally: Tally, now_ms: int) -> None:
    """A replica that votes is the first to vote for itself. A quorum of one is decided by that."""
    if node.is_voter:
        tally.record(node.local.id, granted=True)
    _settle(node, now_ms)


def tick(node: Node, role: Prospective | Candidate, now_ms: int) -> None:
    """Asks those that have not said anything yet; gives up when its time is over."""
    if now_ms >= role.deadline_ms or not node.may_stand or node.is_stopping:
        if isinstance(role, Candidate) and node.may_stand and not node.is_stopping:
            node.become_prospective(now_ms)
        else:
            _step_back(node, now_ms)
        return
    if isinstance(role, Candidate) and role.is_backing_off:
        return
    pre_vote = isinstance(role, Prospective)
    for voter in role.tally.voters.others(node.local):
        if role.tally.is_open(voter.key.id) and node.requests.may_send(voter.key.id, now_ms):
            node.send(voter.key.id, rpc.vote_request(node, voter, pre_vote=pre_vote), now_ms)


def _settle(node: Node, now_ms: int) -> None:
    """Goes on when the election is decided."""
    role = node.role
    assert isinstance(role, Prospective | Candidate)
    if role.tally.is_won:
        if isinstance(role, Prospective):
            node.become_candidate(now_ms)
        else:
            node.become_leader(list(role.tally.granted), now_ms)
    elif role.tally.is_lost:
        if isinstance(role, Prospective):
            _step_back(node, now_ms)
        elif not role.is_backing_off:
            role.is_backing_off = True
            role.deadline_ms = now_ms + node.backoff_ms()
    else:
        tick(node, role, now_ms)


def _step_back(node: Node, now_ms: int) -> None:
    """It would not be elected now: back to the leader that it knows, or to waiting for one."""
    if node.leader_id not in (NO_NODE, node.local.id):
        node.become_follower(node.epoch, node.leader_id, now_ms)
    else:
        node.become_unattached(node.epoch, now_ms)


def vote_requested(node: Node, request: VoteRequest, reply_to: object, now_ms: int) -> None:
    response = messages.VoteResponse
    error, partition = check(node, request)
    if error:
        node.reply(Reply(reply_to, response(error_code=error)))
        return
    error, granted = _vote(node, request, partition, now_ms)
    node.reply(Reply(reply_to, rpc.leader_response(node, response, error, vote_granted=granted)))


def _vote(node: Node, request: VoteRequest, asked: VoteRequest.PartitionData, now_ms: int) -> tuple[Error, bool]:
    last = OffsetAndEpoch(asked.last_offset, asked.last_offset_epoch)
    # A candidate is in an epoch of its own, in which it has written nothing; a prospective one is in that of its log.
    is_sound = last.offset >= 0 and last.epoch >= 0 and last.epoch - asked.pre_vote < asked.replica_epoch
    if not is_sound or asked.replica_id < 0:
        return Error.INVALID_REQUEST, False
    if asked.replica_epoch < node.epoch:
        return Error.FENCED_LEADER_EPOCH, False
    if asked.replica_epoch > node.epoch:
        node.become_unattached(asked.replica_epoch, now_ms)
    if not _is_meant(node, request.voter_id, asked.voter_directory_id):
        return Error.INVALID_VOTER_KEY, False
    candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
    is_up_to_date = last.is_at_least(node.history.end)
    if asked.pre_vote:
        return Error.NONE, is_up_to_date and _may_want_another(node)
    if not _may_vote(node, candidate, is_up_to_date):
        return Error.NONE, False
    if node.voted is None:
        node.become_unattached(node.epoch, now_ms)
        node.voted = candidate
        node.note(f"votes for node {candidate.id} in epoch {node.epoch}")
    return Error.NONE, True


def _may_want_another(node: Node) -> bool:
    """Whether a pre-vote is granted: not by a leader, and not by a follower whose leader is alive (KIP-996)."""
    return not (isinstance(node.role, Leader) or (isinstance(node.role, Follower) and node.role.has_fetched))


def _may_vote(node: Node, candidate: ReplicaKey, is_up_to_date: bool) -> bool:
    if node.voted is not None:
        return node.voted == candidate and node.leader_id == NO_NODE
    return node.leader_id == NO_NODE and is_up_to_date and isinstance(node.role, Unattached | Prospective)


def vote_answered(node: Node, peer: int, request: VoteRequest, response: VoteResponse, now_ms: int) -> bool:
    answer = rpc.partition_of(response)
    if answer is None:
        return False
    asked = rpc.partition_of(request)
    if not heed_answer(node, response, answer, now_ms):
        return False
    if asked.replica_epoch != node.epoch or answer.leader_epoch != node.epoch:
        return True
    if answer.error_code not in (Error.NONE, Error.INVALID_VOTER_KEY):
        return False
    role = node.role
    if isinstance(role, Prospective if asked.pre_vote else Candidate):
        # A replica that is not the voter any more (hazard 12) has no vote to give: the voter's is lost.
        role.tally.record(peer, granted=answer.vote_granted and not answer.error_code)
        _settle(node, now_ms)
    return True


# ------------------------------------------------------------------------------------------------ the begin and the end


def announce(node: Node, role: Leader, now_ms: int) -> None:
    """Tells the voters that have not fetched yet who leads. Those that have know it."""
    if now_ms < role.announce_ms:
        return
    role.announce_ms = now_ms + node.timing.begin_quorum_epoch_ms
    for voter in node.voters.others(node.local):
        if voter.key.id not in role.acknowledged:
            node.send(voter.key.id, rpc.begin_quorum_epoch_request(node, voter), now_ms)


def begin_requested(node: Node, request: BeginQuorumEpochRequest, reply_to: object, now_ms: int) -> None:
    response = messages.BeginQuorumEpochResponse
    error, partition = check(node, request)
    if error:
        node.reply(Reply(reply_to, response(error_code=error)))
        return
    error = _hear_leader(node, partition.leader_id, partition.leader_epoch, _endpoints_of(request), now_ms)
    if not error and not _is_meant(node, request.voter_id, partition.voter_directory_id):
        error = Error.INVALID_VOTER_KEY
    node.reply(Reply(reply_to, rpc.leader_response(node, response, error)))
    node.tick(now_ms)


def begin_answered(node: Node, peer: int, request: BeginQuorumEpochRequest, response: Any, now_ms: int) -> bool:
    answer = rpc.partition_of(response)
    if answer is None or not heed_answer(node, response, answer, now_ms):
        return False
    if isinstance(node.role, Leader) and not answer.error_code and answer.leader_epoch == node.epoch:
        node.role.acknowledged[peer] = None
    return not answer.error_code


def tell_of_the_end(node: Node, role: Resigned, now_ms: int) -> None:
    for peer in role.untold:
        if node.requests.may_send(peer, now_ms):
            node.send(peer, rpc.end_quorum_epoch_request(node, role.preferred), now_ms)


def end_requested(node: Node, request: EndQuorumEpochRequest, reply_to: object, now_ms: int) -> None:
    response = messages.EndQuorumEpochResponse
    error, partition = check(node, request)
    if error:
        node.reply(Reply(reply_to, response(error_code=error)))
        return
    leader_id = partition.leader_id
    error = _hear_leader(node, leader_id, partition.leader_epoch, _endpoints_of(request), now_ms)
    role = node.role
    if not error and isinstance(role, Follower) and role.leader_id == leader_id:
        candidates = [ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in partition.preferred_candidates] or [
            ReplicaKey(id) for id in partition.preferred_successors
        ]
        role.deadline_ms = now_ms + _succession_ms(node, candidates)
        role.has_fetched = False  # the leader itself says that another is wanted
        node.note(f"hears that node {leader_id} leads epoch {node.epoch} no more")
    node.reply(Reply(reply_to, rpc.leader_response(node, response, error)))
    node.tick(now_ms)


def _succession_ms(node: Node, candidates: list[ReplicaKey]) -> int:
    """How long a follower waits: the first in line not at all, each one behind twice as long as the one before."""
    most_ms = node.timing.election_backoff_max_ms
    place = next((number for number, key in enumerate(candidates) if key.matches(node.local)), len(candidates))
    if place == 0:
        return 0
    return most_ms if place >= len(candidates) else (most_ms >> (len(candidates) - 1)) << (place - 1)


def end_answered(node: Node, peer: int, request: EndQuorumEpochRequest, response: Any, now_ms: int) -> bool:
    answer = rpc.partition_of(response)
    if answer is None or not heed_answer(node, response, answer, now_ms):
        return False
    if isinstance(node.role, Resigned) and not answer.error_code:
        node.role.untold.pop(peer, None)
    return not answer.error_code


# --------------------------------------------------------------------------------------------------- who is listened to


def heed(node: Node, leader_id: int, epoch: int, endpoints: tuple[Endpoint, ...], now_ms: int) -> bool:
    """Takes in who leads and in which epoch. False when that contradicts what is known: an epoch has one leader."""
    if epoch < node.epoch:
        return True
    if epoch == node.epoch:
        if leader_id == NO_NODE or (leader_id == node.leader_id and not isinstance(node.role, Unattached)):
            return True
        if node.leader_id not in (NO_NODE, leader_id) or leader_id == node.local.id:
            node.note(
                f"is told that node {leader_id} leads epoch {epoch}, which node {node.leader_id} does: not heeded"
            )
            return False
    if leader_id == NO_NODE:
        node.become_unattached(epoch, now_ms)
    elif leader_id == node.local.id:
        node.become_resigned(epoch, now_ms)
    else:
        node.learn_endpoints(leader_id, endpoints)
        node.become_follower(epoch, leader_id, now_ms)
    return True


def heed_answer(node: Node, response: Any, leader: Any, now_ms: int) -> bool:
    """`leader` is the part of a response that tells who leads, and in which epoch."""
    endpoints = tuple(
        Endpoint("", endpoint.host, endpoint.port)
        for endpoint in response.node_endpoints
        if endpoint.node_id == leader.leader_id
    )
    return heed(node, leader.leader_id, leader.leader_epoch, endpoints, now_ms)


def _hear_leader(node: Node, leader_id: int, epoch: int, endpoints: tuple[Endpoint, ...], now_ms: int) -> Error:
    """A request that says: I lead this epoch."""
    if epoch < node.epoch:
        return Error.FENCED_LEADER_EPOCH
    if leader_id < 0 or leader_id == node.local.id:
        return Error.INVALID_REQUEST
    return Error.NONE if heed(node, leader_id, epoch, endpoints, now_ms) else Error.INVALID_REQUEST


def check(node: Node, request: Any) -> tuple[Error, Any]:
    """The partition that a request is about, if it is for this cluster and this topic."""
    if request.cluster_id is not None and node.cluster_id is not None and request.cluster_id != node.cluster_id:
        return Error.INCONSISTENT_CLUSTER_ID, None
    partition = rpc.partition_of(request)
    return (Error.INVALID_REQUEST if partition is None else Error.NONE), partition


def _is_meant(node: Node, voter_id: int, voter_directory_id: bytes) -> bool:
    """A voter with this id and another directory was asked, which this replica is not (hazard 12)."""
    return voter_id == NO_NODE or ReplicaKey(voter_id, voter_directory_id).matches(node.local)


def _endpoints_of(request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in request.leader_endpoints)
