"""A client of the handlers, without a socket: what it asks goes through the wire format, and so does what it gets."""

from __future__ import annotations

from typing import Any

from headrace.broker.fetch import Fetch
from headrace.broker.fetch_memory import ReplyMemory
from headrace.broker.fetch_session import Sessions
from headrace.broker.offsets import Offsets
from headrace.errors import Error
from headrace.metrics.requests import ErrorCounts
from headrace.protocol.apis import find_api
from headrace.protocol.batch import scan
from headrace.protocol.codec import decode, encode_bytes
from headrace.protocol.frame import SIZE_BYTES, Request, read_response, write_response
from headrace.protocol.message import Message
from headrace.protocol.messages import FetchRequest, FetchResponse
from tests.replica.hosts import TOPIC_ID, Host
from tests.storage.batches import batch

LATEST_VERSION = 18


class FakeListener:
    name = "PLAINTEXT"


class FakeSlot:
    def __init__(self, connection: FakeConnection) -> None:
        self.buffers: list[Any] | None = None
        connection.slots.append(self)

    def fill(self, buffers: list[Any]) -> None:
        assert self.buffers is None
        self.buffers = buffers


class FakeConnection:
    def __init__(self) -> None:
        self.listener = FakeListener()
        self.slots: list[FakeSlot] = []
        self.is_closing = False
        self.is_aborted = False

    def reserve(self) -> FakeSlot:
        return FakeSlot(self)

    def abort(self) -> None:
        self.is_aborted = self.is_closing = True


class Reply:
    """What comes back, now or later."""

    def __init__(self, request: Request, connection: FakeConnection, message: Message | None) -> None:
        self._request = request
        self._connection = connection
        self._frame = (
            None if message is None else b"".join(write_response(message, request.version, request.correlation_id))
        )
        self._slot = connection.slots[-1] if message is None else None

    @property
    def is_there(self) -> bool:
        return self._frame is not None or (self._slot is not None and self._slot.buffers is not None)

    def take(self) -> Any:
        frame = self._frame
        if frame is None:
            assert self._slot is not None
            assert self._slot.buffers is not None, "the reply is not there yet"
            frame = b"".join(self._slot.buffers)
        correlation_id, message = read_response(self._request.api, self._request.version, frame[SIZE_BYTES:])
        assert correlation_id == self._request.correlation_id
        return message


class Client:
    def __init__(self, host: Host, **limits: int) -> None:
        self.host = host
        self.memory = ReplyMemory(limits.get("memory_bytes", 1 << 30), host.loop.soon.append)
        sessions = Sessions(lambda size: b"\0" * (size - 1) + b"\x07", capacity=limits.get("sessions", 1))
        self.handler = Fetch(
            host.replicas, sessions, self.memory, host.workers, fetch_max_bytes=limits.get("max_bytes", 55 << 20)
        )
        self.offsets = Offsets(host.replicas, host.workers, ErrorCounts())
        self.connection = FakeConnection()
        self._correlation_id = 0

    def send(self, handle: Any, body: Message, version: int) -> Reply:
        self._correlation_id += 1
        api = find_api(body.shape.key)  # type: ignore[arg-type]
        assert api is not None
        decoded = decode(type(body), version, encode_bytes(body, version))
        request = Request(api, version, self._correlation_id, "a-client", decoded)
        return Reply(request, self.connection, handle(self.connection, request))

    def fetch(self, *partitions: FetchRequest.FetchPartition, version: int = LATEST_VERSION, **more: Any) -> Reply:
        return self.send(self.handler.handle, fetch_request(*partitions, version=version, **more), version)


def fetch_request(
    *partitions: FetchRequest.FetchPartition, version: int = LATEST_VERSION, topic_id: bytes = TOPIC_ID, **more: Any
) -> FetchRequest:
    more.setdefault("min_bytes", 1)
    more.setdefault("max_bytes", 1 << 30)
    named: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": "t"}
    topics = [FetchRequest.FetchTopic(partitions=list(partitions), **named)] if partitions else []
    return FetchRequest(topics=topics, **more)


def wanted(offset: int, index: int = 0, max_bytes: int = 1 << 20, **more: Any) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **more)


def append(host: Host, *values: bytes, index: int = 0, acks: int = 1, **header: Any) -> int:
    """Appends one batch, and returns its size."""
    content = batch(*values, **header)
    host.partition(index=index).append(memoryview(content), acks, host.now_ms())
    return len(content)


def only(response: FetchResponse) -> FetchResponse.PartitionData:
    assert response.error_code == Error.NONE
    ((data,),) = [topic.partitions for topic in response.responses]
    return data


def offsets_in(data: FetchResponse.PartitionData) -> list[int]:
    """The last offset of each whole batch."""
    return [found.last_offset for found in scan(bytes(data.records or b""), partial=True)]
