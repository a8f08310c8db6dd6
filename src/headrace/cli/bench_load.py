"""Load from our own client: produce as fast as it goes or at a rate, read as fast as it goes, or there and back."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.cli.bench_result import Result
from headrace.cli.latencies import Latencies
from headrace.cli.progress import Bar, rate_text
from headrace.cli.quantities import size_text
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client import Client, Consumer, Produced, Producer

PAYLOADS: Final = 256
STAMP: Final = struct.Struct(">d")
"""When a record was due, at the start of its value: the clock of this process."""
TURN_RECORDS: Final = 50
POLL_RECORDS: Final = 5000
POLL_S: Final = 0.1
DRAIN_S: Final = 10.0
SAMPLE_MIN_S: Final = 1 / 16
SAMPLE_MAX_S: Final = 1.0
SAMPLES: Final = 40
"""When there are so many, each two become one that is twice as long, until they are SAMPLE_MAX_S long."""
BUFFER_BYTES: Final = 4 << 20


@dataclass(slots=True)
class Load:
    """What is asked for."""

    topic: str
    record_bytes: int
    batch_bytes: int
    linger_ms: float
    acks: str
    compression: str
    duration_s: float | None
    records: int | None
    rate: float | None
    warmup_s: float

    def payloads(self) -> list[bytes]:
        """Hex digits at random, from a fixed seed: a codec makes them about half as large."""
        chance = random.Random(1)
        size = self.record_bytes
        return [chance.randbytes(size // 2 + 1).hex().encode()[:size] for _ in range(PAYLOADS)]

    def producer_settings(self) -> dict[str, object]:
        return {
            "acks": self.acks if self.acks == "all" else int(self.acks),
            "compression": self.compression,
            "batch_bytes": self.batch_bytes,
            "linger_ms": self.linger_ms,
            "request_bytes_max": max(1 << 20, 2 * self.record_bytes),
            "buffer_bytes_max": max(BUFFER_BYTES, 4 * self.batch_bytes, 4 * self.record_bytes),
        }


class Watch:
    """Counts what is done, sample by sample, once the warm-up is over; and shows the bar."""

    __slots__ = ("_bar", "_begun", "_load", "_mark", "_result", "_sample_s", "_shown", "is_stopped", "is_warm")

    def __init__(self, load: Load, result: Result, bar: Bar) -> None:
        self._load = load
        self._result = result
        self._bar = bar
        self._begun = time.perf_counter()
        self._mark = (0.0, 0, 0)
        self._sample_s = SAMPLE_MIN_S
        self._shown = 0.0
        self.is_warm = load.warmup_s <= 0
        self.is_stopped = False
        """What is acknowledged after that does not count: the time is over."""

    def is_over(self) -> bool:
        """Looked at often: keeps the time, the series and the bar going."""
        now = time.perf_counter()
        took = now - self._begun
        if not self.is_warm:
            if took < self._load.warmup_s:
                self._tell(now, 0.0, "warming up")
                return False
            self.is_warm, self._begun, took = True, now, 0.0
        result = self._result
        if took - self._mark[0] >= self._sample_s:
            self._note(took)
        load = self._load
        done = took / load.duration_s if load.duration_s else result.records / load.records if load.records else 0.0
        self._tell(
            now,
            done,
            f"{rate_text(result.records / max(took, 0.001))} records/s, "
            f"{size_text(round(result.bytes / max(took, 0.001)))}/s",
        )
        if load.records is not None and result.records >= load.records:
            return True
        return load.duration_s is not None and took >= load.duration_s

    def _note(self, took: float) -> None:
        result, (_, records, size) = self._result, self._mark
        series = result.series
        series.append((took, result.records - records, result.bytes - size))
        self._mark = (took, result.records, result.bytes)
        if len(series) == SAMPLES and self._sample_s < SAMPLE_MAX_S:
            twos = zip(series[::2], series[1::2], strict=True)
            series[:] = [(end, one[1] + records, one[2] + size) for one, (end, records, size) in twos]
            self._sample_s *= 2

    def stop(self) -> None:
        took, self.is_stopped = time.perf_counter() - self._begun, True
        if self.is_warm:
            self._result.seconds = took
            if took - self._mark[0] >= self._sample_s / 2 or not self._result.series:
                self._note(took)

    def _tell(self, now: float, done: float, text: str) -> None:
        if now - self._shown >= 0.1:
            self._shown = now
            self._bar.show(min(done, 1.0) * 100, text)


async def produce(client: Client, load: Load, result: Result, bar: Bar) -> None:
    """Records one after the other; each is timed from when it was due to its acknowledgement."""
    latencies = result.latencies["acknowledged"] = Latencies()
    producer = client.producer(**load.producer_settings())
    watch = Watch(load, result, bar)

    def settled(due: float, size: int, is_counted: bool) -> Callable[[asyncio.Future[object]], None]:
        def done(future: asyncio.Future[object]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                result.fail(error)
            elif is_counted and not watch.is_stopped:
                latencies.add(time.perf_counter() - due)
                result.records += 1
                result.bytes += size

        return done

    async with _Stopping(result, watch):
        await _send(producer, load, watch, result, settled)
    await _finish(producer, result)


async def _send(
    producer: Producer,
    load: Load,
    watch: Watch,
    result: Result,
    settled: Callable[[float, int, bool], Callable[..., None]],
) -> None:
    payloads, sent, rate = load.payloads(), 0, load.rate
    size, begun = load.record_bytes, time.perf_counter()
    while not watch.is_over() and not result.failed:
        for _ in range(TURN_RECORDS if rate is None else 1):
            due = time.perf_counter()
            if rate is not None:
                due = begun + sent / rate
                await _until(due)
            await _send_one(producer, load.topic, payloads[sent % PAYLOADS], settled(due, size, watch.is_warm))
            sent += 1
        if rate is None:
            await asyncio.sleep(0)


async def _until(due: float) -> None:
    """Not a moment sooner, where a loop counts whole milliseconds and wakes up half of one early."""
    while (ahead := due - time.perf_counter()) > 0:
        await asyncio.sleep(ahead)


async def _send_one(producer: Producer, topic: str, value: bytes, done: Callable[..., None]) -> None:
    from headrace.client import BufferFull

    while True:
        try:
            producer.send_soon(topic, value).add_done_callback(done)
            return
        except BufferFull as full:
            await producer.room(full.size_bytes)


async def _finish(producer: Producer, result: Result) -> None:
    """Waits for what is under way, unless it is known that something failed: then the rest would fail one by one."""
    await producer.close(timeout_s=0 if result.failed else None)


class _Stopping:
    """Ctrl-C ends a measurement, and what was measured counts."""

    __slots__ = ("_result", "_watch")

    def __init__(self, result: Result, watch: Watch) -> None:
        self._result = result
        self._watch = watch

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._watch.stop()
        self._result.is_interrupted = isinstance(error, asyncio.CancelledError)
        return self._result.is_interrupted


async def fill(client: Client, load: Load, count: int, bar: Bar) -> None:
    """Put records there to be read."""
    producer = client.producer(**load.producer_settings())
    payloads, failures = load.payloads(), list[BaseException]()

    def done(future: asyncio.Future[Produced]) -> None:
        if error := future.exception():
            failures.append(error)

    for number in range(count):
        await _send_one(producer, load.topic, payloads[number % PAYLOADS], done)
        if not number % 500:
            bar.show(100 * number / count, f"filling the topic: {number:,} of {count:,} records")
            await asyncio.sleep(0)
        if failures:
            break
    await producer.flush()
    if failures:
        raise failures[0] if isinstance(failures[0], HeadraceError) else HeadraceError(str(failures[0]))


async def consume(client: Client, load: Load, result: Result, bar: Bar) -> None:
    """All partitions from the beginning, as fast as they come."""
    topic = (await client.admin.describe_topics([load.topic]))[load.topic]
    partitions = [(load.topic, index) for index in topic.partitions]
    consumer = client.consumer(auto_offset_reset="earliest", prefetch_bytes_max=64 << 20)
    ends = await consumer.end_offsets(partitions)
    consumer.assign(partitions)
    watch = Watch(load, result, bar)
    async with _Stopping(result, watch):
        while not watch.is_over():
            records = await consumer.poll(POLL_RECORDS, timeout_s=POLL_S)
            result.records += len(records)
            result.bytes += sum(len(record.value or b"") + len(record.key or b"") for record in records)
            if not records and await _is_at(consumer, ends):
                break


async def _is_at(consumer: Consumer, ends: dict[tuple[str, int], int]) -> bool:
    for key, end in ends.items():
        if await consumer.position(*key) < end:
            return False
    return True


async def there_and_back(client: Client, load: Load, result: Result, bar: Bar) -> None:
    """Records at a steady rate, each timed from when it was due: until acknowledged, and until a consumer has it."""
    acknowledged = result.latencies["acknowledged"] = Latencies()
    end_to_end = result.latencies["end to end"] = Latencies()
    topic = (await client.admin.describe_topics([load.topic]))[load.topic]
    consumer = client.consumer(auto_offset_reset="latest", fetch_max_wait_ms=500)
    consumer.assign([(load.topic, index) for index in topic.partitions])
    for index in topic.partitions:
        await consumer.position(load.topic, index)
    producer = client.producer(**load.producer_settings())
    watch = Watch(load, result, bar)
    padding = load.payloads()
    warm_from = time.perf_counter() + load.warmup_s
    sent = received = 0

    async def receive() -> None:
        nonlocal received
        while True:
            for record in await consumer.poll(POLL_RECORDS):
                now = time.perf_counter()
                (due,) = STAMP.unpack_from(record.value or bytes(8))
                received += 1
                if due >= warm_from:
                    end_to_end.add(now - due)
                    result.records += 1
                    result.bytes += len(record.value or b"")

    def settled(due: float) -> Callable[[asyncio.Future[object]], None]:
        def done(future: asyncio.Future[object]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                result.fail(error)
            elif due >= warm_from:
                acknowledged.add(time.perf_counter() - due)

        return done

    receiving = asyncio.create_task(receive())
    begun, rate = time.perf_counter(), load.rate or 100.0
    async with _Stopping(result, watch):
        while not watch.is_over() and not result.failed and not receiving.done():
            due = begun + sent / rate
            await _until(due)
            await _send_one(producer, load.topic, STAMP.pack(due) + padding[sent % PAYLOADS][8:], settled(due))
            sent += 1
    await _finish(producer, result)
    deadline = time.perf_counter() + DRAIN_S
    while received < sent - result.failed and time.perf_counter() < deadline and not receiving.done():
        await asyncio.sleep(0.01)
    if receiving.done():
        receiving.result()
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
