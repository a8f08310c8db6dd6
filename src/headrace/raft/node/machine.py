"""The node: its state, its transitions between roles, and what each event makes of them. PURE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Error, Refused
from headrace.protocol import messages
from headrace.protocol.batch import scan
from headrace.protocol.control import build_quorum_batch
from headrace.protocol.message import Message
from headrace.raft.node import election, replication, snapshots
from headrace.raft.node.effects import Append, LeaderAndEpoch, QuorumState, Ready, Reply, Send, Write
from headrace.raft.node.history import BOOTSTRAP_OFFSET, History
from headrace.raft.node.requests import Requests
from headrace.raft.node.roles import NEVER_MS, Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from headrace.raft.node.timing import Timing
from headrace.raft.quorum import KRAFT_VERSION, NO_NODE, Endpoint, OffsetAndEpoch, ReplicaKey, VoterSet, high_watermark

if TYPE_CHECKING:
    from headrace.protocol.control import QuorumMessage

LEADER_CHANGE_VERSION: Final = 0  # there is a 1, with directories; Kafka writes 0, and its tools read every one as that
OBSERVER_SESSION_MS: Final = 300_000
"""After so long without a fetch a replica that does not vote is forgotten."""
BACKOFF_BASE_MS: Final = 50


class Node:
    """One replica of the metadata log. Events go in by its methods, all with the time; what to do is in `ready`."""

    __slots__ = (
        "_learnt",
        "_notes",
        "_retries",
        "_sends",
        "_shown",
        "_told",
        "_writes",
        "cluster_id",
        "endpoints",
        "epoch",
        "high_watermark",
        "history",
        "installing",
        "is_stopping",
        "jitter_ms",
        "leader_id",
        "local",
        "requests",
        "role",
        "seek_ms",
        "timing",
        "voted",
    )

    def __init__(
        self,
        local: ReplicaKey,
        *,
        cluster_id: str | None,
        state: QuorumState,
        history: History,
        timing: Timing,
        jitter_ms: Callable[[int], int],
        endpoints: tuple[Endpoint, ...] = (),
    ) -> None:
        """`jitter_ms` gives a number from 0 to its argument, by chance. `start` begins."""
        self.local = local
        self.cluster_id = cluster_id
        self.endpoints = endpoints
        self.history = history
        self.timing = timing
        self.jitter_ms = jitter_ms
        self.epoch, self.leader_id, self.voted = state
        self.high_watermark = -1
        """Unknown until a leader of this or a later epoch says so: it is not kept over a restart."""
        self.is_stopping = False
        self.installing: OffsetAndEpoch | None = None
        """A leader's snapshot that is being put in place: nothing is fetched meanwhile."""
        self.role: Role = Unattached(NEVER_MS)
        self.requests = Requests(timing.request_timeout_ms, timing.retry_backoff_ms)
        self.seek_ms = 0
        """Without a leader, when the next voter is asked whether it knows one."""
        self._learnt: dict[int, tuple[Endpoint, ...]] = {}
        self._retries = 0
        self._writes: list[Write] = []
        self._sends: list[Send | Reply] = []
        self._notes: list[str] = []
        self._told = state
        self._shown = LeaderAndEpoch(NO_NODE, state.epoch), -1

    # -------------------------------------------------------------------------------------------------------- questions

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.local in self.voters

    @property
    def may_stand(self) -> bool:
        """Whether it may be elected: a voter, or one whose removal may not be committed, without which the others
        might have no majority (Raft's dissertation, 4.2.2). It asks for votes and has none itself."""
        return self.is_voter or self.history.voted_before(self.local, self.high_watermark)

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def state(self) -> QuorumState:
        return QuorumState(self.epoch, self.leader_id, self.voted)

    def endpoints_of(self, id: int) -> tuple[Endpoint, ...]:
        if id == self.local.id:
            return self.endpoints
        voter = self.voters.get(id)
        return voter.endpoints if voter is not None and voter.endpoints else self._learnt.get(id, ())

    def learn_endpoints(self, id: int, endpoints: tuple[Endpoint, ...]) -> None:
        """Where a leader is that the voters here do not name."""
        if endpoints:
            self._learnt = {id: endpoints}

    def deadline_ms(self) -> int:
        """When `tick` has something to do, if nothing else happens before."""
        role = self.role
        times = [self.requests.next_ms() or NEVER_MS]
        if isinstance(role, Leader):
            if len(self.voters.others(self.local)):
                times += [role.check_quorum_ms, role.announce_ms]
            times += [waiting.deadline_ms for waiting in role.waiting.values()]
        elif not self.is_stopping and (self.may_stand or not isinstance(role, Unattached)):
            times.append(role.deadline_ms)
        if isinstance(role, Unattached) and not self.is_stopping and len(self.voters.others(self.local)):
            times.append(self.seek_ms)
        return min(times)

    # ----------------------------------------------------------------------------------------------------------- events

    def start(self, now_ms: int) -> None:
        """Takes the role up in which the last stop, clean or not, left it."""
        if self.epoch < self.history.last_epoch:
            # The quorum state was lost and the log was not: what was voted in the log's epoch is not known any more.
            self.note(f"has records of epoch {self.history.last_epoch}, and its quorum state knows epoch {self.epoch}")
            self.become_unattached(self.history.last_epoch, now_ms)
        elif self.leader_id == self.local.id:
            # Records of this epoch that were not durable may be lost: it must not get others in their place.
            others = [voter.key.id for voter in self.voters.others(self.local)]
            self.role = Resigned(self._election_deadline_ms(now_ms), others, [])
        elif self.voted == self.local:
            self.role = Candidate(self.voters, self._election_deadline_ms(now_ms))
            election.count_own_vote(self, self.role.tally, now_ms)
        elif self.leader_id != NO_NODE:
            self.role = Follower(self.leader_id, now_ms + self.timing.fetch_timeout_ms)
        else:
            self.role = Unattached(self._election_deadline_ms(now_ms))
        if not self.is_leader and self.voters.is_only(self.local):
            self.become_prospective(now_ms)
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        """Does what is due."""
        self.requests.expire(now_ms)
        role = self.role
        if isinstance(role, Leader):
            self._tick_leader(role, now_ms)
        elif isinstance(role, Resigned):
            if now_ms >= role.deadline_ms and not self.is_stopping:
                self.become_unattached(self.epoch + 1, now_ms)
                self._stand_if_only(now_ms)
            else:
                election.tell_of_the_end(self, role, now_ms)
        elif isinstance(role, Prospective | Candidate):
            election.tick(self, role, now_ms)
        elif now_ms >= role.deadline_ms and self.may_stand and not self.is_stopping:
            self.become_prospective(now_ms)
        else:
            if now_ms >= role.deadline_ms and isinstance(role, Follower):
                self.become_unattached(self.epoch, now_ms)  # an observer: perhaps another voter knows more
            replication.fetch_if_due(self, now_ms)

    def _tick_leader(self, role: Leader, now_ms: int) -> None:
        others = self.voters.others(self.local)
        if others and now_ms >= role.check_quorum_ms:
            self.note("has not been fetched from by a majority of the voters for too long")
            self.resign(now_ms)
            return
        election.announce(self, role, now_ms)
        replication.expire_fetches(self, role, now_ms)
        stale = [
            key
            for key, progress in role.progress.items()
            if now_ms - progress.last_fetch_ms >= OBSERVER_SESSION_MS and key not in self.voters
        ]
        for key in stale:
            del role.progress[key]

    def requested(self, request: Message, reply_to: object, now_ms: int) -> None:
        """A peer asks. The answer comes out as a `Reply` to `reply_to`, at once or later."""
        _REQUESTED[type(request).__name__](self, request, reply_to, now_ms)

    def answered(self, peer: int, request: Message, response: Message, now_ms: int) -> None:
        """A peer has answered a request of ours, which is the very object that was sent."""
        if not self.requests.answered(peer, request):
            return
        if getattr(response, "error_code", 0):
            self.note(f"asked node {peer} for {_name(request)} and got {Error(response.error_code).name}")  # type: ignore[attr-defined]
            self.requests.failed(peer, now_ms)
        elif not _ANSWERED[type(response).__name__](self, peer, request, response, now_ms):
            self.requests.failed(peer, now_ms)
        self.tick(now_ms)

    def unanswered(self, peer: int, request: Message, now_ms: int) -> None:
        """A request could not be sent, or its connection broke."""
        if self.requests.answered(peer, request):
            self.requests.failed(peer, now_ms)

    def append(self, content: bytearray | memoryview, epoch: int, now_ms: int) -> int:
        """Appends whole batches as the leader of an epoch, in place; returns the offset of the last record.

        Raises Refused when it does not lead, or no longer leads in that epoch (hazard 4): then nothing was appended.
        """
        if not self.is_leader or epoch != self.epoch:
            raise Refused(
                Error.NOT_CONTROLLER,
                f"Node {self.local.id} does not lead the metadata quorum in epoch {epoch}; this is epoch {self.epoch}.",
            )
        view = memoryview(content)
        base_offset = self.history.end_offset
        batches = list(scan(view))
        assert batches, "there is something to append"
        for batch in batches:
            batch.assign(self.history.end_offset, epoch)
            self.history.appended(batch)
        end_offset = self.history.end_offset
        self._writes.append(Append(base_offset, end_offset, epoch, view))
        assert isinstance(self.role, Leader)
        replication.wake_fetches(self, self.role)
        return end_offset - 1

    def append_control(self, quorum_messages: list[QuorumMessage], now_ms: int) -> int:
        """Appends records of the quorum's own."""
        return self.append(build_quorum_batch(quorum_messages, timestamp_ms=now_ms), self.epoch, now_ms)

    def change_voters(self, voters: VoterSet, now_ms: int) -> int:
        """Replaces the voters by a set that differs by one (KIP-853); returns the offset of the record that says so.

        Only one change is under way at a time, and only by a leader that has committed a record of its epoch: else two
        majorities without a voter in common could decide.
        """
        if not isinstance(self.role, Leader):
            raise Refused(Error.NOT_CONTROLLER, f"Node {self.local.id} does not lead the metadata quorum.")
        if not self.role.is_committed or self.history.voters_offset >= self.high_watermark:
            raise Refused(Error.REQUEST_TIMED_OUT, "Another change of the voters is not committed yet; try again.")
        if not len(voters) or not voters.overlaps_majorities_of(self.voters) or not voters.has_directories():
            raise Refused(Error.INVALID_REQUEST, "Voters are added and removed one at a time, with their directory id.")
        self.note(f"changes the voters from {self.voters} to {voters}")
        offset = self.append_control([voters.to_record()], now_ms)
        self.role.check_quorum_ms = now_ms + self.timing.check_quorum_ms
        self.advance_high_watermark(now_ms)  # of a smaller set, a majority may have more
        return offset

    def flushed(self, offset: int, now_ms: int) -> None:
        """Batches before an offset survive a loss of power, here. All the writes so far must have been done."""
        if not self.history.flushed(offset):
            return
        if self.is_leader:
            self.advance_high_watermark(now_ms)
        self.tick(now_ms)

    def write_failed(self, end_offset: int, now_ms: int) -> None:
        """The log could not take the last writes, and ends here. A leader that can't append resigns."""
        self.history.truncated(end_offset)
        self.note(f"can't write to its log, which ends at offset {end_offset}")
        if self.is_leader:
            self.resign(now_ms)
        elif self.leader_id != NO_NODE:
            self.requests.failed(self.leader_id, now_ms)

    def snapshot_taken(self, id: OffsetAndEpoch) -> None:
        """A snapshot of what is committed here is durable."""
        assert id.offset <= self.high_watermark, "a snapshot holds only what is committed"
        self.history.snapshot_taken(id)

    def cleaned(self, oldest: OffsetAndEpoch) -> None:
        """The log starts with this snapshot now."""
        self.history.cleaned(oldest)

    def wants_snapshot(self, id: OffsetAndEpoch) -> bool:
        """Whether a leader's snapshot may take the place of the log, now that all of it is here.

        All in it is committed. So it may where the log ends before it; a log that goes on in a later epoch has it all.
        """
        end = self.history.end
        return id == self.installing and not self.is_leader and id.is_at_least(end) and id != end

    def snapshot_installed(self, id: OffsetAndEpoch, voters: VoterSet | None, now_ms: int) -> None:
        snapshots.installed(self, id, voters, now_ms)

    def snapshot_failed(self, id: OffsetAndEpoch, now_ms: int) -> None:
        snapshots.failed(self, id, now_ms)

    def stop(self, now_ms: int) -> None:
        """Stands for nothing any more. A leader resigns and names who should follow it."""
        self.is_stopping = True
        if self.is_leader:
            self.resign(now_ms)

    # ------------------------------------------------------------------------------------------------------ transitions

    def become_unattached(self, epoch: int, now_ms: int) -> None:
        assert epoch >= self.epoch, "an epoch never goes back"
        self._enter(epoch)
        self.role = Unattached(self._election_deadline_ms(now_ms))

    def become_follower(self, epoch: int, leader_id: int, now_ms: int) -> None:
        assert epoch >= self.epoch, "an epoch never goes back"
        assert leader_id != self.local.id, "nobody follows itself"
        self._enter(epoch)
        assert self.leader_id in (NO_NODE, leader_id), "an epoch has one leader"
        self.leader_id = leader_id
        self._retries = 0
        self.role = Follower(leader_id, now_ms + self.timing.fetch_timeout_ms)
        self.note(f"follows node {leader_id} in epoch {epoch}")

    def become_prospective(self, now_ms: int) -> None:
        """Asks first, and stays in its epoch: a voter that was cut off does not disturb the others (KIP-996)."""
        self._enter(self.epoch)
        self.role = Prospective(self.voters, self._election_deadline_ms(now_ms))
        self.note(f"is prospective in epoch {self.epoch}")
        election.count_own_vote(self, self.role.tally, now_ms)

    def become_candidate(self, now_ms: int) -> None:
        self._enter(self.epoch + 1)
        self.voted = self.local
        self._retries += 1
        self.role = Candidate(self.voters, self._election_deadline_ms(now_ms))
        self.note(f"is candidate in epoch {self.epoch}")
        election.count_own_vote(self, self.role.tally, now_ms)

    def become_leader(self, granting: list[int], now_ms: int) -> None:
        self._enter(self.epoch)
        self.leader_id = self.local.id
        self._retries = 0
        self.role = Leader(self.history.end_offset, now_ms + self.timing.check_quorum_ms)
        self.note(f"leads epoch {self.epoch} from offset {self.history.end_offset} on")
        self.append_control(self._first_records(granting), now_ms)
        election.announce(self, self.role, now_ms)

    def _first_records(self, granting: list[int]) -> list[QuorumMessage]:
        """What a leader appends first: with it, all that is before it can be committed (Raft, 5.4.2)."""
        change = messages.LeaderChangeMessage

        def listed(ids: list[int]) -> list[Any]:
            return [change.Voter(voter_id=id) for id in ids if self.voters.get(id)]

        records: list[QuorumMessage] = [
            change(
                version=LEADER_CHANGE_VERSION,
                leader_id=self.local.id,
                voters=listed([voter.key.id for voter in self.voters]),
                granting_voters=listed(granting),
            )
        ]
        renewed = self.voters.renewed(self.local, self.endpoints) if self.endpoints else self.voters
        if renewed.has_directories() and (self.history.voters_offset == BOOTSTRAP_OFFSET or renewed is not self.voters):
            records.append(messages.KRaftVersionRecord(kraft_version=KRAFT_VERSION))
            records.append(renewed.to_record())
        return records

    def resign(self, now_ms: int) -> None:
        """A leader stops being one, in an epoch that is its own for ever."""
        assert isinstance(self.role, Leader)
        role = self.role
        others = self.voters.others(self.local)
        preferred = sorted(others, key=lambda voter: (-(role.end_offset_of(voter) or 0), voter.key.id))
        self._enter(self.epoch)
        self.role = Resigned(
            self._election_deadline_ms(now_ms),
            [voter.key.id for voter in others],
            [voter.key for voter in preferred],
        )
        self.note(f"resigns in epoch {self.epoch}")
        election.tell_of_the_end(self, self.role, now_ms)

    def become_resigned(self, epoch: int, now_ms: int) -> None:
        """Others say that it leads an epoch that it knows nothing of: it does not lead, nor vote, in that one."""
        self._enter(epoch)
        self.leader_id = self.local.id
        self.role = Resigned(self._election_deadline_ms(now_ms), [], [])

    def _stand_if_only(self, now_ms: int) -> None:
        if self.voters.is_only(self.local):
            self.become_prospective(now_ms)

    def _enter(self, epoch: int) -> None:
        """Leaves the role it had, for one in this epoch."""
        if isinstance(self.role, Leader):
            replication.refuse_fetches(self, self.role)
        self.requests.forget()
        if epoch > self.epoch:
            self.epoch, self.leader_id, self.voted = epoch, NO_NODE, None

    def advance_high_watermark(self, now_ms: int) -> None:
        """As a leader: what a majority of the voters has durably is committed, once that reaches the leader's epoch."""
        role = self.role
        assert isinstance(role, Leader)
        reached = high_watermark(
            self.history.flushed_offset
            if voter.key.id == self.local.id and self.is_voter
            else role.end_offset_of(voter)
            for voter in self.voters
        )
        if reached is None or reached <= role.epoch_start_offset or reached <= self.high_watermark:
            return
        self.high_watermark = reached
        role.is_committed = True
        replication.wake_fetches(self, role)
        if not self.is_voter and self.history.voters_offset < reached:
            self.note("is not among the voters any more")
            self.resign(now_ms)

    def follow_high_watermark(self, offset: int) -> None:
        """As a follower: what the leader says is committed, as far as it is here."""
        self.high_watermark = max(self.high_watermark, min(offset, self.history.end_offset))

    # ------------------------------------------------------------------------------------------------------ what leaves

    def send(self, to: int, request: Message, now_ms: int) -> None:
        self.requests.sent(to, request, now_ms)
        self._sends.append(Send(to, self.endpoints_of(to), request))

    def reply(self, reply: Reply) -> None:
        self._sends.append(reply)

    def write(self, write: Write) -> None:
        self._writes.append(write)

    def note(self, text: str) -> None:
        self._notes.append(f"Node {self.local.id} {text}")

    def ready(self) -> Ready | None:
        """What is to be done now, in the order of its fields; None when that is nothing."""
        # One that has resigned is known to have led, so that it does not vote, and leads no more (hazard 4).
        leader = LeaderAndEpoch(NO_NODE if isinstance(self.role, Resigned) else self.leader_id, self.epoch)
        state = self.state
        shown = leader, self.high_watermark
        if not (self._writes or self._sends or self._notes) and state == self._told and shown == self._shown:
            return None
        ready = Ready(
            quorum_state=state if state != self._told else None,
            writes=self._writes,
            sends=self._sends,
            high_watermark=self.high_watermark if self.high_watermark != self._shown[1] else None,
            leader=leader if leader != self._shown[0] else None,
            notes=self._notes,
        )
        self._told, self._shown = state, shown
        self._writes, self._sends, self._notes = [], [], []
        return ready

    # ------------------------------------------------------------------------------------------------------------ time

    def _election_deadline_ms(self, now_ms: int) -> int:
        timeout_ms = self.timing.election_timeout_ms
        return now_ms + timeout_ms + self.jitter_ms(timeout_ms)

    def backoff_ms(self) -> int:
        """Longer with each election that nobody won, so that two candidates fall out of step."""
        most_ms = min(BACKOFF_BASE_MS << min(self._retries, 10), self.timing.election_backoff_max_ms)
        return self.jitter_ms(most_ms)


def _name(request: Message) -> str:
    return type(request).__name__.removesuffix("Request")


_REQUESTED: Final[dict[str, Callable[[Node, Any, object, int], None]]] = {
    "VoteRequest": election.vote_requested,
    "BeginQuorumEpochRequest": election.begin_requested,
    "EndQuorumEpochRequest": election.end_requested,
    "FetchRequest": replication.fetch_requested,
    "FetchSnapshotRequest": snapshots.fetch_requested,
}
_ANSWERED: Final[dict[str, Callable[[Node, int, Any, Any, int], bool]]] = {
    "VoteResponse": election.vote_answered,
    "BeginQuorumEpochResponse": election.begin_answered,
    "EndQuorumEpochResponse": election.end_answered,
    "FetchResponse": replication.fetch_answered,
    "FetchSnapshotResponse": snapshots.fetch_answered,
}
