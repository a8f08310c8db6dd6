"""The background of a consumer: finds and checks positions, and fetches from every leader ahead of whoever asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Literal

from headrace.client.cluster import Cluster
from headrace.client.errors import LogTruncated, NoOffset
from headrace.client.fetch_session import FetchSession, Wanted
from headrace.client.fetched import Fetched
from headrace.client.metadata import NO_TOPIC_ID
from headrace.client.offsets import EARLIEST, LATEST, epoch_end, list_offsets_once, may_pass
from headrace.client.reading import Reading
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol.messages import FetchRequest, FetchResponse

__all__ = ["RESET_TIMES", "Fetcher", "Fetching", "Reset"]

_log = logging.getLogger(__name__)

Reset = Literal["earliest", "latest", "none"]
TopicPartition = tuple[str, int]
TOPIC_ID_VERSION: Final = 13
RESET_TIMES: Final = {"earliest": EARLIEST, "latest": LATEST}
_SESSION_ERRORS: Final = frozenset(
    {Error.FETCH_SESSION_ID_NOT_FOUND, Error.INVALID_FETCH_SESSION_EPOCH, Error.FETCH_SESSION_TOPIC_ID_ERROR}
)


@dataclass(slots=True)
class Fetching:
    """How a consumer fetches."""

    reset: Reset
    isolation_level: int
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    partition_bytes_max: int
    prefetch_bytes_max: int


@dataclass(slots=True)
class _Asked:
    """What one fetch asks for: the readings, and which of their generations."""

    wanted: dict[TopicPartition, Wanted]
    readings: dict[TopicPartition, tuple[Reading, int]]

    def current(self, key: TopicPartition) -> Reading | None:
        """The reading, unless it was told to read elsewhere meanwhile."""
        reading, generation = self.readings.get(key, (None, 0))
        return reading if reading is not None and reading.generation == generation else None


class Fetcher:
    __slots__ = (
        "_cluster",
        "_fetching",
        "_is_closed",
        "_loop",
        "_sessions",
        "_tasks",
        "_timer",
        "_under_way",
        "arrived",
        "has_waited",
        "progressed",
        "readings",
    )

    def __init__(
        self,
        cluster: Cluster,
        fetching: Fetching,
        arrived: Callable[[Reading], None],
        progressed: Callable[[], None],
    ) -> None:
        self.readings: dict[TopicPartition, Reading] = {}
        self.arrived = arrived
        """Called with a reading that got records."""
        self.progressed = progressed
        """Called when something ended that somebody may wait for."""
        self.has_waited = False
        """Nothing was fetched because enough lies here: `pump` when some of it is gone."""
        self._cluster = cluster
        self._fetching = fetching
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, FetchSession] = {}
        self._under_way: dict[int, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        cluster.changed.append(self.pump)

    async def close(self) -> None:
        self._is_closed = True
        self._cluster.changed.remove(self.pump)
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cluster.release(self)

    def pump(self) -> None:
        """Start whatever can be started: lookups and checks of positions, and one fetch for each leader."""
        if self._is_closed:
            return
        now, due = self._loop.time(), float("inf")
        lost: list[tuple[Reading, int]] = []
        asked: dict[int, _Asked] = {}
        buffered_bytes = 0
        for key, reading in self.readings.items():
            if not reading.is_paused:  # what lies here for one that is paused must not starve the others
                buffered_bytes += reading.buffered_bytes
            if reading.is_busy or reading.error is not None:
                continue
            if now < reading.retry_at:
                due = min(due, reading.retry_at)
            elif reading.position < 0:
                reading.is_busy = True
                lost.append((reading, reading.generation))
            elif (leader := self._leader(reading)) is not None and not reading.is_paused:
                leader_id, wanted = leader
                ask = asked.setdefault(leader_id, _Asked({}, {}))
                ask.wanted[key] = wanted
                ask.readings[key] = reading, reading.generation
        if lost:
            self._spawn(self._find_positions(lost))
        self.has_waited = bool(asked) and buffered_bytes >= self._fetching.prefetch_bytes_max
        for node_id, ask in asked.items():
            if node_id not in self._under_way and not self.has_waited:
                self._under_way[node_id] = None
                self._spawn(self._fetch(node_id, ask))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due < float("inf"):
            self._timer = self._loop.call_at(due, self.pump)

    def _leader(self, reading: Reading) -> tuple[int, Wanted] | None:
        """Whom to ask for a reading, and for what; None when it has to wait."""
        metadata = self._cluster.metadata
        partition = metadata.leader(reading.topic, reading.index)
        if partition is None:
            reading.last_failure = self._cluster.why_no_leader(reading.topic, reading.index)
            self._cluster.refresh_soon()
            return None
        topic_id = metadata.topic_id(reading.topic)
        if reading.topic_id not in (topic_id, NO_TOPIC_ID) and topic_id != NO_TOPIC_ID:
            self._truncated(reading, 0, "is another, the topic was made again: it begins")
            if reading.position < 0:
                return None
        reading.topic_id = topic_id
        if partition.leader_epoch > reading.checked_epoch and reading.fetch_epoch >= 0:
            reading.is_busy = True
            self._spawn(self._check_position(reading, reading.generation, partition.leader_epoch))
            return None
        bytes_max = self._fetching.partition_bytes_max
        return partition.leader_id, Wanted(topic_id, reading.fetch_offset, partition.leader_epoch, bytes_max)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the consumer failed", exc_info=error)
        self.progressed()
        self.pump()

    # --- positions ----------------------------------------------------------------------------------------------------

    async def _find_positions(self, lost: list[tuple[Reading, int]]) -> None:
        times_ms: dict[TopicPartition, int] = {}
        for reading, _ in lost:
            if reading.reset_to_ms is not None:
                times_ms[reading.topic, reading.index] = reading.reset_to_ms
        found, failures = await list_offsets_once(self._cluster, times_ms, self._fetching.isolation_level)
        for reading, generation in lost:
            if reading.generation != generation:
                continue
            reading.is_busy = False
            key = (reading.topic, reading.index)
            if key not in times_ms:
                text = f"There is no position to read {reading} from: seek, or set auto_offset_reset."
                reading.error = NoOffset(text, *key)
            elif key in found:
                reading.seek(found[key].offset, found[key].leader_epoch)
                reading.checked_epoch = found[key].leader_epoch
                reading.succeeded()
            else:
                self._failed(reading, failures[key])

    async def _check_position(self, reading: Reading, generation: int, leader_epoch: int) -> None:
        """A new leader: is what was fetched still in its log (KIP-320)?"""
        try:
            end = await epoch_end(self._cluster, reading.topic, reading.index, reading.fetch_epoch)
        except HeadraceError as error:
            if reading.generation == generation:
                reading.is_busy = False
                if isinstance(error, Refused) and error.error is Error.UNSUPPORTED_VERSION:
                    reading.checked_epoch = leader_epoch  # an old broker can't tell
                else:
                    self._failed(reading, error)
            return
        if reading.generation != generation:
            return
        reading.is_busy = False
        if end.end_offset < 0 or end.leader_epoch < 0:
            self._truncated(reading, None)
        elif end.end_offset < reading.fetch_offset:
            self._truncated(reading, end.end_offset)
        else:
            reading.checked_epoch = leader_epoch

    def _truncated(self, reading: Reading, divergent_offset: int | None, why: str = "was cut") -> None:
        offset = reading.position
        there = "an unknown offset" if divergent_offset is None else f"offset {divergent_offset}"
        if self._fetching.reset == "none":
            text = f"The log of {reading} {why} at {there}, and the next to read was {offset}: seek to go on."
            reading.seek(-1)
            reading.error = LogTruncated(text, reading.topic, reading.index, offset, divergent_offset)
            self.progressed()  # nothing else may end that would wake who waits
            return
        _log.warning("the log of %s %s at %s, and the next to read was %d", reading, why, there, offset)
        if divergent_offset is None:
            reading.seek(-1, reset_to_ms=RESET_TIMES[self._fetching.reset])
        else:
            reading.seek(min(divergent_offset, offset))

    def _failed(self, reading: Reading, error: HeadraceError, *, at_once: bool = False) -> None:
        """Try again later, for ever, where that may help; a poll raises the rest."""
        if not may_pass(error):
            reading.error = error
            return
        level = logging.WARNING if reading.failures == 3 else logging.INFO  # at first it is likely to pass by itself
        _log.log(level, "%s can't be read, and is tried again: %s", reading, error)
        reading.last_failure = error
        if at_once:
            return
        backoff = self._cluster.backoff()
        backoff.failures = reading.failures
        reading.failures += 1
        reading.retry_at = self._loop.time() + backoff.failed()
        self._cluster.refresh_soon()

    # --- fetching -----------------------------------------------------------------------------------------------------

    async def _fetch(self, node_id: int, asked: _Asked) -> None:
        session = self._sessions.setdefault(node_id, FetchSession())
        how = self._fetching
        request = FetchRequest(
            max_wait_ms=how.max_wait_ms,
            min_bytes=how.min_bytes,
            max_bytes=how.max_bytes,
            isolation_level=how.isolation_level,
        )
        has_ids = all(want.topic_id != NO_TOPIC_ID for want in asked.wanted.values())
        is_done = False
        try:
            link = self._cluster.link(node_id, self)
            if link is None:
                raise Refused(Error.LEADER_NOT_AVAILABLE, f"Broker {node_id} is gone.")
            names = session.fill(request, asked.wanted)
            timeout_s = self._cluster.settings.request_timeout_s + how.max_wait_ms / 1000
            response: FetchResponse = await link.call(request, timeout_s, None if has_ids else TOPIC_ID_VERSION - 1)
            error = Error.of(response.error_code)
            if error is Error.NONE:
                session.answered(response.session_id)
                is_done = True
                self._take_answer(response, names, asked)
            elif error in _SESSION_ERRORS and request.session_id:
                _log.debug("fetch session with broker %d begins again: %s", node_id, error.name)
            else:
                raise Refused(error, f"Broker {node_id} refuses to be fetched from ({error.name}): {error.text}")
        except HeadraceError as failure:
            for key in asked.wanted:
                if (reading := asked.current(key)) is not None:
                    self._failed(reading, failure)
        finally:
            del self._under_way[node_id]
            if not is_done:
                session.reset()

    def _take_answer(self, response: FetchResponse, names: dict[bytes, str], asked: _Asked) -> None:
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                key = (name, answer.partition_index)
                reading = asked.current(key)
                if reading is None:
                    continue
                error = Error.of(answer.error_code)
                if error is not Error.NONE:
                    self._refused(reading, error, answer, response)
                    continue
                reading.succeeded()
                if answer.diverging_epoch is not None and answer.diverging_epoch.end_offset >= 0:
                    self._truncated(reading, answer.diverging_epoch.end_offset)
                elif answer.records:
                    self._take_records(reading, answer, asked.wanted[key].leader_epoch)

    def _take_records(self, reading: Reading, answer: FetchResponse.PartitionData, leader_epoch: int) -> None:
        assert answer.records is not None
        try:
            fetched = Fetched(answer.records, answer, self._fetching.isolation_level == 1)
        except HeadraceError as error:
            reading.error = error
            return
        if reading.add(fetched, leader_epoch):
            self.arrived(reading)

    def _refused(
        self, reading: Reading, error: Error, answer: FetchResponse.PartitionData, response: FetchResponse
    ) -> None:
        if error is Error.OFFSET_OUT_OF_RANGE:
            self._out_of_range(reading)
            return
        refused = Refused(error, f"{reading} can't be read ({error.name}): {error.text}")
        learn = self._cluster.metadata.learn
        is_news = learn(reading.topic, reading.index, answer.current_leader, response.node_endpoints)
        self._failed(reading, refused, at_once=is_news)

    def _out_of_range(self, reading: Reading) -> None:
        reset = self._fetching.reset
        if reset == "none":
            text = f"Offset {reading.fetch_offset} is not in the log of {reading}: seek to one that is."
            reading.error = NoOffset(text, reading.topic, reading.index)
        elif reading.has_records:  # is given out first
            reading.retry_at = self._loop.time() + self._cluster.settings.retry_backoff_s
        else:
            _log.info("offset %d is not in the log of %s: begins at the %s", reading.fetch_offset, reading, reset)
            reading.seek(-1, reset_to_ms=RESET_TIMES[reset])
