# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Fetch: records from partitions, now or when there are enough of them.

A fetch is a plain object on the loop. It gathers what lies where; if that is too little it waits, watched by its
partitions and the node's one timer heap; then it fills its slot. Large replies go from the files themselves to the
socket, and those that are not in memory, or would keep the loop for long, a worker sends: a replay stalls nobody.
Other records go to the socket in the buffer that they are read into, by a worker where that has to wait.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from headrace.broker.fetch_memory import ReplyMemory
from headrace.broker.fetch_read import ColdRead, Gathered, Sent, Terms, gather, point_out, read
from headrace.broker.fetch_session import Context, FetchedPartition, Sessions
from headrace.broker.senders import Senders
from headrace.errors import Error
from headrace.metadata.image import Image
from headrace.metrics.requests import RequestFigures
from headrace.net.connection import Connection, Slot
from headrace.protocol import messages as m
from headrace.protocol.fetch_reply import FetchReply
from headrace.protocol.frame import Request, write_response
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.replica.waits import Wait
from headrace.storage.disk import IMPATIENT, ReadWouldWait
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
READ_COMMITTED: Final = 1
REPLICA_STATE_VERSION: Final = 15
LEADER_HINT_VERSION: Final = 16
LEADER_ERRORS: Final = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)

SENT_BYTES_MIN: Final = 256 << 10
"""From here on a reply is sent from the files: below, the way there costs more than the copies that it spares."""
LOOP_BYTES_MAX: Final = 2 << 20
"""Up to here the loop sends what is in memory: a millisecond. By way of a worker it takes nearly twice the CPU, as two
threads take the interpreter in turns."""
SENT_PART_BYTES_MIN: Final = 64 << 10
"""Of a partition, in the mean: many small ones are sent in fewer calls from buffers."""
LOOK_MS: Final = 30_000
"""How long a fetch waits before it looks whether its client is still there."""
WARMINGS_MAX: Final = 64
"""After so many tries the memory does not hold what is looked up from one read to the next: then it waits for it."""


class Fetch:
    """The handler. `workers` read what is not in memory; `senders` send what is large, each for some connections."""

    __slots__ = (
        "errors",
        "fetch_max_bytes",
        "figures",
        "memory",
        "replicas",
        "senders",
        "sessions",
        "waiting",
        "workers",
    )

    def __init__(
        self,
        replicas: Replicas,
        sessions: Sessions,
        memory: ReplyMemory,
        workers: Workers,
        *,
        fetch_max_bytes: int,
        senders: Senders | None = None,
    ) -> None:
        self.replicas = replicas
        self.sessions = sessions
        self.memory = memory
        self.workers = workers
        self.senders = senders
        self.fetch_max_bytes = fetch_max_bytes
        self.figures: RequestFigures | None = None
        """Of the route. Fetches that come again are prepared for when it is there."""
        self.errors: dict[int, int] = {}
        """How often each error was answered, by partition."""
        self.waiting = 0
        """Fetches that wait for records, or for memory."""

    def handle(self, connection: Connection, request: Request) -> m.FetchResponse | None:
        response = self.begin(connection, request)
        if self.figures is not None:
            # With the first fetch: a node that nobody reads from starts sooner without it.
            from headrace.broker.repeated_fetch import prepare

            prepare(self, connection, request, self.figures)
        return response

    def begin(
        self, connection: Connection, request: Request, known: FetchReply | None = None
    ) -> m.FetchResponse | None:
        """The reply, or None when it comes later. Whoever called it may use the request again.

        `known` writes such a reply, where it has come before.
        """
        body: m.FetchRequest = request.body
        context = self.sessions.begin(body, request.version, self.replicas.now_ms())
        if context.error:
            self.errors[context.error] = self.errors.get(context.error, 0) + 1
            return context.reply([])
        return Fetching(self, connection, request, context, known).advance()


class Fetching:
    """One fetch under way."""

    __slots__ = (
        "_connection",
        "_context",
        "_correlation_id",
        "_deadline_s",
        "_fetch",
        "_is_last",
        "_is_waiting",
        "_known",
        "_max_bytes",
        "_min_bytes",
        "_missing_bytes",
        "_slot",
        "_terms",
        "_timer",
        "_warmings",
        "_watched",
    )

    def __init__(
        self, fetch: Fetch, connection: Connection, request: Request, context: Context, known: FetchReply | None
    ) -> None:
        body: m.FetchRequest = request.body
        version = request.version
        self._fetch = fetch
        self._connection = connection
        self._context = context
        self._correlation_id = request.correlation_id
        self._known = known
        is_follower = _replica_id(body, version) not in (CONSUMER, DEBUGGING_CONSUMER)
        self._terms = Terms(version, body.isolation_level == READ_COMMITTED, is_follower)
        self._max_bytes = min(body.max_bytes, fetch.fetch_max_bytes)
        self._min_bytes = min(body.min_bytes, self._max_bytes)
        self._slot: Slot | None = None
        self._watched: list[Partition] = []
        self._missing_bytes = 0
        self._is_waiting = False
        self._timer: Wait | None = None
        self._warmings = 0
        self._is_last = body.max_wait_ms <= 0
        """It is answered now, with whatever there is."""
        self._deadline_s = 0.0 if self._is_last else fetch.replicas.waits.time() + body.max_wait_ms / 1000

    # ---------------------------------------------------------------------------------------------------------- the way

    def advance(self) -> m.FetchResponse | None:
        """The reply, or None when it comes later, in a slot that was taken for it."""
        try:
            gathered, size_bytes, limit_bytes = self._gather()
        except ReadWouldWait as cold:
            self._later()
            self._fetch.workers.run(cold.warm, self._warmed)
            return None
        min_bytes = min(self._min_bytes, limit_bytes)
        if not self._is_last and size_bytes < min_bytes and _may_wait(gathered):
            missing_bytes = min_bytes - sum([part.fetched.found_bytes for part in gathered if part.fetched is not None])
            if missing_bytes > 0:
                self._wait(gathered, missing_bytes)
                return None
        if size_bytes >= SENT_BYTES_MIN and self._send(gathered, size_bytes):
            return None
        if size_bytes and self._fetch.memory.is_full:
            if not self._is_last:
                self._wait_for_memory(gathered)
                return None
            for part in gathered:
                part.release()
        return self._read(gathered)

    def _gather(self) -> tuple[list[Gathered], int, int]:
        """What there is, how much that is, and how much there may be at most."""
        fetch, terms = self._fetch, self._terms
        left_bytes = limit_bytes = min(self._max_bytes, fetch.memory.share_bytes)
        gathered: list[Gathered] = []
        all_bytes = 0
        token = IMPATIENT.set(self._warmings < WARMINGS_MAX)
        try:
            for wanted in self._context.partitions:
                part = gather(fetch.replicas, wanted, terms, left_bytes, not all_bytes)
                gathered.append(part)
                if part.fetched is not None:
                    all_bytes += part.fetched.size_bytes
                    left_bytes = max(0, limit_bytes - all_bytes)
        except BaseException:
            for part in gathered:
                part.release()
            raise
        finally:
            IMPATIENT.reset(token)
        return gathered, all_bytes, limit_bytes

    def _read(self, gathered: list[Gathered]) -> m.FetchResponse | None:
        memory, cold = self._fetch.memory, ColdRead()
        for part in gathered:
            if part.fetched is not None:
                try:
                    read(part, memory.buffer(part.size_bytes), cold)
                except Exception as error:
                    part.fail(error, self._terms.version)
        if cold:
            self._read_cold(gathered, cold)
            return None
        return self._reply(gathered)

    def _read_cold(self, gathered: list[Gathered], cold: ColdRead) -> None:
        self._later()
        self._fetch.workers.run(cold, lambda result, error: self._was_read(gathered, cold, error))

    def _send(self, gathered: list[Gathered], size_bytes: int) -> bool:
        """Sends it from the files, if that may be."""
        connection, senders = self._connection, self._fetch.senders
        if not senders:
            return False
        fetched = [part.fetched for part in gathered if part.fetched is not None]
        if size_bytes < len(fetched) * SENT_PART_BYTES_MIN or not connection.can_send(self._slot):
            return False
        if not point_out(gathered):
            return False
        sent = Sent(fetched)
        try:
            response = self._reply(gathered)
            self._later()
            assert self._slot is not None
            buffers = self._written(response)
            self._slot.send(buffers, senders.of(connection.peer_port), size_bytes <= LOOP_BYTES_MAX, sent.ended)
        except BaseException as error:
            sent.ended(error)
            raise
        return True

    def _reply(self, gathered: list[Gathered]) -> m.FetchResponse:
        results: list[tuple[FetchedPartition, m.FetchResponse.PartitionData]] = []
        has_errors = False
        for part in gathered:
            if part.fetched is not None:
                self._count(part)
                part.release()
            if part.data.error_code:
                self._count_error(part)
                has_errors = True
            results.append((part.wanted, part.data))
        response = self._context.reply(results, self._terms.is_follower)
        if has_errors and self._terms.version >= LEADER_HINT_VERSION:
            hint_leaders(response, self._fetch.replicas.image, self._connection.listener.name)
        return response

    def _count(self, part: Gathered) -> None:
        fetched, partition = part.fetched, part.partition
        if fetched is None or partition is None:
            return
        traffic = partition.traffic
        if self._terms.is_follower:
            traffic.replicated_bytes_out += fetched.size_bytes
        else:
            traffic.bytes_out += fetched.size_bytes
            traffic.messages_out += max(0, fetched.sent_offset - part.wanted.fetch_offset)

    def _count_error(self, part: Gathered) -> None:
        errors, wanted = self._fetch.errors, part.wanted
        errors[part.data.error_code] = errors.get(part.data.error_code, 0) + 1
        if (traffic := self._fetch.replicas.traffic_of(wanted.topic, wanted.topic_id)) is not None:
            traffic.fetch_errors += 1

    def _later(self) -> None:
        if self._slot is None:
            self._slot = self._connection.reserve()

    def _fill(self, response: m.FetchResponse) -> None:
        assert self._slot is not None
        self._slot.fill(self._written(response))

    def _written(self, response: m.FetchResponse) -> list[Any]:
        known = self._known
        buffers = None if known is None else known.write(response, self._correlation_id)
        return buffers or write_response(response, self._terms.version, self._correlation_id)

    # ---------------------------------------------------------------------------------------------------------- waiting

    def _wait(self, gathered: list[Gathered], missing_bytes: int) -> None:
        self._later()
        self._missing_bytes = missing_bytes
        watched = self._watched
        for part in gathered:
            part.release()
            if part.partition is not None:
                part.partition.watch(self)
                watched.append(part.partition)
        self._set_timer()

    def _wait_for_memory(self, gathered: list[Gathered]) -> None:
        self._later()
        for part in gathered:
            part.release()
        self._fetch.memory.wait(self._go_on)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._fetch.waiting += 1
        waits = self._fetch.replicas.waits
        self._timer = waits.at(min(self._deadline_s, waits.time() + LOOK_MS / 1000), self._timed_out)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._fetch.waiting -= 1
        for partition in self._watched:
            partition.unwatch(self)
        self._watched.clear()
        self._fetch.memory.forget(self._go_on)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def progressed(self, partition: Partition, grown_bytes: int) -> None:
        self._missing_bytes -= grown_bytes
        if self._missing_bytes <= 0:
            self._go_on()

    def changed(self, partition: Partition) -> None:
        self._is_last = True
        self._go_on()

    def _timed_out(self) -> None:
        self._timer = None
        if self._connection.is_closing:
            self._stop_waiting()
        elif self._fetch.replicas.waits.time() < self._deadline_s:
            self._set_timer()
        else:
            self._is_last = True
            self._go_on()

    def _warmed(self, result: None, error: BaseException | None) -> None:
        # What failed for the worker fails again here, where it is known which partition it is about.
        self._warmings = WARMINGS_MAX if error is not None else self._warmings + 1
        self._go_on()

    def _go_on(self) -> None:
        """Something came that it waited for."""
        self._stop_waiting()
        if self._connection.is_closing:
            return
        try:
            response = self.advance()
            if response is not None:
                self._fill(response)
        except Exception:
            self._failed()

    def _was_read(self, gathered: list[Gathered], cold: ColdRead, error: BaseException | None) -> None:
        try:
            if error is not None:
                raise error
            for part, why in cold.failed:
                if not part.data.error_code:
                    part.fail(why, self._terms.version)
            self._fill(self._reply(gathered))
        except Exception:
            for part in gathered:
                part.release()
            self._failed()

    def _failed(self) -> None:
        logger.exception("a fetch of %s failed; the connection is closed", self._connection)
        self._connection.abort()


def _may_wait(gathered: list[Gathered]) -> bool:
    """There is something that may grow, and nothing that the client must be told at once."""
    return any(part.partition is not None for part in gathered) and not any(part.is_urgent for part in gathered)


def _replica_id(body: m.FetchRequest, version: int) -> int:
    if version < REPLICA_STATE_VERSION:
        return body.replica_id
    return CONSUMER if body.replica_state is None else body.replica_state.replica_id


def hint_leaders(response: m.FetchResponse, image: Image, listener: str) -> None:
    """Tells clients that asked the wrong broker, or one of another epoch, who leads now (KIP-951)."""
    endpoints: dict[int, m.FetchResponse.NodeEndpoint] = {}
    for topic in response.responses:
        for data in topic.partitions:
            state = image.partition(topic.topic_id, data.partition_index) if data.error_code in LEADER_ERRORS else None
            if state is None:
                continue
            data.current_leader = m.FetchResponse.LeaderIdAndEpoch(
                leader_id=state.leader, leader_epoch=state.leader_epoch
            )
            broker = image.brokers.get(state.leader)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                endpoints[broker.id] = m.FetchResponse.NodeEndpoint(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
    response.node_endpoints = list(endpoints.values())
