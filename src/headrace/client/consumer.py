"""Reads partitions that it is told to read, from where it is told, ahead of whoever asks."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Self

from headrace.client.cluster import Cluster
from headrace.client.errors import LogTruncated, NoOffset
from headrace.client.fetch_session import FetchSession, Wanted
from headrace.client.fetched import ConsumedRecord, Fetched
from headrace.client.metadata import NO_TOPIC_ID
from headrace.client.offsets import EARLIEST, LATEST, OffsetAt, epoch_end, list_offsets
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol.messages import FetchRequest, FetchResponse

__all__ = ["Consumer"]

_log = logging.getLogger(__name__)

Reset = Literal["earliest", "latest", "none"]
TopicPartition = tuple[str, int]
TOPIC_ID_VERSION: Final = 13
_RESET_TIMES: Final = {"earliest": EARLIEST, "latest": LATEST}
_SESSION_ERRORS: Final = frozenset(
    {Error.FETCH_SESSION_ID_NOT_FOUND, Error.INVALID_FETCH_SESSION_EPOCH, Error.FETCH_SESSION_TOPIC_ID_ERROR}
)


class _Reading:
    """One assigned partition: where it is given out, where it is fetched, and what lies between."""

    __slots__ = (
        "checked_epoch",
        "error",
        "fetch_epoch",
        "fetch_offset",
        "fetched",
        "generation",
        "index",
        "is_busy",
        "is_paused",
        "position",
        "records",
        "reset_to_ms",
        "retry_at",
        "topic",
    )

    def __init__(self, topic: str, index: int, reset_to_ms: int | None) -> None:
        self.topic = topic
        self.index = index
        self.position = -1
        self.fetch_offset = -1
        self.fetch_epoch = -1
        """The leader epoch of the last record before `fetch_offset`, as far as it is known."""
        self.checked_epoch = -1
        """The leader epoch under which `fetch_offset` is known to be in the leader's log."""
        self.reset_to_ms = reset_to_ms
        """Where to begin, as a time of ListOffsets, while there is no position."""
        self.records: deque[ConsumedRecord] = deque()
        self.fetched: deque[Fetched] = deque()
        self.error: HeadraceError | None = None
        self.is_paused = False
        self.is_busy = False
        """A lookup or check of the position is under way."""
        self.retry_at = 0.0
        self.generation = 0
        """Counts seeks: what was asked before one is of no use after it."""

    def seek(self, offset: int, leader_epoch: int = -1, reset_to_ms: int | None = None) -> None:
        self.generation += 1
        self.position = self.fetch_offset = offset
        self.fetch_epoch = leader_epoch
        self.checked_epoch = -1
        self.reset_to_ms = reset_to_ms
        self.error = None
        self.is_busy = False
        self.records.clear()
        self.fetched.clear()

    @property
    def has_records(self) -> bool:
        return bool(self.records or self.fetched)

    def decode(self) -> bool:
        """Open batches until there is a record. Whether there is one."""
        while not self.records and self.fetched:
            opened = self.fetched[0].next_batch(self.topic, self.index, self.position)
            if opened is None:
                self.fetched.popleft()
                continue
            records, next_offset = opened
            self.records.extend(records)
            if not records:
                self.position = max(self.position, next_offset)
        return bool(self.records)

    def take(self) -> ConsumedRecord:
        record = self.records.popleft()
        self.position = record.offset + 1
        if not self.records and not self.fetched:
            self.position = max(self.position, self.fetch_offset)  # past what compaction left out
        return record


class Consumer:
    """Made by `Client.consumer`.

        consumer.assign([("greetings", 0)])
        async for record in consumer:
            print(record.offset, record.value)

    Fetching goes on in the background, up to `prefetch_bytes_max`. A partition without a position begins where
    `auto_offset_reset` says. When a leader change cut off what was read (KIP-320), it goes on at the first offset that
    differs; with "none" it raises `LogTruncated`.
    """

    __slots__ = (
        "_arrived",
        "_cluster",
        "_fetching",
        "_is_closed",
        "_isolation_level",
        "_loop",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_partition_bytes_max",
        "_prefetch_bytes_max",
        "_readings",
        "_reset",
        "_sessions",
        "_tasks",
        "_timer",
        "_turn",
    )

    def __init__(
        self,
        cluster: Cluster,
        *,
        auto_offset_reset: Reset = "latest",
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 16 << 20,
        fetch_max_wait_ms: int = 500,
        partition_bytes_max: int = 1 << 20,
        prefetch_bytes_max: int = 16 << 20,
    ) -> None:
        self._cluster = cluster
        self._reset: Reset = auto_offset_reset
        self._isolation_level = 1 if isolation_level == "read_committed" else 0
        self._min_bytes = fetch_min_bytes
        self._max_bytes = fetch_max_bytes
        self._max_wait_ms = fetch_max_wait_ms
        self._partition_bytes_max = partition_bytes_max
        self._prefetch_bytes_max = prefetch_bytes_max
        self._loop = asyncio.get_running_loop()
        self._readings: dict[TopicPartition, _Reading] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._fetching: dict[int, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._arrived = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        self._is_closed = False
        cluster.changed.append(self._pump)

    # --- what to read, and from where ---------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others. Those that were assigned before keep their positions."""
        kept = {}
        for topic, index in partitions:
            known = self._readings.get((topic, index))
            kept[topic, index] = known or _Reading(topic, index, _RESET_TIMES.get(self._reset))
            self._cluster.want(topic)
        self._readings = kept
        self._pump()

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._readings)

    def seek(self, topic: str, partition: int, offset: int, leader_epoch: int = -1) -> None:
        """Go on at an offset. With the leader epoch of the record before it, a truncated log is found out."""
        self._reading(topic, partition).seek(offset, leader_epoch)
        self._pump()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record that is there; all assigned partitions when none is named."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on with what comes from now on; all assigned partitions when none is named."""
        self._seek_to(LATEST, partitions)

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record that is not older than a time, or at the end when there is none."""
        chosen = partitions or tuple(self._readings)
        found = await self.offsets_for_times(dict.fromkeys(chosen, timestamp_ms))
        for topic, index in chosen:
            at = found[topic, index]
            if at.offset < 0:
                self._seek_to(LATEST, ((topic, index),))
            else:
                self._reading(topic, index).seek(at.offset)
        self._pump()

    async def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that will be given out; waits until it is known."""
        reading = self._reading(topic, partition)
        while reading.position < 0:
            self._pump()
            self._raise_errors()
            self._arrived.clear()
            await self._arrived.wait()
        return reading.position

    def pause(self, *partitions: TopicPartition) -> None:
        """Give out nothing of these partitions until `resume`."""
        for topic, index in partitions:
            self._reading(topic, index).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for topic, index in partitions:
            self._reading(topic, index).is_paused = False
        self._arrived.set()
        self._pump()

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks, or last stable offsets with read_committed."""
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        return await list_offsets(self._cluster, times_ms, self._isolation_level)

    # --- records ------------------------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 500, timeout_s: float | None = None) -> list[ConsumedRecord]:
        """Some records, at most `max_records`; empty when none come within the time-out (None: wait for ever)."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (records := self._take(max_records)):
                    self._raise_errors()
                    self._arrived.clear()
                    self._pump()
                    await self._arrived.wait()
        except TimeoutError:
            return self._take(max_records)
        self._pump()
        return records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        if self._is_closed:
            raise StopAsyncIteration
        return (await self.poll(1))[0]

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._cluster.changed.remove(self._pump)
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, max_records: int) -> list[ConsumedRecord]:
        taken: list[ConsumedRecord] = []
        readings = list(self._readings.values())
        self._turn += 1  # each partition gets its turn to be first
        for number in range(len(readings)):
            reading = readings[(self._turn + number) % len(readings)]
            while len(taken) < max_records and not reading.is_paused and reading.decode():
                taken.append(reading.take())
        return taken

    def _raise_errors(self) -> None:
        for reading in self._readings.values():
            if reading.error is not None:
                error, reading.error = reading.error, None
                raise error

    # --- the background -----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start whatever can be started: lookups and checks of positions, and one fetch for each leader."""
        if self._is_closed:
            return
        now = self._loop.time()
        wanted: dict[int, dict[TopicPartition, Wanted]] = {}
        waits = float("inf")
        for key, reading in self._readings.items():
            if reading.is_busy or reading.error is not None:
                continue
            if now < reading.retry_at:
                waits = min(waits, reading.retry_at)
                continue
            if reading.position < 0:
                reading.is_busy = True
                self._spawn(self._find_position(reading, reading.generation))
                continue
            partition = self._cluster.metadata.leader(*key)
            if partition is None:
                self._cluster.refresh_soon()
                continue
            if partition.leader_epoch > reading.checked_epoch >= -1 and reading.fetch_epoch >= 0:
                reading.is_busy = True
                self._spawn(self._check_position(reading, reading.generation, partition.leader_epoch))
                continue
            if not reading.is_paused:
                want = Wanted(
                    self._cluster.metadata.topic_id(reading.topic),
                    reading.fetch_offset,
                    partition.leader_epoch,
                    self._partition_bytes_max,
                )
                wanted.setdefault(partition.leader_id, {})[key] = want
        buffered = sum(part.size_bytes for reading in self._readings.values() for part in reading.fetched)
        for node_id, partitions in wanted.items():
            if node_id not in self._fetching and buffered < self._prefetch_bytes_max:
                self._fetching[node_id] = None
                self._spawn(self._fetch(node_id, partitions))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waits < float("inf"):
            self._timer = self._loop.call_at(waits, self._pump)

    def _spawn(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._arrived.set()
        self._pump()

    async def _find_position(self, reading: _Reading, generation: int) -> None:
        try:
            key = (reading.topic, reading.index)
            if reading.generation != generation:
                return
            if reading.reset_to_ms is None:
                text = f"There is no position to read {key[0]}-{key[1]} from: seek, or set auto_offset_reset."
                raise NoOffset(text, *key)
            found = await list_offsets(self._cluster, {key: reading.reset_to_ms}, self._isolation_level)
            if reading.generation == generation:
                reading.seek(found[key].offset)
        except HeadraceError as error:
            if reading.generation == generation:
                reading.error = error
        finally:
            if reading.generation == generation:
                reading.is_busy = False

    async def _check_position(self, reading: _Reading, generation: int, leader_epoch: int) -> None:
        """A new leader: is what was fetched still in its log (KIP-320)?"""
        try:
            end = await epoch_end(self._cluster, reading.topic, reading.index, reading.fetch_epoch)
            if reading.generation != generation:
                return
            if end.end_offset < 0 or end.leader_epoch < 0:
                self._truncated(reading, None)
            elif end.end_offset < reading.fetch_offset:
                self._truncated(reading, end.end_offset)
            else:
                reading.checked_epoch = leader_epoch
        except HeadraceError as error:
            if reading.generation != generation:
                return
            if isinstance(error, Refused) and error.error is Error.UNSUPPORTED_VERSION:
                reading.checked_epoch = leader_epoch  # an old broker can't tell
            elif isinstance(error, Refused) and not error.error.retriable:
                reading.error = error
            else:
                self._try_later(reading)
        finally:
            if reading.generation == generation:
                reading.is_busy = False

    def _truncated(self, reading: _Reading, divergent_offset: int | None) -> None:
        where, offset = f"{reading.topic}-{reading.index}", reading.position
        there = "an unknown offset" if divergent_offset is None else f"offset {divergent_offset}"
        if self._reset == "none":
            text = f"The log of {where} was cut at {there} and the next to read was {offset}: seek to go on."
            reading.seek(-1)
            reading.error = LogTruncated(text, reading.topic, reading.index, offset, divergent_offset)
            return
        _log.warning("the log of %s was cut at %s, the next to read was %d", where, there, offset)
        if divergent_offset is None:
            reading.seek(-1, reset_to_ms=_RESET_TIMES[self._reset])
        else:
            reading.seek(min(divergent_offset, offset))

    def _try_later(self, reading: _Reading) -> None:
        reading.retry_at = self._loop.time() + self._cluster.backoff().failed()
        self._cluster.refresh_soon()

    # --- fetching -----------------------------------------------------------------------------------------------------

    async def _fetch(self, node_id: int, wanted: dict[TopicPartition, Wanted]) -> None:
        session = self._sessions.setdefault(node_id, FetchSession())
        generations = {key: self._readings[key].generation for key in wanted}
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation_level,
        )
        has_ids = all(want.topic_id != NO_TOPIC_ID for want in wanted.values())
        names = session.fill(request, wanted)
        timeout_s = self._cluster.settings.request_timeout_s + self._max_wait_ms / 1000
        is_done = False
        try:
            link = self._cluster.link(node_id)
            if link is None:
                raise Refused(Error.BROKER_NOT_AVAILABLE, f"Broker {node_id} is gone.")
            version_max = None if has_ids else TOPIC_ID_VERSION - 1
            response: FetchResponse = await link.call(request, timeout_s, version_max)
            error = Error.of(response.error_code)
            if error is not Error.NONE:
                if error not in _SESSION_ERRORS:
                    raise Refused(error)
                _log.debug("fetch session with broker %d begins again: %s", node_id, error.name)
            else:
                session.answered(response.session_id)
                is_done = True
                self._take_answer(response, names, wanted, generations)
        except HeadraceError as failure:
            _log.info("fetch from broker %d failed: %s", node_id, failure)
            for key in wanted:
                if key in self._readings:
                    self._try_later(self._readings[key])
        finally:
            del self._fetching[node_id]
            if not is_done:
                session.reset()

    def _take_answer(
        self,
        response: FetchResponse,
        names: dict[bytes, str],
        wanted: dict[TopicPartition, Wanted],
        generations: dict[TopicPartition, int],
    ) -> None:
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                key = (name, answer.partition_index)
                reading = self._readings.get(key)
                if reading is None or reading.generation != generations.get(key):
                    continue  # it was told to read elsewhere meanwhile
                error = Error.of(answer.error_code)
                if error is not Error.NONE:
                    self._refused(reading, error, answer, response)
                elif answer.diverging_epoch is not None and answer.diverging_epoch.end_offset >= 0:
                    self._truncated(reading, answer.diverging_epoch.end_offset)
                elif answer.records:
                    self._take_records(reading, answer, wanted[key].leader_epoch)

    def _take_records(self, reading: _Reading, answer: FetchResponse.PartitionData, leader_epoch: int) -> None:
        assert answer.records is not None
        try:
            fetched = Fetched(answer.records, answer, self._isolation_level == 1)
        except HeadraceError as error:
            reading.error = error
            return
        if fetched.end_offset > reading.fetch_offset:
            reading.fetched.append(fetched)
            reading.fetch_offset = fetched.end_offset
            reading.fetch_epoch = fetched.last_epoch
            # What a leader serves is in its own log: no need to ask it again until the next one leads.
            reading.checked_epoch = leader_epoch

    def _refused(
        self, reading: _Reading, error: Error, answer: FetchResponse.PartitionData, response: FetchResponse
    ) -> None:
        where = f"{reading.topic}-{reading.index}"
        if error is Error.OFFSET_OUT_OF_RANGE:
            if self._reset == "none":
                text = f"Offset {reading.fetch_offset} is not in the log of {where}: seek to one that is."
                reading.error = NoOffset(text, reading.topic, reading.index)
            elif not reading.has_records:
                _log.info(
                    "offset %d is not in the log of %s: begins at the %s", reading.fetch_offset, where, self._reset
                )
                reading.seek(-1, reset_to_ms=_RESET_TIMES[self._reset])
        elif error.retriable and error is not Error.CORRUPT_MESSAGE:
            self._cluster.metadata.learn(reading.topic, reading.index, answer.current_leader, response.node_endpoints)
            self._try_later(reading)
        else:
            reading.error = Refused(error, f"{where} can't be read ({error.name}): {error.text}")

    # --- small things -------------------------------------------------------------------------------------------------

    def _reading(self, topic: str, partition: int) -> _Reading:
        reading = self._readings.get((topic, partition))
        if reading is None:
            raise ValueError(f"{topic}-{partition} is not assigned to this consumer: assign it first.")
        return reading

    def _seek_to(self, timestamp_ms: int, partitions: Iterable[TopicPartition]) -> None:
        for topic, index in tuple(partitions) or tuple(self._readings):
            self._reading(topic, index).seek(-1, reset_to_ms=timestamp_ms)
        self._pump()

    async def _ends(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        found = await self.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
        return {key: at.offset for key, at in found.items()}
