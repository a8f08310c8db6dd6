"""Topics that are to be: asked for, or only used; and topics that are to go. The controller decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from headrace.broker.forward import Channel, Forward
from headrace.errors import Error, Refused
from headrace.metadata.refusals import refusal
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

if TYPE_CHECKING:
    Described = m.DescribeConfigsResponse.DescribeConfigsResourceResult

AUTO_CREATE_TIMEOUT_MS: Final = 5000
SETTINGS_VERSION: Final = 5
"""From this version on, the reply tells the settings of a new topic (KIP-525)."""


class Creates(Protocol):
    async def create_missing(self, names: Sequence[str]) -> dict[str, Error]:
        """Creates topics with all that is default; returns those that could not be, and why."""


class Topics:
    __slots__ = ("_channel", "_deletes", "_forward", "_settings_of")

    def __init__(
        self, channel: Channel, settings_of: Callable[[Mapping[str, str]], Sequence[Described]], *, deletes: bool
    ) -> None:
        """`settings_of` says what settings a topic has that has some of its own; `deletes`, whether topics may be
        deleted at all."""
        self._channel = channel
        self._settings_of = settings_of
        self._forward = Forward(channel)
        self._deletes = deletes

    async def create(self, connection: Connection, request: Request) -> Message:
        response = await self._forward.handle(connection, request)
        assert isinstance(response, m.CreateTopicsResponse)
        if request.version >= SETTINGS_VERSION:
            self._tell_settings(request.body, response)
        return response

    def _tell_settings(self, body: m.CreateTopicsRequest, response: m.CreateTopicsResponse) -> None:
        """With where each value comes from, which a broker knows. Nearly all topics of a request have the same."""
        asked = {topic.name: tuple((one.name, one.value or "") for one in topic.configs) for topic in body.topics}
        told: dict[tuple[tuple[str, str], ...], list[m.CreateTopicsResponse.CreatableTopicConfigs]] = {}
        for topic in response.topics:
            if topic.error_code:
                continue
            own = asked[topic.name]
            if own not in told:
                told[own] = [
                    m.CreateTopicsResponse.CreatableTopicConfigs(
                        name=one.name,
                        value=one.value,
                        read_only=one.read_only,
                        config_source=one.config_source,
                        is_sensitive=one.is_sensitive,
                    )
                    for one in self._settings_of(dict(own))
                ]
            topic.configs = told[own]

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
