"""Sends records: into batches by partition, acknowledged one by one, and by default each exactly once in the log."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from headrace.client.cluster import Cluster
from headrace.client.errors import BufferFull, NotSent
from headrace.client.lane import Outgoing, Produced
from headrace.client.metadata import TopicInfo
from headrace.client.partitioner import DefaultPartitioner, Partitioner
from headrace.client.sender import Sender, Sending
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol.batch import HEADER_SIZE_BYTES
from headrace.protocol.compression import Compression
from headrace.protocol.kernel_types import Fields, Headers

__all__ = ["Producer"]

Acks = Literal[0, 1, -1, "all"]
_RECORD_OVERHEAD_BYTES: Final = 21  # of lengths and deltas, at most
_HEADER_OVERHEAD_BYTES: Final = 10


class _Unplaced:
    """A record whose topic is not known yet."""

    __slots__ = ("fields", "future", "partition", "size_bytes")

    def __init__(
        self, fields: Fields, size_bytes: int, partition: int | None, future: asyncio.Future[Produced]
    ) -> None:
        self.fields = fields
        self.size_bytes = size_bytes
        self.partition = partition
        self.future = future


class Producer:
    """Made by `Client.producer`.

    `send` waits for the acknowledgement. To have many records under way, take futures from `send_soon`; when the buffer
    is full it raises `BufferFull`, and `room` waits until there is some.

    What the errors mean: `Refused` and `NotSent`, the record is not in the log; `Uncertain`, nobody knows.
    """

    __slots__ = (
        "_batch_bytes",
        "_buffer_bytes_max",
        "_buffered_bytes",
        "_cluster",
        "_delivery_timeout_s",
        "_is_closing",
        "_linger_s",
        "_loop",
        "_now_ms",
        "_partitioner",
        "_request_bytes_max",
        "_room_waiters",
        "_sender",
        "_tasks",
        "_under_way",
        "_unplaced",
    )

    def __init__(
        self,
        cluster: Cluster,
        chance: random.Random,
        now_ms: Callable[[], int],
        *,
        acks: Acks = "all",
        idempotent: bool | None = None,
        compression: Compression | str = Compression.NONE,
        linger_ms: float = 0.0,
        batch_bytes: int = 64 << 10,
        request_bytes_max: int = 1 << 20,
        buffer_bytes_max: int = 32 << 20,
        delivery_timeout_s: float = 120.0,
        partitioner: Partitioner | None = None,
    ) -> None:
        acks_code = -1 if acks == "all" else acks
        if idempotent and acks_code != -1:
            raise ValueError("an idempotent producer needs acks='all': leave one of the two settings out.")
        if isinstance(compression, str):
            compression = Compression[compression.upper()]
        is_idempotent = acks_code == -1 if idempotent is None else idempotent
        sending = Sending(acks_code, is_idempotent, compression, batch_bytes, request_bytes_max)
        self._cluster = cluster
        self._now_ms = now_ms
        self._sender = Sender(cluster, sending, self._batch_done)
        self._loop = asyncio.get_running_loop()
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._request_bytes_max = request_bytes_max
        self._buffer_bytes_max = buffer_bytes_max
        self._delivery_timeout_s = delivery_timeout_s
        self._partitioner = partitioner or DefaultPartitioner(chance, batch_bytes)
        self._buffered_bytes = 0
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        self._unplaced: dict[str, list[_Unplaced]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._under_way: dict[asyncio.Future[Produced], None] = {}
        self._is_closing = False

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Produced:
        """Send a record and wait until it is acknowledged, or until it is known that it won't be."""
        while True:
            try:
                future = self.send_soon(topic, value, key, headers, partition, timestamp_ms)
            except BufferFull:
                await self.room()
            else:
                return await future

    def send_soon(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Produced]:
        """Put a record on its way; the future is its acknowledgement. Records of one partition keep their order."""
        if self._is_closing:
            raise NotSent("The producer is closed: make another one.")
        size_bytes = _size_of(key, value, headers)
        if size_bytes + HEADER_SIZE_BYTES > self._request_bytes_max:
            raise Refused(
                Error.MESSAGE_TOO_LARGE,
                f"A record of {size_bytes} bytes is larger than request_bytes_max ({self._request_bytes_max}).",
            )
        if self._buffered_bytes and self._buffered_bytes + size_bytes > self._buffer_bytes_max:
            raise BufferFull(f"{self._buffered_bytes} bytes are not acknowledged yet: await room() and send again.")
        self._buffered_bytes += size_bytes
        fields = (key, value, headers, self._now_ms() if timestamp_ms is None else timestamp_ms)
        future: asyncio.Future[Produced] = self._loop.create_future()
        self._under_way[future] = None
        info = self._cluster.metadata.topics.get(topic)
        record = _Unplaced(fields, size_bytes, partition, future)
        if info is not None and info.partitions and topic not in self._unplaced:
            self._place(info, record)
        else:
            self._unplaced.setdefault(topic, []).append(record)
            if topic not in self._tasks:
                self._tasks[topic] = self._loop.create_task(self._find_topic(topic))
        return future

    async def room(self) -> None:
        """Wait until the buffer has room for another batch."""
        while self._buffered_bytes and self._buffered_bytes + self._batch_bytes > self._buffer_bytes_max:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room_waiters.append(waiter)
            await waiter

    async def flush(self) -> None:
        """Wait until everything that was sent so far is acknowledged or has failed; nothing lingers meanwhile."""
        self._sender.hurried += 1
        try:
            self._sender.pump_soon()
            if under_way := list(self._under_way):
                await asyncio.wait(under_way)
        finally:
            self._sender.hurried -= 1

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, for at most `timeout_s`, and give up the rest."""
        if self._is_closing:
            return
        self._is_closing = True
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            for task in self._tasks.values():
                task.cancel()
            for topic in list(self._unplaced):
                self._fail_unplaced(topic, NotSent(f"A record for {topic} was not sent: the producer was closed."))
            self._sender.close()

    # --- finding a place ----------------------------------------------------------------------------------------------

    async def _find_topic(self, topic: str) -> None:
        try:
            timeout_s = min(self._delivery_timeout_s, self._cluster.settings.operation_timeout_s)
            info = await self._cluster.topic(topic, create=True, timeout_s=timeout_s)
        except HeadraceError as error:
            self._fail_unplaced(topic, error if isinstance(error, Refused) else NotSent(str(error)))
        else:
            for record in self._unplaced.pop(topic, []):
                self._place(info, record)
        finally:
            self._tasks.pop(topic, None)

    def _place(self, topic: TopicInfo, record: _Unplaced) -> None:
        key = record.fields[0]
        partition = record.partition
        if partition is None:
            partition = self._partitioner(topic, None if key is None else bytes(key), record.size_bytes)
        if partition not in topic.partitions:
            text = f"Topic {topic.name} has no partition {partition}: it has {len(topic.partitions)}."
            self._fail_record(record, Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, text))
            self._cluster.refresh_soon()
            return
        now = self._loop.time()
        batch = self._sender.lane(topic.name, partition).open_batch(
            record.size_bytes, self._batch_bytes, now + self._linger_s, now + self._delivery_timeout_s
        )
        batch.records.append(record.fields)
        batch.futures.append(record.future)
        batch.size_bytes += record.size_bytes
        if len(batch.records) == 1 or batch.size_bytes >= self._batch_bytes:
            self._sender.pump_soon()

    def _fail_unplaced(self, topic: str, error: HeadraceError) -> None:
        for record in self._unplaced.pop(topic, []):
            self._fail_record(record, error)

    def _fail_record(self, record: _Unplaced, error: HeadraceError) -> None:
        if not record.future.done():
            record.future.set_exception(error)
            record.future.exception()
        self._release([record.future], record.size_bytes)

    def _batch_done(self, batch: Outgoing) -> None:
        self._release(batch.futures, batch.size_bytes)

    def _release(self, futures: list[asyncio.Future[Produced]], size_bytes: int) -> None:
        for future in futures:
            self._under_way.pop(future, None)
        self._buffered_bytes -= size_bytes
        while self._room_waiters and self._buffered_bytes + self._batch_bytes <= self._buffer_bytes_max:
            waiter = self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if not self._buffered_bytes:
            while self._room_waiters:
                waiter = self._room_waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)


def _size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    if isinstance(key, str) or isinstance(value, str):
        raise TypeError("keys and values are bytes: encode text first, as in 'text'.encode().")
    size_bytes = (
        _RECORD_OVERHEAD_BYTES + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    )
    for name, header in headers:
        size_bytes += _HEADER_OVERHEAD_BYTES + len(name.encode()) + (len(header) if header is not None else 0)
    return size_bytes
