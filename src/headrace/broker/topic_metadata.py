"""Metadata: brokers, topics, partitions and their leaders, as one listener's clients see them.

What is said of a topic is kept as long as the image has the same topic and the same brokers: ten thousand partitions
are described once, and not for each client that asks.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.cluster import any_active_broker, close_as_nobody_serves
from headrace.broker.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from headrace.broker.steps import in_steps
from headrace.broker.topics import Creates
from headrace.errors import Error, Refused
from headrace.metadata.image import Broker, Image, Partition, Topic
from headrace.metadata.loader import Loader
from headrace.metadata.names import INTERNAL, check_name
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request

if TYPE_CHECKING:
    Described = m.MetadataResponse.MetadataResponseTopic


NO_ID: Final = bytes(16)


class TopicMetadata:
    __slots__ = ("_brokers", "_cluster_id", "_creates", "_described", "_loader")

    def __init__(self, loader: Loader, cluster_id: str, creates: Creates | None) -> None:
        """`creates` makes topics that clients ask for; None where that is not wanted."""
        self._loader = loader
        self._cluster_id = cluster_id
        self._creates = creates
        self._brokers: Mapping[int, Broker] = {}
        self._described: dict[tuple[bytes, str, int], tuple[Topic, Described]] = {}

    def handle(
        self, connection: Connection, request: Request
    ) -> m.MetadataResponse | Coroutine[Any, Any, m.MetadataResponse]:
        body: m.MetadataRequest = request.body
        if body.topics is None or (request.version == 0 and not body.topics):
            return self._respond(connection, request, list(self._loader.image.topics.values()), [])
        if request.version < 12 and any(asked.name is None or asked.topic_id != NO_ID for asked in body.topics):
            return self._refuse(request, body.topics)
        missing = self._missing(body) if self._creates is not None and body.allow_auto_topic_creation else []
        if missing and self._creates is not None:
            return self._create_first(connection, request, missing, self._creates)
        return self._respond_to_asked(connection, request, {})

    def _missing(self, body: m.MetadataRequest) -> list[str]:
        """The valid names that there are no topics of. Who asks by id never has any created."""
        known = self._loader.image.topic_ids
        assert body.topics is not None
        if any(asked.topic_id != NO_ID for asked in body.topics):
            return []
        names = (asked.name for asked in body.topics if asked.name is not None and asked.name not in known)
        return [name for name in dict.fromkeys(names) if name_error(name) is Error.NONE]

    async def _create_first(
        self, connection: Connection, request: Request, names: Sequence[str], creates: Creates
    ) -> m.MetadataResponse:
        response = self._respond_to_asked(connection, request, await creates.create_missing(names))
        return response if isinstance(response, m.MetadataResponse) else await response

    def _respond_to_asked(
        self, connection: Connection, request: Request, failed: Mapping[str, Error]
    ) -> m.MetadataResponse | Coroutine[Any, Any, m.MetadataResponse]:
        body: m.MetadataRequest = request.body
        assert body.topics is not None
        found: dict[bytes, Topic] = {}
        others: dict[str | bytes, Described] = {}
        return in_steps(
            self._look_for(body.topics, failed, found, others),
            len(body.topics),
            lambda _: self._respond(connection, request, list(found.values()), list(others.values())),
        )

    def _look_for(
        self,
        topics: Sequence[m.MetadataRequest.MetadataRequestTopic],
        failed: Mapping[str, Error],
        found: dict[bytes, Topic],
        others: dict[str | bytes, Described],
    ) -> Iterator[None]:
        """One of them in each step."""
        image = self._loader.image
        by_id = any(asked.topic_id != NO_ID for asked in topics)
        for asked in topics:
            if by_id:
                topic = image.topics.get(asked.topic_id)
                if topic is None and asked.topic_id != NO_ID:
                    others[asked.topic_id] = m.MetadataResponse.MetadataResponseTopic(
                        error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
                    )
            else:
                name = asked.name or ""
                topic = image.topic(name)
                if topic is None:
                    error = failed.get(name) or name_error(name) or Error.UNKNOWN_TOPIC_OR_PARTITION
                    others[name] = m.MetadataResponse.MetadataResponseTopic(
                        error_code=error, name=name, is_internal=name in INTERNAL
                    )
            if topic is not None:
                found[topic.id] = topic
            yield

    def _respond(
        self, connection: Connection, request: Request, topics: Sequence[Topic], others: list[Described]
    ) -> m.MetadataResponse:
        body: m.MetadataRequest = request.body
        image, listener = self._loader.image, connection.listener.name
        if image.brokers is not self._brokers:
            self._brokers = image.brokers
            self._described.clear()
        elif len(self._described) > 4 * len(image.topics) + 64:  # of topics that are gone
            self._described.clear()
        described = [self._describe(image, topic, listener, request.version) for topic in topics]
        if body.include_topic_authorized_operations:
            described = [
                m.MetadataResponse.MetadataResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    is_internal=topic.is_internal,
                    partitions=topic.partitions,
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
                for topic in described
            ]
            for other in others:
                if other.name is not None:
                    other.topic_authorized_operations = TOPIC_OPERATIONS
        response = m.MetadataResponse(
            cluster_id=self._cluster_id,
            controller_id=any_active_broker(image, request.correlation_id),
            topics=described + others,
        )
        for broker in image.brokers.values():
            endpoint = None if broker.is_fenced else broker.endpoint(listener)
            if endpoint is not None:
                response.brokers.append(
                    m.MetadataResponse.MetadataResponseBroker(
                        node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                    )
                )
        if not response.brokers:
            close_as_nobody_serves(connection)
        if body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    def _describe(self, image: Image, topic: Topic, listener: str, version: int) -> Described:
        kind = 0 if version == 0 else 1 if version < 6 else 6
        kept = self._described.get((topic.id, listener, kind))
        if kept is not None and kept[0] is topic:
            return kept[1]
        described = m.MetadataResponse.MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL,
            partitions=[
                partition_view(image.brokers, index, partition, listener, kind)
                for index, partition in topic.partitions.items()
            ],
        )
        self._described[topic.id, listener, kind] = topic, described
        return described

    def _refuse(self, request: Request, topics: Sequence[m.MetadataRequest.MetadataRequestTopic]) -> m.MetadataResponse:
        """Ids, or topics without a name, before the version that knows what they mean."""
        return m.MetadataResponse(
            cluster_id=self._cluster_id,
            topics=[
                m.MetadataResponse.MetadataResponseTopic(
                    error_code=Error.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
                )
                for asked in topics
            ],
        )


def name_error(name: str) -> Error:
    """Why no topic can be called so."""
    try:
        check_name(name)
    except Refused as refused:
        return refused.error
    return Error.NONE


def partition_view(
    brokers: Mapping[int, Broker], index: int, partition: Partition, listener: str, kind: int = 6
) -> m.MetadataResponse.MetadataResponsePartition:
    """A partition as the clients of a listener see it."""
    replicas, isr = list(partition.replicas), list(partition.isr)
    reached = {broker_id: _is_reached(brokers, broker_id, listener) for broker_id in (*replicas, partition.leader)}
    offline = [broker_id for broker_id in replicas if not reached[broker_id]]
    error, leader = Error.NONE, partition.leader
    if not reached[leader]:
        is_known = leader in brokers and not brokers[leader].is_fenced
        error = Error.LISTENER_NOT_FOUND if is_known and kind >= 6 else Error.LEADER_NOT_AVAILABLE
        leader = -1
    elif kind == 0 and offline:
        error = Error.REPLICA_NOT_AVAILABLE
    if kind == 0:  # the first version left out who can't be reached
        replicas = [broker_id for broker_id in replicas if reached[broker_id]]
        isr = [broker_id for broker_id in isr if reached.get(broker_id)]
    return m.MetadataResponse.MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def _is_reached(brokers: Mapping[int, Broker], broker_id: int, listener: str) -> bool:
    broker = brokers.get(broker_id)
    return broker is not None and not broker.is_fenced and broker.endpoint(listener) is not None
