"""Topics that clients ask for before they are there, and topics that are to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from headrace.broker.forward import Channel, Forward
from headrace.errors import Error, Refused
from headrace.metadata.refusals import refusal
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

AUTO_CREATE_TIMEOUT_MS: Final = 5000


class Creates(Protocol):
    async def create_missing(self, names: Sequence[str]) -> dict[str, Error]:
        """Creates topics with all that is default; returns those that could not be, and why."""


class Topics:
    __slots__ = ("_channel", "_deletes", "_forward")

    def __init__(self, channel: Channel, *, deletes: bool) -> None:
        """`deletes` says whether topics may be deleted at all."""
        self._channel = channel
        self._forward = Forward(channel)
        self._deletes = deletes

    async def delete(self, connection: Connection, request: Request) -> Message:
        if not self._deletes:
            error = Error.TOPIC_DELETION_DISABLED if request.version >= 3 else Error.INVALID_REQUEST
            refused = Refused(error, "Topics are not deleted here: delete.topic.enable is false.")
            return refusal(request.body, refused)
        return await self._forward.handle(connection, request)

    async def create_missing(self, names: Sequence[str]) -> dict[str, Error]:
        request = m.CreateTopicsRequest(
            topics=[
                m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
                for name in names
            ],
            timeout_ms=AUTO_CREATE_TIMEOUT_MS,
        )
        try:
            response = await self._channel.call(request, AUTO_CREATE_TIMEOUT_MS / 1000)
        except Refused:
            return dict.fromkeys(names, Error.UNKNOWN_TOPIC_OR_PARTITION)  # clients ask again
        assert isinstance(response, m.CreateTopicsResponse)
        return {
            topic.name: Error.of(topic.error_code)
            for topic in response.topics
            if topic.error_code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
        }
