# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Requests of a producer that has sent a batch of one partition before: only the records of the next are looked at.

To decode such a request and to encode its reply takes a third of what it costs. From the second one on its frame is
compared with what is known of it, its batch is appended as any other, and its reply is known but for the offsets. What
is special about a batch goes the long way, before anything has been done with it: the first of a transaction in its
partition, and all for partitions where appends wait for their turn or have to be looked into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.produce_reply import WAIT_MS_MIN
from headrace.broker.produce_transactional import is_open
from headrace.errors import Error, Refused
from headrace.metrics.requests import RequestFigures
from headrace.net.connection import Connection, Slot
from headrace.protocol import messages as m
from headrace.protocol.batch import ATTRIBUTES_AT, TRANSACTIONAL_BIT
from headrace.protocol.frame import Request, write_response
from headrace.protocol.produce_frame import HEAD_BYTES, ProduceFrame
from headrace.replica.partition import Partition
from headrace.replica.waits import Wait
from headrace.storage.append import Appended

if TYPE_CHECKING:
    from headrace.broker.produce import Produce

PRODUCE_KEY: Final = 0
TARGETS_MAX: Final = 32
"""Partitions of one connection; those beyond go the long way."""
ENDS_MAX: Final = 4
"""Lengths of prefixes, which differ as the names of topics do: each is looked for in a frame."""
PREFIX_BYTES_MAX: Final = 1 << 10


def prepare(produce: Produce, connection: Connection, request: Request, figures: RequestFigures) -> None:
    """Prepares the connection for this request, which was taken, to come again with other records."""
    known = connection.repeated.get(PRODUCE_KEY)
    if not isinstance(known, RepeatedProduce):
        connection.repeated[PRODUCE_KEY] = known = RepeatedProduce(produce, figures)
    known.learn(request)


class Target:
    """A partition that a connection produces to, with all that it says each time."""

    __slots__ = ("acks", "frame", "index", "name", "topic_id", "transactional_id", "version", "wait_ms")

    def __init__(self, frame: ProduceFrame, body: m.ProduceRequest, version: int) -> None:
        topic = body.topic_data[0]
        self.frame = frame
        self.version = version
        self.acks = body.acks
        self.transactional_id = body.transactional_id
        self.wait_ms = max(body.timeout_ms, WAIT_MS_MIN)
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index

    def reply(self, correlation_id: bytes, appended: Appended) -> bytes:
        return self.frame.reply(
            correlation_id, appended.first_offset, appended.log_append_time, appended.log_start_offset
        )


class RepeatedProduce:
    __slots__ = ("_ends", "_figures", "_head", "_produce", "_targets", "_tries")

    def __init__(self, produce: Produce, figures: RequestFigures) -> None:
        self._produce = produce
        self._figures = figures
        self._head = b""
        self._ends: tuple[int, ...] = ()
        """Where the prefixes of the targets end, in a frame."""
        self._targets: dict[bytes, Target] = {}
        """By prefix."""
        self._tries = 0

    def learn(self, request: Request) -> None:
        """Such a request went the long way. After a few that come again all the same, it is left at that."""
        if self._tries >= TARGETS_MAX:
            return
        self._tries += 1
        frame = ProduceFrame.of(request.body, request.version, request.client_id)
        if frame is None or len(frame.prefix) > PREFIX_BYTES_MAX or self._head not in (b"", frame.head):
            return
        end = HEAD_BYTES + len(frame.prefix)
        if end not in self._ends:
            if len(self._ends) == ENDS_MAX:
                return
            self._ends += (end,)
        self._head = frame.head
        self._targets[frame.prefix] = Target(frame, request.body, request.version)

    def take(self, connection: Connection, frame: memoryview) -> RequestFigures | None:
        """Handles such a frame. None when it is another request, or has to go the long way."""
        if frame[:4] != self._head:
            return None
        for end in self._ends:
            target = self._targets.get(frame[HEAD_BYTES:end].tobytes())
            if target is not None:
                break
        else:
            return None
        records = target.frame.records_in(frame)
        if records is None or len(records) <= ATTRIBUTES_AT:
            return None
        produce, acks = self._produce, target.acks
        try:
            partition = produce.find(target.name, target.topic_id, target.index, target.version)
        except Refused:
            return None
        if partition.held or partition.looks_inside:
            return None
        if records[ATTRIBUTES_AT] & TRANSACTIONAL_BIT and not is_open(partition, records, target.transactional_id):
            return None
        figures, stopwatch = self._figures, connection.listener.stopwatch
        stopwatch.switch(figures)
        correlation_id = frame[4:HEAD_BYTES].tobytes()
        try:
            appended = partition.append(records, acks, produce.now_ms(), target.version)
        except Refused as refused:
            reply = produce.refused(
                refused, target.name, target.topic_id, target.index, partition, target.version, connection
            )
            connection.reply(write_response(reply, target.version, int.from_bytes(correlation_id, signed=True)))
            return figures
        if (acks != 1 or partition.syncs_each) and partition.must_wait(appended, acks):
            PendingAck(produce, connection, target, correlation_id, appended).wait_for(partition)
        else:
            connection.reply([target.reply(correlation_id, appended)])
        return figures


class PendingAck:
    """As `produce_reply.PendingReply`, of one batch that is appended and does not count yet."""

    __slots__ = ("_appended", "_correlation_id", "_produce", "_slot", "_target", "_timer")

    def __init__(
        self, produce: Produce, connection: Connection, target: Target, correlation_id: bytes, appended: Appended
    ) -> None:
        self._produce = produce
        self._target = target
        self._correlation_id = correlation_id
        self._appended = appended
        self._slot: Slot | None = connection.reserve()
        self._timer: Wait | None = None

    def wait_for(self, partition: Partition) -> None:
        produce, target = self._produce, self._target
        produce.waiting += 1
        self._timer = produce.waits.after_ms(target.wait_ms, self._timed_out)
        partition.when_acknowledged(self._appended, target.acks, self._reached)

    def _reached(self, error: Error) -> None:
        slot, self._slot = self._slot, None
        if slot is None:
            return
        assert self._timer is not None
        self._timer.cancel()
        self._produce.waiting -= 1
        if error:
            self._tell(slot, error, error.text)
        else:
            slot.fill([self._target.reply(self._correlation_id, self._appended)])

    def _timed_out(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            self._produce.waiting -= 1
            self._tell(slot, Error.REQUEST_TIMED_OUT, None)

    def _tell(self, slot: Slot, error: Error, text: str | None) -> None:
        target, appended = self._target, self._appended
        reply = self._produce.not_acknowledged(error, text, target.name, target.topic_id, target.index, appended)
        slot.fill(write_response(reply, target.version, int.from_bytes(self._correlation_id, signed=True)))
