# cython: language_level=3, annotation_typing=False, nonecheck=True
"""One partition that this node hosts: its role, its high watermark, and who waits for that.

The leader appends, and says how far readers may go; `in_sync` has the rules. Whatever must be on the disk before it
counts shares a flush with all that is appended in the same round of the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from headrace.errors import Error, HeadraceError, Refused
from headrace.metadata.image import Partition as PartitionState
from headrace.metadata.names import INTERNAL
from headrace.metrics.traffic import TopicTraffic
from headrace.replica.held_appends import HeldAppends, Turn
from headrace.replica.in_sync import InSync
from headrace.replica.waits import OffsetWaits, Reached
from headrace.storage.append import PRODUCE_VERSION, Appended, Prepared
from headrace.storage.disk import DiskError
from headrace.storage.epochs import EpochEnd
from headrace.storage.log import Log
from headrace.storage.producer_state import COORDINATOR

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1
NO_EPOCH: Final = -1
LARGE_BYTES: Final = 64 << 10
"""An append of so much takes a tenth of a millisecond and more, of which most is the copy into the page cache."""


class Watcher(Protocol):
    """A fetch that waits for records. Both are called on the loop, and may unwatch."""

    def progressed(self, partition: Partition, grown_bytes: int) -> None:
        """Readers may see about that many bytes more."""

    def changed(self, partition: Partition) -> None:
        """The leader, the epoch or the log is another one, or there is none any more: answer at once."""


class FlushesSoon(Protocol):
    def flush_soon(self, partition: Partition) -> None:
        """Calls `partition.flush` at the end of this round of the loop."""

    def flush_now(self) -> None:
        """Does so now, for all that waits for the end of the round: something that takes long comes before that."""

    def flush_again(self, partition: Partition) -> None:
        """Calls it after a pause: the last one came to nothing, and not because of a failed sync."""


class Partition:
    __slots__ = (
        "_committed",
        "_counted_offset",
        "_flush_messages",
        "_host",
        "_synced",
        "_unseen_bytes",
        "_watchers",
        "held",
        "in_sync",
        "index",
        "is_internal",
        "is_leader",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "log",
        "looks_inside",
        "partition_epoch",
        "syncs_each",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, host: FlushesSoon) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.in_sync = InSync()
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.is_leader = False
        self.is_internal = topic in INTERNAL
        """Only coordinators append to it."""
        self.leader_epoch_start_offset = log.log_end_offset
        """Where the log ended when this leader took over: until the high watermark is there, it may be too low."""
        self.syncs_each = False
        """flush.messages=1: whatever is appended counts only when it is on the disk."""
        self.looks_inside = False
        """The settings make the leader look inside of what it appends (see `LeaderRules.leaves_loop`), or nobody but
        coordinators may write to the topic."""
        self._counted_offset = log.log_end_offset
        """The records before it are in `traffic`, or were not appended by this leader."""
        self.traffic = TopicTraffic()
        """What its topic takes and gives on this node, which the topic's partitions share."""
        self.held: HeldAppends | None = None
        """True while appends wait for their turn, and all that come have to take one; see `hold`."""
        self._host = host
        self._watchers: dict[Watcher, None] = {}
        self._committed: OffsetWaits | None = None
        self._synced: OffsetWaits | None = None
        self._unseen_bytes = 0
        self.configured()

    # -------------------------------------------------------------------------------------------------- what others see

    @property
    def isr(self) -> tuple[int, ...]:
        return self.in_sync.isr

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.in_sync.replicas

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def offline(self) -> HeadraceError | None:
        """Why its log can't be used."""
        return self.log.offline or self.log.place.disk.offline

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Refuses who asks the wrong replica, or the leader of another epoch (KIP-320; -1 is not checked)."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise Refused(
                    Error.FENCED_LEADER_EPOCH,
                    f"{self} has leader epoch {self.leader_epoch}, and {current_leader_epoch} was asked.",
                )
            raise Refused(
                Error.UNKNOWN_LEADER_EPOCH,
                f"{self} has leader epoch {self.leader_epoch} here, and {current_leader_epoch} is not known yet.",
            )
        if not self.is_leader:
            raise self._not_leader()
        if (why := self.offline) is not None:
            raise Refused(Error.KAFKA_STORAGE_ERROR, str(why))

    def _not_leader(self) -> Refused:
        return Refused(Error.NOT_LEADER_OR_FOLLOWER, f"Broker {self.leader} leads {self}; refresh metadata.")

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """Up to where the records of an epoch go (OffsetForLeaderEpoch).

        The epochs of the log get the current one with its first record; it ends where the log does, even without one.
        """
        if epoch == self.leader_epoch and self.is_leader:
            return EpochEnd(epoch, self.log.log_end_offset)
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    # -------------------------------------------------------------------------------------------------------- appending

    def count_messages(self) -> None:
        """Counts what was appended since it was last called: a leader's log grows by nothing else.

        Not at each append, which has better things to do.
        """
        end_offset = self.log.log_end_offset
        if self.is_leader:
            self.traffic.messages_in += end_offset - self._counted_offset
        self._counted_offset = end_offset

    def hold(self, append: Callable[[], None]) -> Turn:
        """A turn behind all that wait to append already: see `held_appends`."""
        if self.held is None:
            self.held = HeldAppends()
        return self.held.hold(append)

    def append(
        self,
        records: memoryview,
        required_acks: int,
        now_ms: int,
        produce_version: int = PRODUCE_VERSION,
        prepared: Prepared | None = None,
    ) -> Appended:
        """Appends a producer's batch, as leader. Raises Refused; then nothing of it is in the log."""
        if not self.is_leader:
            raise self._not_leader()
        if self.is_internal:
            raise Refused(Error.INVALID_TOPIC_EXCEPTION, f"Clients do not write to {self.topic}.")
        in_sync, log = self.in_sync, self.log
        if required_acks == ACKS_ALL and not in_sync.is_enough:
            raise self._not_enough()
        if records and len(records) >= LARGE_BYTES:
            self._host.flush_now()
        appended = log.append_as_leader(
            records, self.leader_epoch, now_ms, produce_version=produce_version, prepared=prepared
        )
        if appended.is_duplicate:
            return appended
        size_bytes = appended.size_bytes
        self._unseen_bytes += size_bytes
        self.traffic.bytes_in += size_bytes
        if (required_acks == ACKS_ALL and in_sync.is_alone) or self.syncs_each:
            if in_sync.must_sync(appended.first_offset):
                self._host.flush_soon(self)
        else:
            if log.unflushed_records >= self._flush_messages:
                self._host.flush_soon(self)
            self._advance()
        return appended

    def must_wait(self, appended: Appended, required_acks: int) -> bool:
        """Whether what was appended does not count yet with these acks."""
        if required_acks == ACKS_ALL:
            if appended.last_offset >= self.log.high_watermark:
                return True
            # A duplicate of what came with less: what it promises must be on the disk now.
            return appended.is_duplicate and self.in_sync.is_alone and appended.last_offset >= self.log.flushed_offset
        return required_acks != 0 and self.syncs_each and appended.last_offset >= self.log.flushed_offset

    def when_acknowledged(self, appended: Appended, required_acks: int, reached: Reached) -> None:
        """Calls `reached` when it does count, which it must not yet."""
        offset = appended.last_offset + 1
        if required_acks == ACKS_ALL and offset > self.log.high_watermark:
            if self._committed is None:
                self._committed = OffsetWaits()
            self._committed.add(offset, reached)
            return
        if self._synced is None:
            self._synced = OffsetWaits()
        self._synced.add(offset, reached)
        self._host.flush_soon(self)

    def append_own(
        self, records: memoryview, now_ms: int, transaction_version: int = 0, prepared: Prepared | None = None
    ) -> Appended:
        """Appends what a coordinator writes, its state or a marker, as leader and with acks=all. Raises as `append`."""
        if not self.is_leader:
            raise self._not_leader()
        in_sync = self.in_sync
        if not in_sync.is_enough:
            raise self._not_enough()
        appended = self.log.append_as_leader(
            records,
            self.leader_epoch,
            now_ms,
            COORDINATOR,
            transaction_version=transaction_version,
            prepared=prepared,
        )
        size_bytes = appended.size_bytes
        self._unseen_bytes += size_bytes
        self.traffic.bytes_in += size_bytes
        if in_sync.is_alone or self.syncs_each:
            if in_sync.must_sync(appended.first_offset):
                self._host.flush_soon(self)
        else:
            self._advance()
        return appended

    def when_committed(self, offset: int, reached: Reached) -> None:
        """Calls `reached` when everything before `offset` is committed, which it must not be yet."""
        if self._committed is None:
            self._committed = OffsetWaits()
        self._committed.add(offset, reached)

    def _not_enough(self) -> Refused:
        return Refused(
            Error.NOT_ENOUGH_REPLICAS,
            f"{self} has {len(self.isr)} in-sync replicas, and min.insync.replicas is "
            f"{self.log.config.min_insync_replicas}.",
        )

    # ---------------------------------------------------------------------------------------------- what is on the disk

    def flush(self, now_ms: int) -> None:
        """Begins to bring everything appended so far to the disk."""
        log = self.log
        self.in_sync.flushing(log.log_end_offset)
        log.last_flush_ms = now_ms
        try:
            log.flush(self._flushed)
        except (DiskError, Refused) as error:
            self._not_flushed(error)

    def _flushed(self, error: DiskError | None) -> None:
        if error is not None:
            self._not_flushed(error)
            return
        point = self.log.flushed_offset
        self.in_sync.flushed(point)
        if self._synced:
            self._synced.reached(point)
        if self.is_leader:
            self._advance()

    def _not_flushed(self, error: HeadraceError) -> None:
        """Whoever waits does not know any more whether it is on the disk. After a failed sync it never will be."""
        logger.error("%s is not on the disk up to offset %d: %s", self, self.log.log_end_offset, error)
        self.in_sync.not_flushed()
        self._fail(Error.KAFKA_STORAGE_ERROR)
        if self.offline is None:
            self._host.flush_again(self)

    # ----------------------------------------------------------------------------------------------- the high watermark

    def _advance(self) -> None:
        log = self.log
        old, end = log.high_watermark, log.log_end_offset
        mark = self.in_sync.high_watermark(old, end)
        if mark <= old:
            return
        log.set_high_watermark(mark)
        unseen = self._unseen_bytes
        grown_bytes = unseen if mark == end else unseen * (mark - old) // (end - old)
        self._unseen_bytes = unseen - grown_bytes
        if self._committed:
            self._committed.reached(mark)
        if self._watchers:
            for watcher in list(self._watchers):
                watcher.progressed(self, grown_bytes)

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def _fail(self, error: Error) -> None:
        for waits in (self._committed, self._synced):
            if waits:
                waits.fail(error)

    def _changed(self) -> None:
        for watcher in list(self._watchers):
            watcher.changed(self)

    # ----------------------------------------------------------------------------------------------- what becomes of it

    def apply(self, state: PartitionState, node_id: int) -> None:
        """The image says who leads and who is in sync."""
        was_alone = self.is_leader and self.in_sync.is_alone
        is_new = state.leader_epoch != self.leader_epoch or state.leader != self.leader
        self.in_sync.set_replicas(state.replicas, state.isr, self.log.config.min_insync_replicas)
        self.count_messages()
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        self.partition_epoch = state.partition_epoch
        was_leader, self.is_leader = self.is_leader, state.leader == node_id
        if is_new and self.is_leader:
            self.leader_epoch_start_offset = self.log.log_end_offset
        if not self.is_leader:
            self.in_sync.reset(self.log.flushed_offset)
            if was_leader:  # hazard 4: whoever waits asks the new leader
                self._fail(Error.NOT_LEADER_OR_FOLLOWER)
        else:
            if not was_leader:
                self.in_sync.reset(self.log.flushed_offset)
            if self.in_sync.is_alone and not was_alone:
                self._begin_alone()
            self._advance()
        if is_new:
            self._changed()

    def _begin_alone(self) -> None:
        """What the others vouched for until now, or a life before this one, counts here when it is on the disk."""
        log = self.log
        if log.flushed_offset < log.log_end_offset and self.in_sync.must_sync(log.high_watermark):
            self._host.flush_soon(self)

    def configured(self) -> None:
        """The log has other settings."""
        config = self.log.config
        self._flush_messages = config.flush_messages
        self.syncs_each = config.flush_messages == 1
        self.looks_inside = self.log.rules.looks_inside or self.topic in INTERNAL
        self.in_sync.set_replicas(self.replicas, self.isr, config.min_insync_replicas)
        if self.is_leader:
            self._advance()

    def moved(self, log: Log) -> None:
        """Its log is in another directory now. Flushes of the old one that are under way say nothing of this one."""
        self.log = log
        self.in_sync.not_flushed()
        self.configured()
        self._host.flush_soon(self)
        self._changed()

    def went_offline(self) -> None:
        """Its directory failed."""
        self._fail(Error.KAFKA_STORAGE_ERROR)
        self._changed()

    def close(self, error: Error) -> None:
        """The node does not host it any more; whoever waits is told why."""
        self.count_messages()
        self.is_leader = False
        self._fail(error)
        self._changed()

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"<Partition {self} {role} epoch={self.leader_epoch} high_watermark={self.high_watermark}>"
