"""The metadata image: what the cluster is, at one offset of the metadata log.

An image never changes. Replaying records gives another one, which shares with the first all that they did not touch, so
whoever holds an image has a consistent view for as long as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.plain import field, plain, plain_frozen

if TYPE_CHECKING:
    from headrace.protocol.messages import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )

NO_LEADER: Final = -1
UNASSIGNED_DIRECTORY: Final = bytes(16)
LOST_DIRECTORY: Final = bytes(15) + b"\x01"
"""A replica whose directory failed (KIP-858)."""

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Type and name of each part, by type; a name of None is the default of its type."""


class ResourceType(IntEnum):
    """What settings belong to, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Resource: TypeAlias = tuple[int, str]
"""The type and the name of what has settings; the broker "" stands for all brokers."""


@plain_frozen
class Endpoint:
    """Where a listener of a node is reached."""

    name: str
    host: str
    port: int
    security_protocol: int


@plain_frozen
class Broker:
    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rack: str | None = None
    is_fenced: bool = True
    is_shutting_down: bool = False
    directories: tuple[bytes, ...] = ()

    @property
    def is_active(self) -> bool:
        """It may lead partitions, and clients are told of it."""
        return not self.is_fenced and not self.is_shutting_down

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


@plain_frozen
class ControllerNode:
    id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@plain
class Partition:
    """Not frozen, because there are many and a frozen one takes three times as long to make; nobody changes one."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    """Of each replica, in their order."""
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    """Not in sync any more, but they have all that was committed (KIP-966)."""
    last_known_leaders: tuple[int, ...] = ()
    is_recovering: bool = False
    """The leader was elected uncleanly and has not settled yet (KIP-704)."""

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    def directory(self, broker_id: int) -> bytes:
        return self.directories[self.replicas.index(broker_id)] if self.directories else UNASSIGNED_DIRECTORY


@plain_frozen
class Topic:
    name: str
    id: bytes
    partitions: Mapping[int, Partition]


@plain_frozen
class Image:
    """Everything that the metadata log says, up to and with the record at `offset`."""

    offset: int = -1
    epoch: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels; a feature that is not here is at level 0."""
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controllers: Mapping[int, ControllerNode] = field(default_factory=dict)
    topics: Mapping[bytes, Topic] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    configs: Mapping[Resource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    credentials: Mapping[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    acls: Mapping[bytes, AccessControlEntryRecord] = field(default_factory=dict)
    tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=dict)

    def topic(self, name: str) -> Topic | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: bytes, index: int) -> Partition | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def settings(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        """What is set of a resource itself, without defaults."""
        return self.configs.get((kind, name), {})
