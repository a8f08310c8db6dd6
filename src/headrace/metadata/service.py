"""The node's member of the metadata quorum: its log, its image, and the controller while it leads.

A request is decided at once, appended in the epoch of the leadership that decided it, and answered when it is committed
and in the local image. A reply that changes nothing waits too, for whatever it was decided on. When leadership is lost,
all that wait are told NOT_CONTROLLER: what they asked for may have happened or not (hazard 14).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, cast

from headrace.config import NodeConfig
from headrace.config.quorum import QuorumConfig
from headrace.errors import Error, HeadraceError, Refused
from headrace.metadata.controller import Controller, ControllerSettings
from headrace.metadata.features import METADATA_VERSION, SUPPORTED, unsupported
from headrace.metadata.image import Endpoint
from headrace.metadata.leadership import RESERVED_DIRECTORIES
from headrace.metadata.loader import Loader
from headrace.metadata.refusals import refusal
from headrace.metadata.sessions import NEVER_MS
from headrace.metadata.snapshot import Versioned
from headrace.metadata.snapshots import Snapshots
from headrace.metadata.topics import TopicDefaults
from headrace.metrics.histogram import Histogram
from headrace.named_tuple import NamedTuple
from headrace.plain import field, plain
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from headrace.raft import driver as raft
from headrace.raft.checkpoints import Snapshot
from headrace.raft.driver import Committed, Driver, Timer
from headrace.raft.metadata_log import CONFIG, FOLDER, format_voter, is_formatted, not_alone, open_metadata_log
from headrace.raft.node import LeaderAndEpoch, Node, Send, Timing
from headrace.raft.quorum import NO_NODE, ReplicaKey, Voter, VoterSet
from headrace.raft.quorum import Endpoint as VoterEndpoint
from headrace.raft.quorum_state import QUORUM_STATE, read_quorum_state
from headrace.storage.disk import Disk, DiskError
from headrace.storage.flush import SyncsFiles
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

_NOT_CONTROLLER: Final = "This node is not the active controller."

TICK_MS_MIN: Final = 50
"""When the log can't take that a broker is fenced, it is tried again after this."""

Replied = Callable[[Message], None]


class Channel(Protocol):
    """How a broker reaches the active controller."""

    async def call(self, request: Message, timeout_s: float) -> Message:
        """The controller's response, whatever it says. Raises Refused, REQUEST_TIMED_OUT, when none comes in time.

        Without one, and with NOT_CONTROLLER, the request may have taken effect or not.
        """


@plain
class MetadataPorts:
    """What the service is handed in. The clock counts milliseconds since 1970 and never goes back."""

    disk: Disk
    flusher: SyncsFiles
    workers: Workers
    handles: Handles
    indexes: IndexCache
    now_ms: Callable[[], int]
    call_later: Callable[[float, Callable[[], None]], Timer]
    """The loop's, in seconds."""
    random_bytes: Callable[[int], bytes]
    choose: Callable[[int], int]
    """A number below its argument, by chance."""
    clock_ns: Callable[[], int] = lambda: 0
    """For short times."""
    peers: raft.Channel | None = None
    """The way to the other voters."""


@plain
class Member:
    """Who the node is in the quorum."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    incarnation_id: bytes
    endpoints: Sequence[Endpoint] = field(default_factory=tuple)
    """Of its controller listener."""

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)


def format_metadata(disk: Disk, member: Member, now_ms: int) -> bool:
    """Makes a quorum of this node alone when there is no metadata log yet; says whether it did."""
    if is_formatted(disk):
        return False
    endpoints = tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in member.endpoints)
    format_voter(disk, VoterSet([Voter(member.key, endpoints)]), now_ms)
    return True


class _Waiting(NamedTuple):
    offset: int
    """Answered when the local image has come so far."""
    request: Message
    response: Message
    replied: Replied


class MetadataService:
    """`loader` has the image and its subscribers, `channel` is the way to the controller."""

    def __init__(
        self,
        member: Member,
        ports: MetadataPorts,
        *,
        config: QuorumConfig,
        defaults: TopicDefaults,
        failed: Callable[[HeadraceError], None],
        started_with: NodeConfig | None = None,
    ) -> None:
        """Opens what `format_metadata` made. `failed` is called at most once: the node is to stop, and says why.

        `started_with` are all settings of the node, which a change of settings is checked against.
        """
        self.loader = Loader()
        self._member = member
        self._ports = ports
        self._failed = failed
        self._epoch = -1
        """Of the leadership in which the controller is active."""
        self._waiting: deque[_Waiting] = deque()
        self._uncommitted: deque[tuple[int, int]] = deque()
        """Offsets that were appended, and when, by the clock for short times."""
        self.commit_latency = Histogram()
        self._ready: Callable[[HeadraceError | None], None] | None = None
        self._has_leader = False
        """As it was told, which is after all that was committed before."""
        self._tick: Timer | None = None
        self._controller = Controller(
            ControllerSettings(
                member.cluster_id,
                defaults,
                config.broker_session_timeout_ms,
                node_id=member.node_id,
                started_with=started_with or NodeConfig(quorum=config, log=defaults.log),
            ),
            new_id=self._new_id,
            choose=ports.choose,
        )
        self._metadata = open_metadata_log(
            ports.disk,
            ports.flusher,
            handles=ports.handles,
            indexes=ports.indexes,
            now_ms=ports.now_ms(),
            config=CONFIG,
        )
        if ports.peers is None and not self._metadata.history.voters.is_only(member.key):
            self._metadata.log.close()
            raise not_alone(ports.disk.full_path(FOLDER), self._metadata.history.voters)
        node = Node(
            member.key,
            cluster_id=member.cluster_id,
            state=read_quorum_state(ports.disk, f"{FOLDER}/{QUORUM_STATE}"),
            history=self._metadata.history,
            timing=timing_of(config),
            jitter_ms=lambda most_ms: ports.choose(most_ms + 1),
        )
        self.driver = Driver(
            node,
            self._metadata,
            workers=ports.workers,
            channel=ports.peers or _NoPeers(ports.call_later),
            listener=self,
            now_ms=ports.now_ms,
            call_later=ports.call_later,
            failed=self._stopped_by,
        )
        self._snapshots = Snapshots(self.driver, self.loader, config, now_ms=ports.now_ms, call_later=ports.call_later)
        self.channel: Channel = _InProcess(self)

    @property
    def is_active(self) -> bool:
        """This node is the controller: its own decisions count."""
        return self._controller.is_active

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when all that was committed is in the image, and there is a leader."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ready(failure: HeadraceError | None) -> None:
            if started.done():
                return
            if failure is None:
                started.set_result(None)
            else:
                started.set_exception(failure)

        self.begin(ready)
        await started

    def begin(self, ready: Callable[[HeadraceError | None], None]) -> None:
        """Takes part in the quorum; `ready` is called when `start` would return."""
        self._ready = ready
        self.driver.start()

    def stop(self) -> None:
        """Leads no more, answers all that wait, and closes the log. What is committed is durable already."""
        self.driver.stop()
        self._step_down()
        self._snapshots.close()
        self.driver.close()
        with suppress(DiskError):  # the next start cuts it as well
            self._metadata.log.trim()
        self._metadata.log.close()

    def _stopped_by(self, failure: HeadraceError) -> None:
        self._step_down()
        self._snapshots.close()
        if self._ready is not None:
            ready, self._ready = self._ready, None
            ready(failure)
        self._failed(failure)

    def _tell_ready(self) -> None:
        # A leader is known before what was committed is applied, and half an image is worse than none: partitions that
        # it does not know yet would be put aside.
        if self._ready is not None and self._has_leader and METADATA_VERSION in self.loader.image.features:
            ready, self._ready = self._ready, None
            why = unsupported(self.loader.image.features)
            folder = self._ports.disk.full_path(FOLDER)
            ready(None if why is None else HeadraceError(f"The metadata log in {folder} {why}"))

    # --- from the log -------------------------------------------------------------------------------------------------

    def handle_snapshot(self, snapshot: Snapshot) -> None:
        records = (record for batch in snapshot.batches() for record, _ in batch)
        self.loader.load(records, snapshot.id.offset - 1, snapshot.id.epoch)
        self._snapshots.loaded()
        self._release()

    def handle_commit(self, batch: Committed) -> None:
        self.loader.apply((record for record, _ in batch.records), batch.next_offset - 1, batch.epoch)
        self._snapshots.committed(batch.size_bytes)
        while self._uncommitted and self._uncommitted[0][0] < batch.next_offset:
            self.commit_latency.observe(self._ports.clock_ns() - self._uncommitted.popleft()[1])
        self._release()
        self._tell_ready()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._step_down()
        self._has_leader = leader.leader_id != NO_NODE
        if leader.leader_id == self._member.node_id:
            self._step_up(leader.epoch)
        self._tell_ready()

    def _step_up(self, epoch: int) -> None:
        self._epoch = epoch
        bootstrap = self._controller.activate(self.loader.image, self._ports.now_ms())
        logger.info("this node is the active controller, in epoch %d", epoch)
        self._append_all(bootstrap)
        self.submit(self._own_registration(), lambda response: None)
        self._arm()

    def _step_down(self) -> None:
        if not self._controller.is_active:
            return
        logger.info("this node is not the active controller any more")
        self._controller.deactivate()
        self._uncommitted.clear()
        self._epoch = -1
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.replied(refusal(one.request, Refused(Error.NOT_CONTROLLER, _NOT_CONTROLLER)))

    def _own_registration(self) -> m.ControllerRegistrationRequest:
        kind = m.ControllerRegistrationRequest
        return kind(
            controller_id=self._member.node_id,
            incarnation_id=self._member.incarnation_id,
            listeners=[
                kind.Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self._member.endpoints
            ],
            features=[
                kind.Feature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in SUPPORTED.items()
            ],
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def submit(self, request: Message, replied: Replied) -> None:
        """Decides, and replies when that is committed; at once when this node is not the controller."""
        if not self._leads():
            replied(refusal(request, Refused(Error.NOT_CONTROLLER, _NOT_CONTROLLER)))
            return
        if request.shape.name == "DescribeQuorumRequest":  # which no image knows
            from headrace.metadata.quorum_view import describe_quorum

            asked = cast("m.DescribeQuorumRequest", request)
            replied(describe_quorum(self.driver.node, asked, self._ports.now_ms()))
            return
        decision = self._controller.decide(request, self.driver.node.history.end_offset, self._ports.now_ms())
        try:
            offset = self._append(decision.records)
        except Refused as refused:
            replied(refusal(request, refused))
            return
        self._arm()
        if offset <= self.loader.image.offset:
            replied(decision.response)
        else:
            self._waiting.append(_Waiting(offset, request, decision.response, replied))

    def fence_now(self, broker_id: int, epoch: int) -> None:
        """This incarnation of a broker is known to be gone: others lead in its place, before its session ends."""
        if self._leads():
            self._append_all(self._controller.fence_now(broker_id, epoch))

    def _leads(self) -> bool:
        """To have been told is not enough: a node knows that it was deposed before its controller does (hazard 4)."""
        node = self.driver.node
        return self._controller.is_active and node.is_leader and node.epoch == self._epoch

    def _append(self, records: Sequence[Versioned]) -> int:
        """Returns the offset of the last record that was decided on or appended."""
        if records:
            epoch, now_ns = self._epoch, self._ports.clock_ns()
            last_offset = self.driver.append(records, epoch)
            if not self._controller.is_active or self._epoch != epoch:  # the disk did not take it
                raise Refused(Error.NOT_CONTROLLER, _NOT_CONTROLLER)
            self._controller.appended(records, last_offset, epoch)
            if last_offset > self.loader.image.offset:
                self._uncommitted.append((last_offset, now_ns))
            else:
                self.commit_latency.observe(self._ports.clock_ns() - now_ns)
        image = self._controller.image
        assert image is not None
        return image.offset

    def _append_all(self, records: Sequence[Versioned]) -> None:
        """What nobody asked for, so that nobody can be told."""
        try:
            self._append(records)
        except Refused as refused:
            logger.error("the controller could not write what it decided: %s", refused)

    def _release(self) -> None:
        while self._waiting and self._waiting[0].offset <= self.loader.image.offset:
            one = self._waiting.popleft()
            one.replied(one.response)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer, for the session that ends first. One that is too early is let be."""
        deadline_ms = self._controller.deadline_ms()
        if self._tick is None and deadline_ms < NEVER_MS:
            wait_ms = max(TICK_MS_MIN, deadline_ms - self._ports.now_ms())
            self._tick = self._ports.call_later(wait_ms / 1000, self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        if self._leads():
            self._append_all(self._controller.tick(self._ports.now_ms()))
            self._arm()

    # --- chance -------------------------------------------------------------------------------------------------------

    def _new_id(self) -> bytes:
        """A random id in the form of a UUID, of version 4, that no text form of begins like an option."""
        while True:
            drawn = bytearray(self._ports.random_bytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            if drawn[0] >> 2 != 62 and bytes(drawn) not in RESERVED_DIRECTORIES:  # 62 is "-" in base64
                return bytes(drawn)


class _InProcess:
    """The channel of a node that is controller and broker in one."""

    __slots__ = ("_service",)

    def __init__(self, service: MetadataService) -> None:
        self._service = service

    async def call(self, request: Message, timeout_s: float) -> Message:
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def replied(response: Message) -> None:
            if not reply.done():
                reply.set_result(response)

        def expired() -> None:
            if not reply.done():
                reply.set_exception(
                    Refused(Error.REQUEST_TIMED_OUT, f"The controller did not answer within {timeout_s:g} s.")
                )

        timer = self._service._ports.call_later(timeout_s, expired)
        try:
            self._service.submit(request, replied)
            return await reply
        finally:
            timer.cancel()


class _NoPeers:
    """The way to others of a quorum that has none."""

    __slots__ = ("_call_later",)

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._call_later = call_later

    def send(self, to: Send, answered: Callable[[Message | None], None]) -> None:
        self._call_later(0, lambda: answered(None))


def timing_of(config: QuorumConfig) -> Timing:
    return Timing(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
    )
