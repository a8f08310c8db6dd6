"""FindCoordinator: which broker a group or a transactional id is to ask.

It is the leader of a partition of a state topic, as the image says. A state topic that is not there is created first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.state_topics import StateTopics
from headrace.coordinator.state_topic import CONSUMER_OFFSETS, TRANSACTION_STATE, fits_key, partition_for
from headrace.errors import Error
from headrace.metadata.image import Endpoint, Image
from headrace.metadata.loader import Loader
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request

if TYPE_CHECKING:
    Coordinator = m.FindCoordinatorResponse.Coordinator

BATCHED_SINCE: Final = 4
"""From this version on one request asks for many (KIP-699)."""
CHARACTERS_AT_ONCE: Final = 50_000
"""Of names, which take some 50 ns each."""


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Final = {KeyType.GROUP: CONSUMER_OFFSETS, KeyType.TRANSACTION: TRANSACTION_STATE}
"""There are no share groups: as where Kafka has them switched off, they are INVALID_REQUEST, like unknown types."""


class FindCoordinator:
    __slots__ = ("_loader", "_topics")

    def __init__(self, loader: Loader, topics: StateTopics) -> None:
        self._loader = loader
        self._topics = topics

    def handle(
        self, connection: Connection, request: Request
    ) -> m.FindCoordinatorResponse | Coroutine[Any, Any, m.FindCoordinatorResponse]:
        topic = _TOPICS.get(request.body.key_type)
        if topic is not None and topic not in self._loader.image.topic_ids:
            return self._create_first(topic, connection, request)
        if sum(map(len, request.body.coordinator_keys)) > CHARACTERS_AT_ONCE:
            return self._respond_in_steps(connection, request)
        return self._respond(connection, request)

    async def _create_first(self, topic: str, connection: Connection, request: Request) -> m.FindCoordinatorResponse:
        await self._topics.create(topic)
        return await self._respond_in_steps(connection, request)

    async def _respond_in_steps(self, connection: Connection, request: Request) -> m.FindCoordinatorResponse:
        """To hash what may be megabytes of names takes a while, and others want to be served meanwhile."""
        if request.version < BATCHED_SINCE:
            return self._respond(connection, request)
        image, found, characters = self._loader.image, [], 0
        for key in request.body.coordinator_keys:
            found.append(self._find(image, request.body.key_type, key, connection.listener.name))
            characters += len(key)
            if characters > CHARACTERS_AT_ONCE:
                characters = 0
                await asyncio.sleep(0)
        return m.FindCoordinatorResponse(coordinators=found)

    def _respond(self, connection: Connection, request: Request) -> m.FindCoordinatorResponse:
        body: m.FindCoordinatorRequest = request.body
        image, listener = self._loader.image, connection.listener.name
        if request.version >= BATCHED_SINCE:
            return m.FindCoordinatorResponse(
                coordinators=[self._find(image, body.key_type, key, listener) for key in body.coordinator_keys]
            )
        found = self._find(image, body.key_type, body.key, listener)
        return m.FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message or "NONE",  # Kafka's words for no error, and for none of many none
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find(self, image: Image, key_type: int, key: str, listener: str) -> Coordinator:
        name = _TOPICS.get(key_type)  # type: ignore[call-overload]
        if name is None:
            return _none(key, Error.INVALID_REQUEST)
        if not fits_key(key):
            return _none(key, Error.INVALID_GROUP_ID if key_type == KeyType.GROUP else Error.INVALID_REQUEST)
        topic = image.topic(name)
        partition = None if topic is None else topic.partitions[partition_for(key, len(topic.partitions))]
        endpoint = None if partition is None else _reached(image, partition.leader, listener)
        if partition is None or endpoint is None:
            return _none(key, Error.COORDINATOR_NOT_AVAILABLE)
        return m.FindCoordinatorResponse.Coordinator(
            key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port, error_message=""
        )


def _none(key: str, error: Error) -> Coordinator:
    return m.FindCoordinatorResponse.Coordinator(
        key=key, node_id=-1, port=-1, error_code=error, error_message=error.text
    )


def _reached(image: Image, broker_id: int, listener: str) -> Endpoint | None:
    broker = image.brokers.get(broker_id)
    return None if broker is None or broker.is_fenced else broker.endpoint(listener)
