"""Sends the batches of all lanes to the brokers that lead them, and deals with the answers.

Everything happens in callbacks of the loop. `touch` says that something has changed for a lane: once a turn
the pump looks at those lanes and no others. Lanes with something to send wait in line for each leader, so that none
starves. One heap with one timer wakes lanes for what is due later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from headrace.client.cluster import Cluster
from headrace.client.errors import NotSent, Uncertain
from headrace.client.lane import NEVER, Identity, Lane, Outgoing, Produced
from headrace.client.link import Link
from headrace.client.metadata import NO_TOPIC_ID
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.peer import Disconnected
from headrace.protocol.batch import NO_SEQUENCE
from headrace.protocol.compression import Compression
from headrace.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse

__all__ = ["Sender", "Sending"]

_log = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT_MAX: Final = 5
EPOCH_MAX: Final = 32767
TOPIC_ID_VERSION: Final = 13
# Refused before the append, whatever else happened: nothing of this attempt is in the log.
_NOT_APPENDED: Final = frozenset(
    {
        Error.NOT_ENOUGH_REPLICAS,
        Error.CORRUPT_MESSAGE,
        Error.LEADER_NOT_AVAILABLE,
        Error.THROTTLING_QUOTA_EXCEEDED,
        Error.UNKNOWN_TOPIC_ID,
    }
)


@dataclass(slots=True)
class Sending:
    """How a producer sends."""

    acks: int
    is_idempotent: bool
    compression: Compression
    batch_bytes: int
    request_bytes_max: int
    transactional_id: str | None = None


class Transactional(Protocol):
    """What a sender asks of the transaction that its batches belong to."""

    produce_version_max: int | None

    def prepare(self, lane: Lane) -> bool:
        """Whether the lane may send: it has the epoch of the transaction, and its partition belongs to it."""

    def failed(self, error: Error, text: str) -> None:
        """A batch is not in the log, or nobody knows: the transaction can't be committed any more."""


class Sender:
    __slots__ = (
        "_busy",
        "_cluster",
        "_done",
        "_due",
        "_due_count",
        "_getting_identity",
        "_in_flight",
        "_is_pump_due",
        "_loop",
        "_opening",
        "_ready",
        "_sending",
        "_tasks",
        "_timer",
        "_touched",
        "hurried",
        "identity",
        "is_closed",
        "lanes",
        "transaction",
    )

    def __init__(self, cluster: Cluster, sending: Sending, done: Callable[[Outgoing], None]) -> None:
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.identity: Identity | None = None
        self.hurried = 0
        """While somebody flushes, batches don't linger."""
        self.is_closed = False
        self.transaction: Transactional | None = None
        self._cluster = cluster
        self._sending = sending
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._busy: dict[Lane, None] = {}
        self._touched: dict[Lane, None] = {}
        self._ready: dict[Link, deque[Lane]] = {}
        self._due: list[tuple[float, int, Lane]] = []
        self._due_count = 0
        self._in_flight: dict[Link, int] = {}
        self._opening: dict[Link, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._getting_identity = False
        self._is_pump_due = False
        self._timer: asyncio.TimerHandle | None = None
        cluster.changed.append(self._leaders_changed)

    def lane(self, topic: str, index: int) -> Lane:
        lane = self.lanes.get((topic, index))
        if lane is None:
            lane = self.lanes[topic, index] = Lane(topic, index)
        return lane

    def touch(self, lane: Lane) -> None:
        """Something has changed for a lane: it may have something to send."""
        self._busy[lane] = None
        self._touched[lane] = None
        self._pump_soon()

    def touch_all(self) -> None:
        self._touched |= self._busy
        self._pump_soon()

    @property
    def under_way(self) -> list[asyncio.Future[Produced]]:
        """The futures of all records that are not settled."""
        batches = (batch for lane in self._busy for batch in (*lane.flying, *lane.queue) if not batch.is_done)
        return [future for batch in batches for future in batch.futures if not future.done()]

    @property
    def refused(self) -> Refused | None:
        """Why the first of those that wait to be sent again was refused; None when none of them was."""
        for lane in self._busy:
            for batch in lane.queue:
                if batch.last_error is not None:
                    error = batch.last_error
                    return Refused(error, f"{lane.topic}-{lane.index} refuses records ({error.name}): {error.text}")
        return None

    def _leaders_changed(self) -> None:
        for waiting in self._ready.values():
            for lane in waiting:
                lane.is_ready = False
        self._ready.clear()
        self.touch_all()

    def _pump_soon(self) -> None:
        if not self._is_pump_due and not self.is_closed:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def close(self) -> None:
        """Give up what is still here."""
        self.is_closed = True
        self._cluster.changed.remove(self._leaders_changed)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for lane in self._busy:
            for batch in (*lane.flying, *lane.queue):
                self._fail(lane, batch, "the producer was closed")

    # --- sending ------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        self._is_pump_due = False
        if self.is_closed:
            return
        now = self._loop.time()
        while self._due and self._due[0][0] <= now:
            lane = heappop(self._due)[2]
            lane.wake_at = NEVER
            self._touched[lane] = None
        touched, self._touched = self._touched, {}
        try:
            for lane in touched:
                self._look_at(lane, now)
            for link in list(self._ready):
                self._send_to(link, now)
        except Exception as error:
            self._fail_busy(error)
        self._set_timer()

    def _look_at(self, lane: Lane, now: float) -> None:
        if lane.is_overdue(now):
            self._expire(lane, now)
        if lane.is_idle:
            self._busy.pop(lane, None)
            return
        if (due := lane.next_due(now)) < lane.wake_at:
            lane.wake_at = due
            self._due_count += 1  # lanes have no order
            heappush(self._due, (due, self._due_count, lane))
        if self._sending.is_idempotent and not self._prepare(lane):
            return
        if not lane.is_ready and self._sendable(lane, now) is not None and (link := self._leader(lane)) is not None:
            lane.is_ready = True
            self._ready.setdefault(link, deque()).append(lane)

    def _sendable(self, lane: Lane, now: float) -> Outgoing | None:
        return lane.sendable(now, self.hurried > 0, self._sending.batch_bytes)

    def _prepare(self, lane: Lane) -> bool:
        """Whether the lane has a producer id and epoch to send under."""
        if self.transaction is not None:
            return self.transaction.prepare(lane)
        if lane.settle() and self.identity is not None and lane.identity == self.identity:
            self._bump()
        if self.identity is None:
            self._get_identity()
            return False
        if lane.settle() or lane.may_adopt(self.identity):
            for batch in lane.restart(self.identity):
                self._done(batch)
        # With an old identity only what has its sequence already may go.
        return lane.identity == self.identity or (bool(lane.queue) and lane.queue[0].sequence != NO_SEQUENCE)

    def _leader(self, lane: Lane) -> Link | None:
        partition = self._cluster.metadata.leader(lane.topic, lane.index)
        link = None if partition is None else self._cluster.link(partition.leader_id)
        if link is None:
            self._cluster.want(lane.topic)
            self._cluster.refresh_soon()
        return link

    def _send_to(self, link: Link, now: float) -> None:
        waiting = self._ready[link]
        while waiting and self._in_flight.get(link, 0) < REQUESTS_IN_FLIGHT_MAX:
            if not link.is_ready or link.peer is None or not link.peer.is_writable:
                self._open(link)
                return
            batches: list[tuple[Lane, Outgoing]] = []
            size_bytes = 0
            while waiting:
                lane = waiting[0]
                batch = self._sendable(lane, now)
                if batch is not None:
                    size_bytes += batch.size_bytes
                    if batches and size_bytes > self._sending.request_bytes_max:
                        break
                    batches.append((lane, batch))
                waiting.popleft()
                lane.is_ready = False
            if batches:
                try:
                    self._send_request(link, batches)
                except Exception as error:
                    self._fail_batches(batches, error)
            for lane, _ in batches:
                if not lane.is_ready and self._sendable(lane, now) is not None:
                    lane.is_ready = True
                    waiting.append(lane)
        if not waiting:
            self._ready.pop(link, None)

    def _send_request(self, link: Link, batches: list[tuple[Lane, Outgoing]]) -> None:
        assert link.peer is not None
        assert link.served is not None
        metadata = self._cluster.metadata
        has_ids = all(metadata.topic_id(lane.topic) != NO_TOPIC_ID for lane, _ in batches)
        version_max = None if has_ids else TOPIC_ID_VERSION - 1
        if self.transaction is not None and self.transaction.produce_version_max is not None:
            version_max = self.transaction.produce_version_max
        try:
            version = link.served.choose(ProduceRequest, version_max)
        except Refused as error:
            for lane, batch in batches:
                lane.queue.remove(batch)
                batch.last_error = error.error
                self._fail(lane, batch, error.text)
            return
        request = ProduceRequest(
            transactional_id=self._sending.transactional_id,
            acks=self._sending.acks,
            timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
        )
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        sent: list[tuple[Lane, Outgoing]] = []
        for lane, batch in batches:
            lane.send(batch, self._sending.is_idempotent)
            try:
                records = batch.encode(self._sending.compression, self._sending.transactional_id is not None)
            except Exception as error:  # of one batch, which must not hold up the others
                _log.exception("a batch for %s-%d can't be written", lane.topic, lane.index)
                lane.landed(batch)
                self._lost_sequence(lane, batch)
                batch.last_error = Error.INVALID_RECORD
                self._fail(lane, batch, f"it can't be encoded ({error!r})")
                self.touch(lane)
                continue
            sent.append((lane, batch))
            topic = topics.get(lane.topic)
            if topic is None:
                topic = topics[lane.topic] = ProduceRequest.TopicProduceData(
                    name=lane.topic, topic_id=metadata.topic_id(lane.topic)
                )
                request.topic_data.append(topic)
            topic.partition_data.append(ProduceRequest.PartitionProduceData(index=lane.index, records=records))
        if sent:
            self._put_on_wire(link, request, version, sent, {topic.topic_id: name for name, topic in topics.items()})

    def _put_on_wire(
        self,
        link: Link,
        request: ProduceRequest,
        version: int,
        batches: list[tuple[Lane, Outgoing]],
        names: dict[bytes, str],
    ) -> None:
        assert link.peer is not None
        peer = link.peer
        try:
            if self._sending.acks == 0:
                peer.send_without_reply(request, version)
                for lane, batch in batches:
                    self._succeed(lane, batch, -1, -1)
                    self.touch(lane)
                return
            future = peer.send(request, version)
        except Disconnected:  # by the request before this one, in the same turn of the loop
            self._cluster.refresh_soon()
            for lane, batch in batches:
                lane.landed(batch)
                self._retry(lane, batch)
                self.touch(lane)
            return
        self._in_flight[link] = self._in_flight.get(link, 0) + 1
        timeout_s = self._cluster.settings.request_timeout_s
        late = self._loop.call_later(timeout_s, peer.close, f"{peer} did not answer Produce within {timeout_s:g} s.")
        future.add_done_callback(lambda future: self._answered(link, late, batches, names, future))

    def _open(self, link: Link) -> None:
        if link not in self._opening:
            self._opening[link] = None
            self._spawn(self._wait_for_link(link))

    async def _wait_for_link(self, link: Link) -> None:
        try:
            await link.ready()
            if link.peer is not None:
                await link.peer.drain()
        except HeadraceError as error:
            _log.info("no connection to a leader: %s", error)
            self._cluster.refresh_soon()  # somebody else may lead by now
        finally:
            del self._opening[link]

    def _spawn(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if isinstance(error := None if task.cancelled() else task.exception(), Exception):
            self._fail_busy(error)
        self.touch_all()

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(
        self,
        link: Link,
        late: asyncio.TimerHandle,
        batches: list[tuple[Lane, Outgoing]],
        names: dict[bytes, str],
        future: asyncio.Future[ProduceResponse],
    ) -> None:
        late.cancel()
        self._in_flight[link] -= 1
        if not self._in_flight[link]:
            del self._in_flight[link]
        if self.is_closed:
            future.cancelled() or future.exception()
            return
        try:
            self._take_answers(batches, names, future)
        except Exception as error:
            self._fail_batches(batches, error)

    def _take_answers(
        self,
        batches: list[tuple[Lane, Outgoing]],
        names: dict[bytes, str],
        future: asyncio.Future[ProduceResponse],
    ) -> None:
        answers: dict[tuple[str, int], ProduceResponse.PartitionProduceResponse] = {}
        endpoints: list[ProduceResponse.NodeEndpoint] = []
        if future.cancelled() or future.exception() is not None:
            self._cluster.refresh_soon()
        else:
            response = future.result()
            endpoints = response.node_endpoints
            for topic in response.responses:
                name = topic.name or names.get(topic.topic_id, "")
                for partition in topic.partition_responses:
                    answers[name, partition.index] = partition
        for lane, batch in batches:
            answer = answers.get((lane.topic, lane.index))
            if answer is None:
                lane.landed(batch)
                batch.is_doubtful = True
                self._retry(lane, batch)
            else:
                self._settle(lane, batch, answer, endpoints)
            self.touch(lane)

    def _settle(
        self,
        lane: Lane,
        batch: Outgoing,
        answer: ProduceResponse.PartitionProduceResponse,
        endpoints: list[ProduceResponse.NodeEndpoint],
    ) -> None:
        error = Error.of(answer.error_code)
        if error in (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER):
            # A duplicate that is too old for the broker to know its offset is in the log all the same.
            offset = answer.base_offset if error is Error.NONE else -1
            self._succeed(lane, batch, offset, answer.log_append_time_ms)
            return
        is_first = lane.is_first_outstanding(batch)
        lane.landed(batch)
        batch.last_error = error
        if self._sending.is_idempotent and error in (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.UNKNOWN_PRODUCER_ID):
            # Behind a batch that failed it only has to wait; else a sequence is missing for good. That settles nothing
            # about an earlier try without an answer: a broker that lost the producer's state may have its records.
            if batch.identity == lane.identity and (is_first or error is Error.UNKNOWN_PRODUCER_ID):
                lane.wants_reset = True
            self._retry(lane, batch)
        elif self._sending.is_idempotent and self.transaction is None and error is Error.INVALID_PRODUCER_EPOCH:
            # Somebody else uses our id in a later epoch, so that no epoch of ours is safe: begin with another id.
            if batch.identity == self.identity:
                self.identity = None
            if batch.identity == lane.identity:
                lane.wants_reset = True
            self._retry(lane, batch)
        elif error.retriable:
            batch.is_doubtful = batch.is_doubtful or error not in _NOT_APPENDED
            self._retry(lane, batch)
            if self._cluster.metadata.learn(lane.topic, lane.index, answer.current_leader, endpoints):
                lane.retry_at = 0.0  # the new leader is known, and asked at once (KIP-951)
                self._leaders_changed()
            else:
                self._cluster.refresh_soon()
        elif error is Error.MESSAGE_TOO_LARGE and len(batch.records) > 1 and not (batch.is_done or batch.is_doubtful):
            self._lost_sequence(lane, batch)
            lane.put_back(*batch.split())
        else:
            self._lost_sequence(lane, batch)
            text = answer.error_message or error.text
            self._fail(lane, batch, f"the broker refused it ({error.name}): {text}")

    def _lost_sequence(self, lane: Lane, batch: Outgoing) -> None:
        if batch.sequence != NO_SEQUENCE and batch.identity == lane.identity:
            lane.wants_reset = True

    def _succeed(self, lane: Lane, batch: Outgoing, base_offset: int, log_append_time_ms: int) -> None:
        lane.landed(batch)
        lane.acknowledged(batch)
        if not batch.is_done:
            batch.succeed(lane.topic, lane.index, base_offset, log_append_time_ms)
            self._done(batch)

    def _retry(self, lane: Lane, batch: Outgoing) -> None:
        if batch.is_done:
            return  # it was given up while it was on its way
        lane.put_back(batch)
        backoff = self._cluster.backoff()
        backoff.failures = batch.attempts - 1
        lane.retry_at = self._loop.time() + backoff.failed()

    def _expire(self, lane: Lane, now: float) -> None:
        for batch in [batch for batch in (*lane.flying, *lane.queue) if not batch.is_done and now >= batch.deadline]:
            is_flying = batch in lane.flying
            if is_flying:
                batch.is_doubtful = True
            else:
                lane.queue.remove(batch)
            lane.gave_up(batch)
            advice = "" if batch.attempts else "; check that the partition has a leader"
            self._fail(lane, batch, f"its delivery time-out has passed{advice}")

    def _fail(self, lane: Lane, batch: Outgoing, why: str) -> None:
        """What the caller is told depends on what is known: not sent, refused, or maybe in the log (hazard 14)."""
        if batch.is_done:
            return
        where = f"{lane.topic}-{lane.index}"
        error: HeadraceError
        if batch.is_doubtful or batch in lane.flying:
            error = Uncertain(f"A record for {where} may or may not be in the log: it was sent, and {why}.")
        elif batch.last_error is not None:
            error = Refused(batch.last_error, f"A record for {where} was not written: {why.rstrip('.')}.")
        else:
            error = NotSent(f"A record for {where} was not sent: {why}.")
        batch.fail(error)
        self._done(batch)
        if self.transaction is not None:
            self.transaction.failed(batch.last_error or Error.REQUEST_TIMED_OUT, str(error))

    def fail_lane(self, lane: Lane, why: str) -> None:
        """Give up what waits in a lane; what is on its way is heard of."""
        waiting, lane.queue = lane.queue, []
        for batch in waiting:
            self._fail(lane, batch, why)

    # --- defects, which must not leave anybody waiting ----------------------------------------------------------------

    def _fail_batches(self, batches: list[tuple[Lane, Outgoing]], error: Exception) -> None:
        """What a request holds, of which nobody knows how far it came."""
        _log.error("the producer failed at a request", exc_info=error)
        for lane, batch in batches:
            if batch in lane.flying:
                batch.is_doubtful = True
                lane.landed(batch)
            elif batch in lane.queue:
                lane.queue.remove(batch)
            else:
                continue  # it is settled
            self._lost_sequence(lane, batch)
            self._fail(lane, batch, f"the producer failed at it ({error!r})")
            self.touch(lane)

    def _fail_busy(self, error: Exception) -> None:
        """All that is here: whoever is looked at in vain once may be so for ever. What flies is still heard of."""
        _log.error("the producer failed", exc_info=error)
        for waiting in self._ready.values():
            for lane in waiting:
                lane.is_ready = False
        self._ready.clear()
        for lane in list(self._busy):
            for batch in lane.flying:
                lane.gave_up(batch)
            for batch in lane.queue:
                self._lost_sequence(lane, batch)
            for batch in (*lane.flying, *lane.queue):
                self._fail(lane, batch, f"the producer failed ({error!r})")
            lane.queue = []

    # --- the producer id ----------------------------------------------------------------------------------------------

    def _bump(self) -> None:
        """A producer without transactions bumps its epoch by itself, and asks for a new id when epochs run out."""
        assert self.identity is not None
        producer_id, epoch = self.identity
        self.identity = Identity(producer_id, epoch + 1) if epoch < EPOCH_MAX else None
        _log.info("producer %d begins epoch %d", producer_id, epoch + 1)

    def _get_identity(self) -> None:
        if not self._getting_identity:
            self._getting_identity = True
            self._spawn(self._ask_for_identity())

    async def _ask_for_identity(self) -> None:
        backoff = self._cluster.backoff()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        try:
            while True:
                try:
                    response: InitProducerIdResponse = await self._cluster.call_any(request)
                except Refused as refused:
                    self._fail_all(refused)
                    return
                except HeadraceError as failure:
                    _log.info("no producer id yet: %s", failure)
                else:
                    error = Error.of(response.error_code)
                    if error is Error.NONE:
                        self.identity = Identity(response.producer_id, response.producer_epoch)
                        return
                    if not error.retriable:
                        self._fail_all(Refused(error, f"The cluster gives no producer id ({error.name}): {error.text}"))
                        return
                await asyncio.sleep(backoff.failed())
        finally:
            self._getting_identity = False

    def _fail_all(self, error: Refused) -> None:
        for lane in self._busy:
            waiting, lane.queue = lane.queue, []
            for batch in waiting:
                batch.fail(error)
                self._done(batch)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        due = self._due[0][0] if self._due else NEVER
        if self._timer is not None:
            if self._timer.when() <= due:
                return  # wakes early at worst
            self._timer.cancel()
            self._timer = None
        if due < NEVER:
            self._timer = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._pump_soon()
