# cython: language_level=3, annotation_typing=False, nonecheck=True
"""One shard on this node: loaded from its partition, asked, written, and thrown away when a write fails.

What a round of the loop decides is joined into one batch and appended with acks=all. Whoever is to be told something
waits until all that was decided before it is committed. After a failed append the state in memory is ahead of the log,
so it is thrown away, and loaded again if this node still leads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from headrace.coordinator.loading import Loading
from headrace.coordinator.shard import (
    RECORD_OVERHEAD_BYTES,
    Again,
    Effect,
    Operation,
    Outcome,
    ProducerStamp,
    Reply,
    Shard,
    StateRecord,
    Timers,
)
from headrace.coordinator.slices import Slices
from headrace.coordinator.timers import ShardTimers
from headrace.errors import Error, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol.batch import NO_EPOCH, NO_PRODUCER
from headrace.protocol.batch import Batch as RecordBatch
from headrace.protocol.batch_builder import build, build_rows
from headrace.protocol.compression import Compression
from headrace.protocol.kernel_types import Row
from headrace.protocol.message import Message
from headrace.replica.partition import Partition
from headrace.replica.waits import Wait, Waits
from headrace.storage.append import Appended, Prepared
from headrace.storage.refusals import Refusals
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

BACK_OFF_MS: Final = 100
BACK_OFF_MAX_MS: Final = 10_000
TELL_LOAD_S: Final = 1.0
NEVER_S: Final = float("inf")

_BATCH_OVERHEAD_BYTES: Final = 61
_UNCOMPRESSED: Final = Compression.NONE

Batch = tuple[ProducerStamp | None, list[Row]]


class Host(Protocol):
    """What a shard needs of its runtime."""

    topic: str
    refusals: Refusals
    waits: Waits
    slices: Slices
    workers: Workers
    now_ms: Callable[[], int]
    load_bytes: int
    commit_timeout_ms: int
    compression: Compression
    image: Image

    def find(self, index: int) -> Partition: ...

    def make(self, timers: Timers, leader_epoch: int) -> Shard: ...

    def write_soon(self, hosted: HostedShard) -> None: ...

    def bring_about(self, effect: Effect) -> None: ...


class HostedShard:
    """Of any kind: what is asked of it is for its kind of shard, as the runtime that it is of says."""

    __slots__ = (
        "_asked_again",
        "_attempts",
        "_back_off",
        "_batch_bytes",
        "_batches",
        "_committed",
        "_early",
        "_host",
        "_is_dirty",
        "_is_ended",
        "_loading",
        "_next_offset",
        "_partition",
        "_shard",
        "_timeout",
        "_timers",
        "_waiting",
        "index",
        "refusal",
    )

    def __init__(self, host: Host, index: int) -> None:
        self.index = index
        self.refusal: Error = Error.COORDINATOR_LOAD_IN_PROGRESS
        """What is answered to whoever asks; NONE when it can be asked."""
        self._host = host
        self._partition: Partition | None = None
        self._shard: Any = None
        self._loading: Loading | None = None
        self._timers = ShardTimers(host.waits, host.now_ms, self._rings)
        self._back_off: Wait | None = None
        self._attempts = 0
        self._is_ended = False
        self._forget()

    def _forget(self) -> None:
        self._batches: list[Batch] = []
        """Decided, replayed, and not appended yet."""
        self._batch_bytes = 0
        self._is_dirty = False
        self._next_offset = 0
        """Of the next record that is decided."""
        self._committed = 0
        """Everything before this offset is committed."""
        self._waiting: deque[tuple[int, float, Outcome]] = deque()
        """Outcomes with what must be committed before them, and until when they wait, in their order."""
        self._timeout: Wait | None = None
        self._early: list[Callable[[int], Outcome]] = []
        self._asked_again: list[Again[Any]] = []
        """Decided together: at the end of the round, or before anything else is."""

    # ---------------------------------------------------------------------------------------------------------- loading

    def load_soon(self) -> Iterator[None]:
        """A step for the slices: to make the partition takes its time too."""
        if not self._is_ended:
            self.load()
        yield

    def load(self) -> None:
        host = self._host
        self.refusal = Error.COORDINATOR_LOAD_IN_PROGRESS
        try:
            self._partition = partition = host.find(self.index)
            partition.require_leader()
        except Refused as refused:
            self._load_again(refused)
            return
        self._shard = shard = host.make(self._timers, partition.leader_epoch)
        self._loading = Loading(
            partition,
            shard,
            host.slices,
            host.workers,
            host.waits.time,
            host.load_bytes,
            lambda: shard.settle(host.image, host.now_ms()),
            self._loaded,
        )
        self._loading.start()

    def _loaded(self, error: Exception | None) -> None:
        loading, partition, shard = self._loading, self._partition, self._shard
        assert loading is not None
        assert partition is not None
        assert shard is not None
        self._loading = None
        if error is not None:
            self._shard = None
            self._timers.cancel_all()
            self._early = []  # of a state that is thrown away
            self._load_again(error)
            return
        log = logger.info if loading.seconds >= TELL_LOAD_S else logger.debug
        log("loaded %s: %d records in %.1f s", partition, loading.records, loading.seconds)
        self._next_offset, self._committed = partition.log_end_offset, partition.high_watermark
        self.refusal = Error.NONE
        if self._committed < self._next_offset:
            # What a life before this one appended may not count yet: nobody is told of it before it does.
            partition.when_committed(self._next_offset, self._reached)
        now_ms = self._host.now_ms()
        early, self._early = self._early, []
        self._do(lambda: shard.loaded(self._host.image, now_ms), now_ms)
        for event in early:
            self._rings(event, now_ms)

    def _load_again(self, error: Exception) -> None:
        """After a pause, which grows: a disk that is full, say, may stay so for long."""
        pause_ms = min(BACK_OFF_MS << min(self._attempts, 16), BACK_OFF_MAX_MS)
        self._attempts += 1
        self.refusal = Error.COORDINATOR_NOT_AVAILABLE
        # Of another leader the partition hears first, and then the runtime, which ends this.
        is_resigned = isinstance(error, Refused) and error.error is Error.NOT_LEADER_OR_FOLLOWER
        if not is_resigned:
            problem = f"shard {self.index} of {self._host.topic} can't be used, and is loaded again soon"
            self._host.refusals.note(problem, error, self._host.now_ms())
        self._back_off = self._host.waits.after_ms(pause_ms, self._back)

    def _back(self) -> None:
        self._back_off = None
        if not self._is_ended:
            self.load()

    # ----------------------------------------------------------------------------------------------------------- asking

    def ask(self, operation: Operation[Any], reply: Reply) -> None:
        now_ms = self._host.now_ms()
        if self._asked_again:
            self._decide_again(now_ms)
        shard = self._shard
        if shard is None or self.refusal:
            reply.refuse(self.refusal)
            return
        try:
            outcome = operation(shard, now_ms)
        except Refused as refused:
            # A refusal tells of the state too, and so it waits as every reply does.
            self._take(Outcome(effects=[_Refusal(reply, refused.error, refused.text)]), now_ms)
            return
        except Exception:
            logger.exception("a request to shard %d of %s failed", self.index, self._host.topic)
            reply.refuse(Error.UNKNOWN_SERVER_ERROR)
            return
        self._take(outcome, now_ms)

    def ask_again(self, asked: Again[Any]) -> None:
        """As `ask`, of a shard that has room for it. What many ask in a round is decided at once, in their order."""
        self._asked_again.append(asked)
        if not self._is_dirty:
            self._write_soon()

    @property
    def shard(self) -> Any:
        """None when it can't be asked now."""
        return None if self.refusal else self._shard

    def shard_with_room(self, size_bytes: int) -> Any:
        """The same, and None when a batch has no room for records of this size."""
        return None if self.refusal or size_bytes > self._limit_bytes() else self._shard

    def _limit_bytes(self) -> int:
        assert self._partition is not None
        return self._partition.log.rules.max_message_bytes - _BATCH_OVERHEAD_BYTES

    def image_changed(self, delta: Delta, image: Image) -> None:
        shard = self._shard
        if shard is not None and not self.refusal:
            now_ms = self._host.now_ms()
            self._do(lambda: shard.image_changed(delta, image, now_ms), now_ms)

    def _rings(self, event: Callable[[int], Outcome], now_ms: int) -> None:
        if self.refusal:  # it is still loaded, and armed by what was replayed
            self._early.append(event)
        else:
            self._do(lambda: event(now_ms), now_ms)

    def _do(self, event: Callable[[], Outcome], now_ms: int) -> None:
        """What nobody asked for. Should it fail, the state can't be relied on."""
        if self._asked_again:
            self._decide_again(now_ms)
            if self._shard is None:
                return  # that failed, and the event is of a state that was thrown away
        try:
            outcome = event()
        except Exception as error:
            logger.exception("an event of shard %d of %s failed", self.index, self._host.topic)
            self._fail(Error.UNKNOWN_SERVER_ERROR, error)
        else:
            self._take(outcome, now_ms)

    # ---------------------------------------------------------------------------------------------------------- writing

    def _decide_again(self, now_ms: int) -> None:
        asked, self._asked_again = self._asked_again, []
        assert self._shard is not None
        shard, offset = self._shard, self._next_offset
        batches, size_bytes, limit = self._batches, self._batch_bytes, self._limit_bytes()
        rows: list[Row] | None = batches[-1][1] if batches and batches[-1][0] is None else None
        replies: list[tuple[Reply, Message]] = []
        try:
            for one in asked:
                place = rows if rows is not None and size_bytes + one.size_bytes <= limit else []
                count = len(place)
                replies.append((one, one.decide(shard, now_ms, place, offset)))
                if len(place) == count:
                    continue  # it was refused, and takes no room
                if place is not rows:
                    rows, size_bytes = place, 0
                    batches.append((None, place))
                size_bytes += one.size_bytes
                offset += len(place) - count
        except Exception as error:
            logger.exception("a request to shard %d of %s that came again failed", self.index, self._host.topic)
            self._fail(Error.UNKNOWN_SERVER_ERROR, error)
            for one in asked:
                one.refuse(Error.UNKNOWN_SERVER_ERROR)
            return
        self._batch_bytes, self._next_offset = size_bytes, offset
        self._wait_to_tell(Outcome([], replies))

    def _take(self, outcome: Outcome, now_ms: int) -> None:
        if outcome.records:
            try:
                if not self._add(outcome, now_ms):
                    return
            except Exception as error:
                logger.exception("a record of shard %d of %s can't be replayed", self.index, self._host.topic)
                self._waiting.append((self._next_offset, 0.0, outcome))
                self._fail(Error.UNKNOWN_SERVER_ERROR, error)
                return
        elif self._committed >= self._next_offset:
            self._tell(outcome)
            return
        if outcome.replies or outcome.effects:
            self._wait_to_tell(outcome)

    def _wait_to_tell(self, outcome: Outcome) -> None:
        host = self._host
        deadline_s = host.waits.time() + host.commit_timeout_ms / 1000
        self._waiting.append((self._next_offset, deadline_s, outcome))
        if self._timeout is None:
            self._timeout = host.waits.at(deadline_s, self._timed_out)

    def _add(self, outcome: Outcome, now_ms: int) -> bool:
        """Replays the records, and puts them with those that wait to be appended. False if they are too large."""
        assert self._shard is not None
        records, stamp = outcome.records, outcome.stamp
        batches, limit = self._batches, self._limit_bytes()
        if len(records) == 1:  # as nearly all are: a commit, which joins others or is joined by them
            key, value = records[0]
            size = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
            if batches and batches[-1][0] == stamp:
                size += self._batch_bytes
            elif size <= limit:
                batches.append((stamp, []))
            if size <= limit:
                self._batch_bytes = size
                batches[-1][1].append((key, value, (), now_ms))
                self._shard.replay(key, value, self._next_offset, now_ms, stamp)
                self._next_offset += 1
                if not self._is_dirty:
                    self._write_soon()
                return True
        sizes = [_size(record) for record in records]
        total = sum(sizes)
        if total > limit and (outcome.is_atomic or max(sizes) > limit):
            logger.error(
                "shard %d of %s was to write %d bytes at once, and max.message.bytes is %d",
                *(self.index, self._host.topic, total, limit + _BATCH_OVERHEAD_BYTES),
            )
            refused = [_Refusal(reply, Error.UNKNOWN_SERVER_ERROR) for reply, _ in outcome.replies]
            self._take(Outcome(effects=[*refused]), now_ms)
            return False
        replay, offset = self._shard.replay, self._next_offset
        joins = bool(batches) and batches[-1][0] == stamp and self._batch_bytes + total <= limit
        for record, size in zip(records, sizes, strict=True):
            if not joins or self._batch_bytes + size > limit:
                batches.append((stamp, []))
                self._batch_bytes = 0
                joins = True
            self._batch_bytes += size
            batches[-1][1].append((record.key, record.value, (), now_ms))
            replay(record.key, record.value, offset, now_ms, stamp)
            offset += 1
        self._next_offset = offset
        self._write_soon()
        return True

    def _write_soon(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._host.write_soon(self)

    def write(self, now_ms: int) -> None:
        """At the end of the round, or before a marker: appends what was decided."""
        if self._asked_again:
            self._decide_again(now_ms)
        if not self._is_dirty:
            return
        partition, batches = self._partition, self._batches
        assert partition is not None
        self._is_dirty, self._batches, self._batch_bytes = False, [], 0
        first_offset = self._next_offset - sum([len(records) for _, records in batches])
        try:
            for stamp, records in batches:
                content = self._encode(stamp, records)
                appended = partition.append_own(content, now_ms, prepared=_prepared(partition, content, now_ms))
                if appended.first_offset != first_offset:
                    raise Refused(
                        Error.UNKNOWN_SERVER_ERROR,
                        f"{partition} ends at {appended.first_offset} and not at {first_offset}: somebody else wrote.",
                    )
                first_offset = appended.last_offset + 1
        except Refused as refused:
            self._fail(coordinator_error(refused.error), refused)
            return
        except Exception as error:  # other shards write after this one
            logger.exception("shard %d of %s can't be written", self.index, self._host.topic)
            self._fail(Error.UNKNOWN_SERVER_ERROR, error)
            return
        self._wait_for(partition, first_offset)

    def _wait_for(self, partition: Partition, offset: int) -> None:
        if partition.high_watermark >= offset:
            self._reached(Error.NONE)
        else:
            partition.when_committed(offset, self._reached)

    def _encode(
        self,
        stamp: ProducerStamp | None,
        records: list[Row],
    ) -> memoryview:
        if stamp is None and self._host.compression is _UNCOMPRESSED:  # as nearly always
            return build_rows(records)
        producer_id, producer_epoch = stamp or (NO_PRODUCER, NO_EPOCH)
        return memoryview(
            build(
                records,
                compression=self._host.compression,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=stamp is not None,
            )
        )

    def append_marker(
        self, marker: memoryview, stamp: ProducerStamp, is_commit: bool, now_ms: int, transaction_version: int
    ) -> Appended:
        """The end of a transaction, which is written behind all that was decided before it. Raises Refused."""
        self.write(now_ms)
        partition = self._host.find(self.index)
        appended = partition.append_own(marker, now_ms, transaction_version)
        if self._shard is not None and not self.refusal:
            self._shard.replay_end(stamp, is_commit)
            self._next_offset = appended.last_offset + 1
            self._wait_for(partition, self._next_offset)
        return appended

    # ---------------------------------------------------------------------------------------------------------- telling

    def _reached(self, error: Error) -> None:
        """More is committed, or what was appended can't be any more."""
        if self._shard is None or self.refusal:
            return
        if error:
            self._fail(coordinator_error(error), Refused(error))
            return
        assert self._partition is not None
        self._attempts = 0
        self._committed = committed = self._partition.high_watermark
        waiting = self._waiting
        while waiting and waiting[0][0] <= committed:
            self._tell(waiting.popleft()[2])

    def _tell(self, outcome: Outcome) -> None:
        for reply, message in outcome.replies:
            try:
                reply(message)
            except Exception:
                logger.exception("a reply of shard %d of %s can't be sent", self.index, self._host.topic)
        for effect in outcome.effects:
            if type(effect) is _Refusal:
                effect.reply.refuse(effect.error, effect.text)
            else:
                self._host.bring_about(effect)

    def _timed_out(self) -> None:
        """What is decided stays so, and whoever waits for it has to ask again. Effects wait for as long as it takes."""
        self._timeout = None
        now_s, next_s = self._host.waits.time(), NEVER_S
        waiting, self._waiting = self._waiting, deque()
        for offset, deadline_s, outcome in waiting:
            if deadline_s <= now_s:
                _refuse_all(outcome, Error.COORDINATOR_NOT_AVAILABLE)
                outcome.replies = []
                outcome.effects = [effect for effect in outcome.effects if type(effect) is not _Refusal]
                deadline_s = NEVER_S
            if outcome.replies or outcome.effects:
                self._waiting.append((offset, deadline_s, outcome))
                next_s = min(next_s, deadline_s)
        if next_s != NEVER_S:
            self._timeout = self._host.waits.at(next_s, self._timed_out)

    # ----------------------------------------------------------------------------------------------------------- ending

    def _fail(self, told: Error, why: Exception) -> None:
        """The state is not what the log says any more."""
        if self._is_ended or self._shard is None:
            return
        self._throw_away(told)
        self._load_again(why)

    def end(self, told: Error) -> None:
        """This node does not host it any more."""
        if self._is_ended:
            return
        self._is_ended = True
        if self._back_off is not None:
            self._back_off.cancel()
        self._throw_away(told)
        self.refusal = told

    def _throw_away(self, told: Error) -> None:
        shard, waiting, asked = self._shard, list(self._waiting), self._asked_again
        self._waiting.clear()  # whoever goes through it now is to find nothing more
        was_asked = not self.refusal
        self._shard = None
        self.refusal = told
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self._timers.cancel_all()
        if self._timeout is not None:
            self._timeout.cancel()
        self._forget()
        for _, _, outcome in waiting:
            _refuse_all(outcome, told)
        for one in asked:
            one.refuse(told)
        if shard is not None and was_asked:
            try:
                outcome = shard.unloaded(self._host.now_ms())
            except Exception:
                logger.exception("shard %d of %s can't be unloaded", self.index, self._host.topic)
            else:
                self._tell(Outcome(replies=outcome.replies))


class _Refusal:
    """An effect of our own: a reply that says no, in its turn."""

    __slots__ = ("error", "reply", "text")

    def __init__(self, reply: Reply, error: Error, text: str | None = None) -> None:
        self.reply = reply
        self.error = error
        self.text = text


def _prepared(partition: Partition, content: memoryview, now_ms: int) -> Prepared | None:
    """What was made here needs no checks, unless the topic's settings are others than coordinators give it."""
    rules = partition.log.rules
    if rules.is_append_time or rules.codec is not None or len(content) > rules.segment_bytes:
        return None
    return Prepared(rules, content, [RecordBatch(content)], now_ms)


def _refuse_all(outcome: Outcome, error: Error) -> None:
    for reply, _ in outcome.replies:
        reply.refuse(error)
    for effect in outcome.effects:
        if type(effect) is _Refusal:
            effect.reply.refuse(error)


def _size(record: StateRecord) -> int:
    return len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES


_NOT_AVAILABLE: Final = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.NOT_ENOUGH_REPLICAS,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Error.REQUEST_TIMED_OUT,
)
_NOT_COORDINATOR: Final = (Error.NOT_LEADER_OR_FOLLOWER, Error.KAFKA_STORAGE_ERROR, Error.FENCED_LEADER_EPOCH)
_TOO_LARGE: Final = (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE, Error.INVALID_FETCH_SIZE)


def coordinator_error(error: Error) -> Error:
    """What a client of a coordinator is told when the append of its state was refused with this."""
    if error in _NOT_AVAILABLE:
        return Error.COORDINATOR_NOT_AVAILABLE
    if error in _NOT_COORDINATOR:
        return Error.NOT_COORDINATOR
    return Error.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else error
