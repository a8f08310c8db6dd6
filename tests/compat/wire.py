"""A client of single requests over a raw socket: it shows what a node answers, byte for byte and version by version."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Final, Self

from headrace.protocol.apis import Api, find_api
from headrace.protocol.batch import Batch, scan
from headrace.protocol.frame import read_response, write_request
from headrace.protocol.message import Message
from headrace.protocol.records import records_of

TIMEOUT_S: Final = 60
CLIENT_ID: Final = "compat-wire"


class Closed(Exception):
    """The node closed the connection."""


class Wire:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._asked: dict[int, tuple[Api, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def ask(self, request: Message, version: int) -> Any:
        """The answer to one request."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Message, version: int) -> int:
        """Sends without waiting; returns the correlation id."""
        key = request.shape.key
        assert key is not None
        api = find_api(key)
        assert api is not None
        self._correlation_id += 1
        self._asked[self._correlation_id] = (api, version)
        self.send_bytes(b"".join(write_request(request, version, self._correlation_id, CLIENT_ID)))
        return self._correlation_id

    def receive(self) -> Any:
        """The next answer, which must be to the oldest request."""
        frame = self.receive_frame()
        correlation_id = next(iter(self._asked))
        api, version = self._asked.pop(correlation_id)
        found, message = read_response(api, version, frame)
        assert found == correlation_id
        return message

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Closed from error

    def receive_frame(self) -> bytes:
        return self._receive_bytes(int.from_bytes(self._receive_bytes(4)))

    def is_closed(self) -> bool:
        """Waits for the node to close; False when it says something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _receive_bytes(self, size_bytes: int) -> bytes:
        found = bytearray()
        while len(found) < size_bytes:
            try:
                part = self.socket.recv(size_bytes - len(found))
            except ConnectionError as error:
                raise Closed from error
            if not part:
                raise Closed
            found += part
        return bytes(found)


def values_of(records: bytes | memoryview | None) -> list[bytes | None]:
    """The values of all whole batches of a fetch reply."""
    return [record.value for batch in batches_of(records) for record in records_of(batch, 1 << 30).decode()]


def batches_of(records: bytes | memoryview | None) -> list[Batch]:
    return list(scan(records or b"", partial=True))
