"""Sends records: into batches by partition, acknowledged one by one, and by default each exactly once in the log."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, Self

from headrace.client.arguments import (
    INT32_MAX,
    INT64_MAX,
    flag,
    function,
    items,
    number,
    one_of,
    refuse,
    seconds,
    text,
    whole,
)
from headrace.client.cluster import Cluster
from headrace.client.errors import BufferFull, NotSent, WrongArgument
from headrace.client.lane import Outgoing, Produced
from headrace.client.metadata import TopicInfo
from headrace.client.partitioner import DefaultPartitioner, Partitioner
from headrace.client.sender import Sender, Sending
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol.batch import HEADER_SIZE_BYTES
from headrace.protocol.compression import Compression
from headrace.protocol.kernel_types import Buffer, Fields, Headers

__all__ = ["Producer"]

_log = logging.getLogger(__name__)

Acks = Literal[0, 1, -1, "all"]
_RECORD_OVERHEAD_BYTES: Final = 21  # of lengths and deltas, at most
_HEADER_OVERHEAD_BYTES: Final = 10
_HEADERS: Final = "a list of names and values, such as [('trace', b'1')]"


_Unplaced = tuple[Fields, int, int | None, asyncio.Future[Produced]]
"""A record whose topic is not known yet, its size, and the partition that it is to go to, if one was named."""


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
        "_closed",
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
        "_unplaced",
    )

    def __init__(
        self,
        cluster: Cluster,
        chance: random.Random,
        now_ms: Callable[[], int],
        closed: Callable[[Producer], None] = lambda _: None,
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
        transactional_id: str | None = None,
    ) -> None:
        one_of("acks", acks, "all", -1, 0, 1)
        acks_code = -1 if acks == "all" else acks
        is_idempotent = acks_code == -1 if idempotent is None else idempotent
        flag("idempotent", is_idempotent)
        if is_idempotent and acks_code != -1:
            raise WrongArgument("An idempotent producer needs acks='all': leave one of the two settings out.")
        if transactional_id is not None and not is_idempotent:
            raise WrongArgument("A transactional producer is idempotent: leave acks and idempotent out.")
        number("linger_ms", linger_ms, "milliseconds", INT32_MAX, zero=True)
        whole("batch_bytes", batch_bytes, 1)
        whole("request_bytes_max", request_bytes_max, 1)
        whole("buffer_bytes_max", buffer_bytes_max, 1, INT64_MAX)
        seconds("delivery_timeout_s", delivery_timeout_s)
        if partitioner is not None:
            function("partitioner", partitioner, "a function of topic, key and size, or None")
        codec = _codec(compression)
        sending = Sending(acks_code, is_idempotent, codec, batch_bytes, request_bytes_max, transactional_id)
        self._cluster = cluster
        self._now_ms = now_ms
        self._closed = closed
        self._sender = Sender(cluster, sending, self._batch_done)
        self._loop = asyncio.get_running_loop()
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._request_bytes_max = request_bytes_max
        self._buffer_bytes_max = buffer_bytes_max
        self._delivery_timeout_s = delivery_timeout_s
        self._partitioner = partitioner or DefaultPartitioner(chance, batch_bytes)
        self._buffered_bytes = 0
        self._room_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._unplaced: dict[str, list[_Unplaced]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    async def send(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Produced:
        """Send a record and wait until it is acknowledged, or until it is known that it won't be."""
        while True:
            try:
                future = self.send_soon(topic, value, key, headers, partition, timestamp_ms)
            except BufferFull as full:
                await self.room(full.size_bytes)
            else:
                return await future

    def send_soon(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Produced]:
        """Put a record on its way; the future is its acknowledgement. Records of one partition keep their order.

        To cancel the future does not take the record back.
        """
        if self._is_closing:
            raise NotSent("The producer is closed: make another one.")
        if partition is not None and (partition.__class__ is not int or partition < 0):
            refuse("partition", "a whole number from 0, or None", partition)
        fields: Fields
        if value.__class__ is bytes and key is None and not headers and timestamp_ms is None:
            fields, size_bytes = (None, value, (), self._now_ms()), _RECORD_OVERHEAD_BYTES + len(value)
        else:
            fields, size_bytes = _checked(key, value, headers, self._now_ms() if timestamp_ms is None else timestamp_ms)
        if size_bytes + HEADER_SIZE_BYTES > self._request_bytes_max:
            raise Refused(
                Error.MESSAGE_TOO_LARGE,
                f"A record of {size_bytes} bytes is larger than request_bytes_max ({self._request_bytes_max}).",
            )
        if self._buffered_bytes and self._buffered_bytes + size_bytes > self._buffer_bytes_max:
            raise BufferFull(
                f"{self._buffered_bytes} bytes are not acknowledged yet: await room() and send again.", size_bytes
            )
        try:
            info = self._cluster.metadata.topics.get(topic)
        except TypeError:  # no key of any dict
            info = None
        if info is None:  # and so its name has not been looked at
            text("topic", topic)
        self._buffered_bytes += size_bytes
        future: asyncio.Future[Produced] = self._loop.create_future()
        if info is not None and info.partitions and topic not in self._unplaced:
            self._place(info, fields, size_bytes, partition, future)
        else:
            self._unplaced.setdefault(topic, []).append((fields, size_bytes, partition, future))
            if topic not in self._tasks:
                self._tasks[topic] = self._loop.create_task(self._find_topic(topic))
        return future

    async def room(self, size_bytes: int | None = None) -> None:
        """Wait until the buffer has room for another batch, or for a record of this size."""
        if size_bytes is None:
            size_bytes = self._batch_bytes
        whole("size_bytes", size_bytes, 0, INT64_MAX)
        while self._buffered_bytes and self._buffered_bytes + size_bytes > self._buffer_bytes_max:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room_waiters.append((size_bytes, waiter))
            await waiter

    @property
    def refused(self) -> Refused | None:
        """What is sent again and again, as long as its delivery time-out lets it; None when nothing is."""
        return self._sender.refused

    async def flush(self) -> None:
        """Wait until everything that was sent so far is acknowledged or has failed; nothing lingers meanwhile."""
        self._sender.hurried += 1
        try:
            self._sender.touch_all()
            unplaced = [future for records in self._unplaced.values() for *_, future in records if not future.done()]
            if under_way := unplaced + self._sender.under_way:
                await asyncio.wait(under_way)
        finally:
            self._sender.hurried -= 1

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, for at most `timeout_s`, and give up the rest."""
        if timeout_s is not None:
            seconds("timeout_s", timeout_s, zero=True)
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
            self._closed(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- finding a place ----------------------------------------------------------------------------------------------

    async def _find_topic(self, topic: str) -> None:
        try:
            timeout_s = min(self._delivery_timeout_s, self._cluster.settings.operation_timeout_s)
            async with asyncio.timeout(self._delivery_timeout_s):  # one request may take longer than that
                info = await self._cluster.topic(topic, create=True, timeout_s=timeout_s)
        except TimeoutError:
            self._fail_unplaced(topic, NotSent(f"A record for {topic} was not sent: nobody said in time who leads it."))
        except HeadraceError as error:
            self._fail_unplaced(topic, error if isinstance(error, Refused) else NotSent(str(error)))
        except Exception as error:
            _log.exception("the producer could not look for the topic %s", topic)
            self._fail_unplaced(topic, NotSent(f"A record for {topic} was not sent: the producer failed ({error!r})."))
        else:
            for unplaced in self._unplaced.pop(topic, []):
                self._place(info, *unplaced)
        finally:
            self._tasks.pop(topic, None)

    def _place(
        self,
        topic: TopicInfo,
        fields: Fields,
        size_bytes: int,
        partition: int | None,
        future: asyncio.Future[Produced],
    ) -> None:
        if partition is None:
            try:
                partition = self._partitioner(topic, fields[0], size_bytes)
                if partition.__class__ is not int:
                    refuse("the choice of a partitioner", "a whole number", partition)
            except Exception as error:
                _log.exception("the partitioner failed at a record for %s", topic.name)
                failure = NotSent(f"A record for {topic.name} was not sent: its partitioner failed ({error!r}).")
                self._fail_record(future, size_bytes, failure)
                return
        if partition not in topic.partitions:
            why = f"Topic {topic.name} has no partition {partition}: it has {len(topic.partitions)}."
            self._fail_record(future, size_bytes, Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, why))
            self._cluster.refresh_soon()
            return
        lane = self._sender.lanes.get((topic.name, partition)) or self._sender.lane(topic.name, partition)
        if not lane.add(fields, size_bytes, future, self._batch_bytes):
            # The batch before it is full, or there is none: both are news to the sender.
            now = self._loop.time()
            lane.add_batch(now + self._linger_s, now + self._delivery_timeout_s)
            lane.add(fields, size_bytes, future, max(size_bytes, self._batch_bytes))
            self._sender.touch(lane)

    def _fail_unplaced(self, topic: str, error: HeadraceError) -> None:
        for _, size_bytes, _, future in self._unplaced.pop(topic, []):
            self._fail_record(future, size_bytes, error)

    def _fail_record(self, future: asyncio.Future[Produced], size_bytes: int, error: HeadraceError) -> None:
        if not future.done():
            future.set_exception(error)
            future.exception()
        self._release(size_bytes)
        if (transaction := self._sender.transaction) is not None:
            # It was never in a batch, whose end would tell: without it the rest must not be committed.
            transaction.failed(error.error if isinstance(error, Refused) else Error.REQUEST_TIMED_OUT, str(error))

    def _batch_done(self, batch: Outgoing) -> None:
        self._release(batch.size_bytes)

    def _release(self, size_bytes: int) -> None:
        """Who waits for room is let in as far as there is some, first come, first served."""
        self._buffered_bytes -= size_bytes
        promised_bytes = self._buffered_bytes
        while self._room_waiters:
            wanted_bytes, waiter = self._room_waiters[0]
            if promised_bytes and promised_bytes + wanted_bytes > self._buffer_bytes_max:
                return
            self._room_waiters.popleft()
            if not waiter.done():
                promised_bytes += wanted_bytes
                waiter.set_result(None)


def _codec(compression: object) -> Compression:
    if isinstance(compression, Compression):
        return compression
    codecs = {codec.name.lower(): codec for codec in Compression}
    name = compression.lower() if isinstance(compression, str) else compression
    one_of("compression", name, *codecs)
    assert isinstance(name, str)
    return codecs[name]


def _checked(key: Buffer | None, value: Buffer | None, headers: Headers, timestamp_ms: int) -> tuple[Fields, int]:
    """A record in the form in which it is kept, and its size. What is wrong with it must not come out later."""
    size_bytes = _RECORD_OVERHEAD_BYTES
    if value is not None:
        if value.__class__ is not bytes:
            value = _bytes_of("value", value)
        size_bytes += len(value)
    if key is not None:
        if key.__class__ is not bytes:
            key = _bytes_of("key", key)
        size_bytes += len(key)
    if headers:
        headers, headers_bytes = _checked_headers(headers)
        size_bytes += headers_bytes
    else:
        headers = ()
    if timestamp_ms.__class__ is not int or not -1 <= timestamp_ms <= INT64_MAX:
        refuse("timestamp_ms", "a whole number of milliseconds since 1970", timestamp_ms)
    return (key, value, headers, timestamp_ms), size_bytes


def _checked_headers(headers: Headers) -> tuple[Headers, int]:
    checked: list[tuple[str, bytes | None]] = []
    size_bytes = 0
    for header in items("headers", headers, _HEADERS):
        if not isinstance(header, tuple | list) or len(header) != 2:
            refuse("headers", _HEADERS, headers)
        name, value = header
        text("the name of a header", name, empty=True)
        value = None if value is None else _bytes_of("the value of a header", value)
        size_bytes += _HEADER_OVERHEAD_BYTES + len(name.encode()) + (0 if value is None else len(value))
        checked.append((name, value))
    return tuple(checked), size_bytes


def _bytes_of(name: str, value: Buffer) -> bytes:
    """A copy, when it is a buffer that the caller may write to again."""
    if not isinstance(value, bytes | bytearray | memoryview):
        refuse(name, "bytes or None (encode text with .encode())", value)
    return bytes(value)
