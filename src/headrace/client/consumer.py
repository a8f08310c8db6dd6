"""Reads partitions that it is told to read, from where it is told, ahead of whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Self

from headrace.client.arguments import INT64_MAX, mapping, one_of, refuse, seconds, whole
from headrace.client.arguments import partition as checked_partition
from headrace.client.arguments import partitions as checked_partitions
from headrace.client.cluster import Cluster
from headrace.client.errors import Closed, Unreachable, WrongArgument
from headrace.client.fetched import ConsumedRecord
from headrace.client.fetcher import RESET_TIMES, Fetcher, Fetching, Reset
from headrace.client.offsets import EARLIEST, LATEST, TIME_MIN, OffsetAt, list_offsets
from headrace.client.reading import Reading

__all__ = ["Consumer"]

TopicPartition = tuple[str, int]


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
        "_closed",
        "_cluster",
        "_current",
        "_fetcher",
        "_is_closed",
        "_isolation_level",
        "_ready",
        "_reset",
    )

    def __init__(
        self,
        cluster: Cluster,
        closed: Callable[[Consumer], None] = lambda _: None,
        *,
        auto_offset_reset: Reset = "latest",
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 16 << 20,
        fetch_max_wait_ms: int = 500,
        partition_bytes_max: int = 1 << 20,
        prefetch_bytes_max: int = 16 << 20,
    ) -> None:
        one_of("auto_offset_reset", auto_offset_reset, "earliest", "latest", "none")
        one_of("isolation_level", isolation_level, "read_uncommitted", "read_committed")
        whole("fetch_min_bytes", fetch_min_bytes)
        whole("fetch_max_bytes", fetch_max_bytes, 1)
        whole("fetch_max_wait_ms", fetch_max_wait_ms)
        whole("partition_bytes_max", partition_bytes_max, 1)
        whole("prefetch_bytes_max", prefetch_bytes_max, 1, INT64_MAX)
        self._cluster = cluster
        self._closed = closed
        self._reset: Reset = auto_offset_reset
        self._isolation_level = 1 if isolation_level == "read_committed" else 0
        fetching = Fetching(
            auto_offset_reset,
            self._isolation_level,
            fetch_min_bytes,
            fetch_max_bytes,
            fetch_max_wait_ms,
            partition_bytes_max,
            prefetch_bytes_max,
        )
        self._arrived = asyncio.Event()
        self._ready: dict[Reading, None] = {}
        """Those with something to give out, in the order of their turns."""
        self._current: Reading | None = None
        """The one that the iterator is at."""
        self._fetcher = Fetcher(cluster, fetching, self._got_records, self._arrived.set)
        self._is_closed = False

    # --- what to read, and from where ---------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others. Those that were assigned before keep their positions."""
        self._check_open()
        known, kept = self._fetcher.readings, {}
        for topic, index in checked_partitions("partitions", partitions):
            kept[topic, index] = known.get((topic, index)) or Reading(topic, index, RESET_TIMES.get(self._reset))
            self._cluster.want(topic)
        self._fetcher.readings = kept
        self._ready = {reading: None for reading in self._ready if kept.get((reading.topic, reading.index)) is reading}
        self._current = None
        self._fetcher.pump()

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._fetcher.readings)

    def seek(self, topic: str, partition: int, offset: int, leader_epoch: int = -1) -> None:
        """Go on at an offset. With the leader epoch of the record before it, a truncated log is found out."""
        whole("offset", offset, 0, INT64_MAX)
        whole("leader_epoch", leader_epoch, -1)
        self._reading(topic, partition).seek(offset, leader_epoch)
        self._fetcher.pump()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record that is there; all assigned partitions when none is named."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on with what comes from now on; all assigned partitions when none is named."""
        self._seek_to(LATEST, partitions)

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record that is not older than a time, or at the end when there is none."""
        whole("timestamp_ms", timestamp_ms, 0, INT64_MAX)
        chosen = self._chosen(partitions)
        found = await self.offsets_for_times(dict.fromkeys(chosen, timestamp_ms))
        for topic, index in chosen:
            at = found[topic, index]
            if at.offset < 0:
                self._seek_to(LATEST, ((topic, index),))
            else:
                self._reading(topic, index).seek(at.offset)
        self._fetcher.pump()

    async def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that is given out. Waits until it is known, up to the operation time-out."""
        reading = self._reading(topic, partition)
        try:
            async with asyncio.timeout(self._cluster.settings.operation_timeout_s):
                while reading.position < 0:
                    self._raise_error_of(reading)
                    self._fetcher.pump()
                    await self._wait()
        except TimeoutError:
            raise reading.last_failure or Unreachable(f"Nobody said in time where {reading} begins.") from None
        return reading.position

    def pause(self, *partitions: TopicPartition) -> None:
        """Give out nothing of these partitions until `resume`."""
        for reading in [self._reading(*key) for key in checked_partitions("partitions", partitions)]:
            reading.is_paused = True
            self._ready.pop(reading, None)
        self._fetcher.pump()

    def resume(self, *partitions: TopicPartition) -> None:
        for reading in [self._reading(*key) for key in checked_partitions("partitions", partitions)]:
            reading.is_paused = False
            if reading.has_records:
                self._got_records(reading)
        self._arrived.set()
        self._fetcher.pump()

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks, or last stable offsets with read_committed."""
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        self._check_open()
        times_ms = mapping("times_ms", times_ms, "times by topic and partition, such as {('letters', 0): 0}")
        checked_partitions("times_ms", times_ms)
        for time_ms in times_ms.values():
            whole("each of times_ms", time_ms, TIME_MIN, INT64_MAX)
        return await list_offsets(self._cluster, times_ms, self._isolation_level)

    # --- records ------------------------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 500, timeout_s: float | None = None) -> list[ConsumedRecord]:
        """Some records, at most `max_records`; empty when none come within the time-out (None: wait for ever)."""
        if max_records.__class__ is not int or max_records < 1:
            refuse("max_records", "a whole number from 1", max_records)
        if timeout_s is not None:
            seconds("timeout_s", timeout_s, zero=True)
        if records := self._take(max_records):
            return records
        try:
            async with asyncio.timeout(timeout_s):
                while not (records := self._take(max_records)):
                    for reading in self._fetcher.readings.values():
                        self._raise_error_of(reading)
                    self._fetcher.pump()
                    await self._wait()
        except TimeoutError:
            return self._take(max_records)
        return records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        if self._current is not None and (record := self._current.next()) is not None:
            return record
        try:
            return (await self.poll(1))[0]
        except Closed:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Stop reading. Whoever waits in `poll` is told, and `async for` ends."""
        if self._is_closed:
            return
        self._is_closed = True
        self._current = None
        self._arrived.set()
        await self._fetcher.close()
        self._closed(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _take(self, max_records: int) -> list[ConsumedRecord]:
        self._check_open()
        taken: list[ConsumedRecord] = []
        while self._ready and len(taken) < max_records:
            reading = next(iter(self._ready))
            taken += reading.take(max_records - len(taken))
            self._current = reading
            del self._ready[reading]
            if reading.has_records:
                self._ready[reading] = None  # its next turn comes after those of the others
        if self._fetcher.has_waited:
            self._fetcher.pump()
        return taken

    async def _wait(self) -> None:
        """Until something has happened since the last look."""
        self._check_open()
        self._arrived.clear()
        await self._arrived.wait()

    def _got_records(self, reading: Reading) -> None:
        if not reading.is_paused and self._fetcher.readings.get((reading.topic, reading.index)) is reading:
            self._ready[reading] = None
            self._arrived.set()

    def _raise_error_of(self, reading: Reading) -> None:
        if reading.error is not None:
            error, reading.error = reading.error, None
            raise error

    def _reading(self, topic: str, partition: int) -> Reading:
        self._check_open()
        checked_partition("the partition to read", (topic, partition))
        reading = self._fetcher.readings.get((topic, partition))
        if reading is None:
            raise WrongArgument(f"{topic}-{partition} is not assigned to this consumer: assign it first.")
        return reading

    def _seek_to(self, timestamp_ms: int, partitions: Iterable[TopicPartition]) -> None:
        for reading in [self._reading(*key) for key in self._chosen(partitions)]:
            reading.seek(-1, reset_to_ms=timestamp_ms)
        self._fetcher.pump()

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """These, all of which are assigned, or all that are."""
        chosen = checked_partitions("partitions", partitions) or self.assignment
        for topic, index in chosen:
            self._reading(topic, index)
        return chosen

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("The consumer is closed: make another one.")

    async def _ends(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        wanted = checked_partitions("partitions", partitions)
        found = await self.offsets_for_times(dict.fromkeys(wanted, timestamp_ms))
        return {key: at.offset for key, at in found.items()}
