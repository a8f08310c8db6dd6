"""The driver: does what the node decides, in its order: persist, then send, then apply.

What the node wants done waits in a queue, one step behind the other. A step whose quorum state is being written holds
all of them: nothing leaves a voter that it could forget. Appends are flushed in groups, off the loop, and the node
hears how far the log is durable only when nothing waits, so that both speak of the same log.

Clock, timers, workers, disk and network are handed in. The clock counts milliseconds since 1970 and never goes back.
A full disk makes it wait and try again; any other failure of the disk that holds the metadata log stops the node.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headrace.errors import Error, HeadraceError, ProtocolError, Refused
from headrace.named_tuple import NamedTuple
from headrace.protocol.batch import Batch, scan
from headrace.protocol.batch_builder import build
from headrace.protocol.message import Message
from headrace.protocol.state import encode_metadata_record
from headrace.raft.checkpoints import (
    PART,
    Record,
    Snapshot,
    SnapshotDamaged,
    SnapshotWriter,
    checkpoint_name,
    metadata_records,
    put_in_place,
)
from headrace.raft.metadata_log import BATCH_BYTES_MAX, FOLDER, READ_BYTES, MetadataLog
from headrace.raft.node import (
    Append,
    InstallSnapshot,
    LeaderAndEpoch,
    Node,
    Ready,
    Reply,
    Send,
    Truncate,
    Write,
    WriteSnapshot,
)
from headrace.raft.node.roles import NEVER_MS, Leader
from headrace.raft.quorum import OffsetAndEpoch
from headrace.raft.quorum_state import QUORUM_STATE, encode_quorum_state
from headrace.storage.disk import DiskError, DiskFull, DiskReadOnly
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

UNCOMMITTED_BYTES_MAX: Final = 64 << 20
DISK_RETRY_MS: Final = 500
DISK_TRIES_TOLD: Final = 60
"""The first of so many tries to write onto a full disk is told."""


class Committed(NamedTuple):
    """A batch that is committed. A control batch has no records here, and moves the offset."""

    base_offset: int
    next_offset: int
    epoch: int
    timestamp_ms: int
    size_bytes: int
    records: list[Record]


class Listener(Protocol):
    """Who applies: the metadata loader. Called in the order of the log, each offset once in the life of a driver."""

    def handle_snapshot(self, snapshot: Snapshot) -> None:
        """Forget everything; this is the state before `snapshot.id.offset`."""

    def handle_commit(self, batch: Committed) -> None: ...

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Another leader, or none, in this epoch. This node hears that it leads when all before has been applied."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Channel(Protocol):
    """The way to other nodes. `answered` is called once, with None when there will be no answer."""

    def send(self, to: Send, answered: Callable[[Message | None], None]) -> None: ...


class Driver:
    __slots__ = (
        "_call_later",
        "_channel",
        "_failed",
        "_is_persisting",
        "_is_pumping",
        "_leader_due",
        "_leader_told",
        "_listener",
        "_metadata",
        "_now_ms",
        "_queue",
        "_timer",
        "_timer_ms",
        "_uncommitted",
        "_uncommitted_bytes",
        "_workers",
        "applied_epoch",
        "applied_offset",
        "applied_timestamp_ms",
        "failure",
        "node",
    )

    def __init__(
        self,
        node: Node,
        metadata: MetadataLog,
        *,
        workers: Workers,
        channel: Channel,
        listener: Listener,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Timer],
        failed: Callable[[HeadraceError], None],
    ) -> None:
        """`node` has the history of `metadata`. `call_later` is the loop's, in seconds.

        `failed` is called at most once: the node can't keep a promise any more and is to stop.
        """
        self.node = node
        self.failure: HeadraceError | None = None
        self.applied_offset = -1
        """Everything before it has been applied; -1 before the first snapshot or record."""
        self.applied_epoch = 0
        self.applied_timestamp_ms = 0
        self._metadata = metadata
        self._workers = workers
        self._channel = channel
        self._listener = listener
        self._now_ms = now_ms
        self._call_later = call_later
        self._failed = failed
        self._queue: deque[Ready] = deque()
        self._is_persisting = False
        self._is_pumping = False
        self._leader_due: LeaderAndEpoch | None = None
        self._leader_told: LeaderAndEpoch | None = None
        self._timer: Timer | None = None
        self._timer_ms = NEVER_MS
        self._uncommitted: deque[tuple[int, int]] = deque()
        self._uncommitted_bytes = 0

    # ------------------------------------------------------------------------------------------------------- from above

    @property
    def leader(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.node.leader_id, self.node.epoch)

    @property
    def high_watermark(self) -> int:
        return self.node.high_watermark

    def start(self) -> None:
        """Takes part. A quorum of one leads as soon as that is durable."""
        if self._metadata.log.flushed_offset < self._metadata.log.log_end_offset:
            self._metadata.log.flush(self._flushed)
        self.node.start(self._now_ms())
        self._pump()

    def append(self, records: Sequence[Record], epoch: int) -> int:
        """Appends records as one batch, all or none, as the leader of an epoch; returns the offset of the last.

        They are committed when `handle_commit` brings them. Raises Refused when this node does not lead in that epoch
        (hazard 4), or can't take more.
        """
        self._check_alive()
        now_ms = self._now_ms()
        content = build([(None, encode_metadata_record(message, version), (), now_ms) for message, version in records])
        if len(content) > BATCH_BYTES_MAX:
            raise Refused(
                Error.RECORD_LIST_TOO_LARGE,
                f"The change takes {len(content)} bytes of metadata, and {BATCH_BYTES_MAX} fit; make it smaller.",
            )
        if self._uncommitted_bytes > UNCOMMITTED_BYTES_MAX:
            raise Refused(Error.REQUEST_TIMED_OUT, "Too much metadata waits to be committed; try again.")
        offset = self.node.append(content, epoch, now_ms)
        self._uncommitted.append((offset, len(content)))
        self._uncommitted_bytes += len(content)
        self._pump()
        return offset

    def request(self, request: Message, reply: Callable[[Message], None]) -> None:
        """A peer asks: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot. Its buffers stay as they are."""
        self._check_alive()
        self.node.requested(request, reply, self._now_ms())
        self._pump()

    def stop(self) -> None:
        """Stands for nothing any more; a leader tells the others. `close` when they had the time to hear it."""
        if self.failure is None:
            self.node.stop(self._now_ms())
            self._pump()

    def close(self) -> None:
        """Does nothing any more."""
        self.failure = self.failure or HeadraceError("The node has been stopped.")
        if self._timer is not None:
            self._timer.cancel()

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise Refused(Error.KAFKA_STORAGE_ERROR, str(self.failure))

    # -------------------------------------------------------------------------------------------------------- snapshots

    def begin_snapshot(self) -> SnapshotWriter | None:
        """A writer for the state after all that is applied now; None when there is a snapshot of that already.

        The state must not change until the writer has it: the caller writes from an immutable image.
        """
        id = OffsetAndEpoch(self.applied_offset, self.applied_epoch)
        history = self.node.history
        if self.applied_offset <= history.start_offset or id in history.snapshots:
            return None
        return SnapshotWriter(
            self._metadata.disk,
            self._metadata.folder,
            id,
            history.voters_at(id.offset),
            last_contained_log_timestamp=self.applied_timestamp_ms,
            now_ms=self._now_ms(),
        )

    def freeze_snapshot(self, writer: SnapshotWriter, done: Callable[[DiskError | None], None] | None = None) -> None:
        """Makes it durable, off the loop. Followers that lag get it from then on."""

        def frozen(error: BaseException | None) -> None:
            if self.failure is not None:
                return
            if error is None:
                self.node.snapshot_taken(writer.id)
                logger.info("a snapshot of the metadata up to offset %d is durable", writer.id.offset)
            elif isinstance(error, DiskFull | DiskReadOnly):
                logger.error("no snapshot of the metadata up to offset %d: %s", writer.id.offset, error)
            else:
                self._fail(error)
            if done is not None:
                done(error if isinstance(error, DiskError) else None)

        try:
            writer.freeze(self._workers, frozen)
        except DiskError as error:
            writer.abandon()
            frozen(error)

    def clean(self, retention_bytes: int, retention_ms: int) -> None:
        """Lets go what newer snapshots stand for; see `MetadataLog.clean`. Called now and then."""
        if self.failure is not None or self._queue:
            return
        now_ms = self._now_ms()
        try:
            oldest = self._metadata.clean(retention_bytes, retention_ms, now_ms)
            self._metadata.log.sweep(now_ms)
        except DiskError as error:
            logger.error("the metadata log could not be cleaned: %s", error)
            return
        if oldest is not None:
            logger.info("the metadata log starts at offset %d", oldest.offset)
            self.node.cleaned(oldest)

    # ------------------------------------------------------------------------------------------------------- the queue

    def _pump(self) -> None:
        """Takes what the node has decided and does it, until there is nothing left or the disk is to be waited for."""
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self.failure is None and self._collect():
                self._work()
        finally:
            self._is_pumping = False
        self._arm()

    def _collect(self) -> bool:
        ready = self.node.ready()
        if ready is not None:
            for note in ready.notes:
                logger.info("%s", note)
            if self._queue:  # what comes from the network is only lent
                _keep(ready)
            self._queue.append(ready)
            return True
        if self._queue or self._is_persisting:
            return bool(self._queue) and not self._is_persisting
        if self.node.history.flushed_offset < self._metadata.log.flushed_offset:
            self.node.flushed(self._metadata.log.flushed_offset, self._now_ms())
            return True
        return False

    def _work(self) -> None:
        while self._queue and not self._is_persisting and self.failure is None:
            ready = self._queue[0]
            if ready.quorum_state is not None:
                _keep(ready)
                self._persist(encode_quorum_state(ready.quorum_state))
                return
            self._queue.popleft()
            try:
                self._do(ready)
            except Exception as error:
                self._fail(error)

    def _persist(self, content: bytes, tries: int = 0) -> None:
        disk, path = self._metadata.disk, self._metadata.path(QUORUM_STATE)
        self._is_persisting = True

        def persisted(result: None, error: BaseException | None) -> None:
            self._is_persisting = False
            if self.failure is not None:
                return
            if isinstance(error, DiskFull | DiskReadOnly):
                if not tries % DISK_TRIES_TOLD:
                    logger.error(
                        "the quorum state could not be written, and this node takes no part until it is: %s", error
                    )
                self._is_persisting = True
                self._call_later(DISK_RETRY_MS / 1000, lambda: self._persist(content, tries + 1))
                return
            if error is not None:
                self._fail(error)
                return
            self._queue[0].quorum_state = None
            self._work()
            self._pump()

        self._workers.run(lambda: disk.replace(path, content), persisted)

    def _do(self, ready: Ready) -> None:
        """Writes, then sends, then applies."""
        if not self._write(ready.writes):
            return
        for sent in ready.sends:
            if isinstance(sent, Send):
                self._send(sent)
            else:
                self._reply(sent)
        if ready.leader is not None:
            self._leader_due = ready.leader
        if ready.high_watermark is not None:
            self._metadata.log.set_high_watermark(ready.high_watermark)
        if ready.high_watermark is not None or ready.leader is not None:
            try:
                self._apply()
            except ProtocolError as error:
                raise HeadraceError(
                    f"The metadata log in {self._metadata.disk.full_path(FOLDER)} can't be read ({error}): if a later "
                    "version wrote it, run that one; else choose another folder."
                ) from error

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            raise error
        if self.failure is None:
            self.failure = error if isinstance(error, HeadraceError) else HeadraceError(str(error))
            defect = None if isinstance(error, HeadraceError) else error  # which is shown with where it is
            logger.error("the metadata quorum stops on this node: %s", error, exc_info=defect)
            self._failed(self.failure)

    # ------------------------------------------------------------------------------------------------------ 1. persist

    def _write(self, writes: Sequence[Write]) -> bool:
        """False when the node can't go on."""
        log, now_ms = self._metadata.log, self._now_ms()
        try:
            for write in writes:
                match write:
                    case Append():
                        log.append_as_follower(write.content, write.epoch, now_ms)
                        assert log.log_end_offset == write.end_offset, "the node and its log count alike"
                    case Truncate():
                        log.truncate_to(write.offset, now_ms)
                    case WriteSnapshot():
                        self._write_snapshot(write)
                    case InstallSnapshot():
                        self._install_snapshot(write.id)
            if any(isinstance(write, Append) for write in writes):
                log.flush(self._flushed)
        except (DiskError, Refused) as error:
            return self._write_failed(error)
        return True

    def _write_failed(self, error: DiskError | Refused) -> bool:
        """A full disk is waited for: nothing is acknowledged, and a leader hands over to another. The rest is final."""
        log = self._metadata.log
        if log.offline is not None or self._metadata.disk.offline is not None:
            self._fail(error)
            return False
        if isinstance(error, DiskError) and not isinstance(error, DiskFull | DiskReadOnly):
            self._fail(error)
            return False
        if isinstance(error, DiskError):
            self._metadata.disk.refusals.note("the metadata log can't be written", error, self._now_ms())
        elif error.error is not Error.KAFKA_STORAGE_ERROR:  # of which the log itself has told
            logger.error("the metadata log can't be written: %s", error)
        for waiting in self._queue:
            waiting.writes = ()
        if self.node.installing is not None:
            self.node.snapshot_failed(self.node.installing, self._now_ms())
        self.node.write_failed(log.log_end_offset, self._now_ms())
        self._uncommitted.clear()
        self._uncommitted_bytes = 0
        return True

    def _flushed(self, error: DiskError | None) -> None:
        if self.failure is not None:
            return
        if error is not None:
            self._fail(error)
        else:
            self._pump()

    def _write_snapshot(self, write: WriteSnapshot) -> None:
        disk = self._metadata.disk
        file = disk.open(self._metadata.path(checkpoint_name(write.id)) + PART, create=True)
        try:
            if write.position == 0:
                file.truncate(0)
            file.write(write.position, [write.content])
        finally:
            file.close()

    def _install_snapshot(self, id: OffsetAndEpoch) -> None:
        """Checks it and makes it durable, off the loop; then it takes the place of the log."""
        disk, folder = self._metadata.disk, self._metadata.folder
        path = self._metadata.path(checkpoint_name(id))

        def check_and_place() -> Snapshot:
            snapshot = Snapshot.read(disk, folder, id, PART)
            file = disk.open(path + PART)
            try:
                put_in_place(disk, file, path, folder)
            finally:
                file.close()
            return snapshot

        def placed(snapshot: Snapshot | None, error: BaseException | None) -> None:
            if self.failure is not None:
                return
            now_ms = self._now_ms()
            if snapshot is not None and self.node.wants_snapshot(id):
                self._metadata.install(id, now_ms)
                self.node.snapshot_installed(id, snapshot.voters, now_ms)
            elif error is None or isinstance(error, SnapshotDamaged | DiskFull | DiskReadOnly):
                self.node.snapshot_failed(id, now_ms)
            else:
                self._fail(error)
            self._pump()

        self._workers.run(check_and_place, placed)

    # --------------------------------------------------------------------------------------------------------- 2. send

    def _send(self, sent: Send) -> None:
        def answered(response: Message | None) -> None:
            if self.failure is not None:
                return
            if response is None:
                self.node.unanswered(sent.to, sent.request, self._now_ms())
            else:
                self.node.answered(sent.to, sent.request, response, self._now_ms())
            self._pump()

        self._channel.send(sent, answered)

    def _reply(self, reply: Reply) -> None:
        log = self._metadata.log
        if reply.read_from is not None and reply.read_from < log.log_end_offset:
            partition = reply.response.responses[0].partitions[0]  # type: ignore[attr-defined]
            partition.records = log.read(reply.read_from, reply.bytes_max, log.log_end_offset).take()
        if reply.read_snapshot is not None:
            partition = reply.response.topics[0].partitions[0]  # type: ignore[attr-defined]
            path = self._metadata.path(checkpoint_name(reply.read_snapshot))
            file = self._metadata.disk.open(path, read_only=True)
            try:
                partition.size = file.size()
                partition.unaligned_records = file.read(reply.position, reply.bytes_max)
            finally:
                file.close()
        reply.to(reply.response)  # type: ignore[operator]

    # -------------------------------------------------------------------------------------------------------- 3. apply

    def _apply(self) -> None:
        """Hands over what is committed and here, and then who leads."""
        end_offset = min(self.node.high_watermark, self._metadata.log.log_end_offset)
        if self.applied_offset < max(self._metadata.log.log_start_offset, 0) and end_offset >= 0:
            self._apply_snapshot()
        while self.applied_offset < end_offset:
            content = self._metadata.log.read(self.applied_offset, READ_BYTES, end_offset).take()
            for batch in scan(content, partial=True):
                self._apply_batch(batch)
        while self._uncommitted and self._uncommitted[0][0] < end_offset:
            self._uncommitted_bytes -= self._uncommitted.popleft()[1]
        self._tell_leader()

    def _apply_snapshot(self) -> None:
        snapshot = self._metadata.latest_snapshot()
        if snapshot is None:
            self.applied_offset = self._metadata.log.log_start_offset
            return
        self._listener.handle_snapshot(snapshot)
        self.applied_offset, self.applied_epoch = snapshot.id
        self.applied_timestamp_ms = snapshot.last_contained_log_timestamp

    def _apply_batch(self, batch: Batch) -> None:
        committed = Committed(
            batch.base_offset,
            batch.next_offset,
            batch.partition_leader_epoch,
            batch.max_timestamp,
            batch.size_bytes,
            metadata_records(batch),
        )
        self._listener.handle_commit(committed)
        self.applied_offset = batch.next_offset
        self.applied_epoch = batch.partition_leader_epoch
        self.applied_timestamp_ms = batch.max_timestamp

    def _tell_leader(self) -> None:
        """That it leads itself, a node hears when a record of its epoch is applied: then it has all that was before."""
        leader = self._leader_due
        if leader is None or leader == self._leader_told:
            return
        if leader.leader_id == self.node.local.id:
            role = self.node.role
            if not isinstance(role, Leader) or leader.epoch != self.node.epoch:
                return  # it does not any more, of which it hears next
            if self.applied_offset <= role.epoch_start_offset:
                return
        self._leader_told, self._leader_due = leader, None
        self._listener.handle_leader_change(leader)

    # ------------------------------------------------------------------------------------------------------------- time

    def _arm(self) -> None:
        """One timer, for the node's next deadline. One that is too early is let be."""
        if self.failure is not None:
            return
        deadline_ms = self.node.deadline_ms()
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_ms < NEVER_MS:
            self._timer_ms = deadline_ms
            self._timer = self._call_later(max(0, deadline_ms - self._now_ms()) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.failure is None:
            self.node.tick(self._now_ms())
            self._pump()


def _keep(ready: Ready) -> None:
    """Copies what is only lent until the caller returns."""
    for write in ready.writes:
        if isinstance(write, Append | WriteSnapshot):
            write.content = memoryview(bytes(write.content))
