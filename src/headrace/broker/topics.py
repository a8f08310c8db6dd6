"""Creating and deleting topics: asked of the controller, over the channel, by any broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from headrace.errors import Error, Refused
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

AUTO_CREATE_TIMEOUT_MS: Final = 5000
_TIMEOUT_MAX_MS: Final = 300_000


class Channel(Protocol):
    """The way to the active controller. The reply comes when what it says is in the image of this node."""

    async def call(self, request: Message, timeout_s: float) -> Message:
        """Raises Refused when there is no controller, or no answer in time."""


class Creates(Protocol):
    async def create_missing(self, names: Sequence[str]) -> dict[str, Error]:
        """Creates topics with all that is default; returns those that could not be, and why."""


class Topics:
    __slots__ = ("_channel", "_deletes")

    def __init__(self, channel: Channel, *, deletes: bool) -> None:
        """`deletes` says whether topics may be deleted at all."""
        self._channel = channel
        self._deletes = deletes

    async def create(self, connection: Connection, request: Request) -> Message:
        body: m.CreateTopicsRequest = request.body
        try:
            return await self._channel.call(body, _seconds(body.timeout_ms))
        except Refused as refused:
            return m.CreateTopicsResponse(
                topics=[
                    m.CreateTopicsResponse.CreatableTopicResult(
                        name=name, error_code=refused.error, error_message=refused.text, configs=None
                    )
                    for name in dict.fromkeys(topic.name for topic in body.topics)
                ]
            )

    async def delete(self, connection: Connection, request: Request) -> Message:
        body: m.DeleteTopicsRequest = request.body
        try:
            if not self._deletes:
                error = Error.TOPIC_DELETION_DISABLED if request.version >= 3 else Error.INVALID_REQUEST
                raise Refused(error, "Topics are not deleted here: delete.topic.enable is false.")
            return await self._channel.call(body, _seconds(body.timeout_ms))
        except Refused as refused:
            result = m.DeleteTopicsResponse.DeletableTopicResult
            responses = [
                result(name=name, error_code=refused.error, error_message=refused.text) for name in body.topic_names
            ]
            responses += [
                result(name=topic.name, topic_id=topic.topic_id, error_code=refused.error, error_message=refused.text)
                for topic in body.topics
            ]
            return m.DeleteTopicsResponse(responses=responses)

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


def _seconds(timeout_ms: int) -> float:
    return min(max(timeout_ms, 0), _TIMEOUT_MAX_MS) / 1000
