"""A reply that a shard of a coordinator gives, when it is time: it has the place of its request on the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headrace.broker.response_errors import count_errors
from headrace.errors import Error
from headrace.net.connection import Connection
from headrace.protocol.frame import Request, write_response
from headrace.protocol.message import Message

Refusal: TypeAlias = Callable[[Request, Error, str | None], Message]
"""Makes the response of an API that says only this error, with a text where it has room for one."""


class SlotReply:
    """Fills a slot; see `coordinator.shard.Reply`. It costs no task, and a client that is gone does no harm."""

    __slots__ = ("_errors", "_refusal", "_request", "_slot")

    def __init__(
        self, connection: Connection, request: Request, refusal: Refusal, errors: dict[int, int] | None = None
    ) -> None:
        """`errors` are those of the API's route, where its errors are counted."""
        self._slot = connection.reserve()
        self._request = request
        self._refusal = refusal
        self._errors = errors

    def __call__(self, message: Message, /) -> None:
        request = self._request
        self._slot.fill(write_response(message, request.version, request.correlation_id))
        if self._errors is not None:
            count_errors(message, self._errors)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        self(self._refusal(self._request, error, text))
