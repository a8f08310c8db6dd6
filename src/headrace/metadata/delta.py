"""Records on their way into the next image, and what they changed: the one place that knows what a record means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.metadata.image import (
    UNASSIGNED_DIRECTORY,
    Broker,
    ControllerNode,
    Endpoint,
    Image,
    Partition,
    QuotaEntity,
    ResourceType,
    Topic,
)
from headrace.plain import replace
from headrace.protocol import messages as m
from headrace.protocol.message import Message

NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1


class MetadataDamaged(HeadraceError):
    """The metadata log holds a record that can't be: it names what is not there. The node can't go on from it."""


class Delta:
    """Takes records one by one; `image` is what they make of the image before. What changed is for subscribers.

    The dictionaries of changes are ordered by the records, and hold None or what was removed.
    """

    def __init__(self, image: Image) -> None:
        self.before = image
        self.changed_brokers: dict[int, None] = {}
        self.changed_topics: dict[bytes, dict[int, None]] = {}
        """The partitions that changed, by topic."""
        self.removed_topics: dict[bytes, Topic] = {}
        self.changed_configs: dict[tuple[int, str], None] = {}
        self.changed_features: dict[str, None] = {}
        self._copies: dict[str, Any] = {}
        self._partitions: dict[bytes, dict[int, Partition]] = {}
        self._next_producer_id = image.next_producer_id

    def replay(self, record: Message) -> None:
        try:
            _REPLAY[record.shape.name](self, record)
        except KeyError as missing:
            if record.shape.name not in _REPLAY:
                raise MetadataDamaged(f"{record.shape.name} is not a record of the metadata log.") from None
            raise MetadataDamaged(
                f"The metadata log has {record!r}, which names {missing}, and that is not there."
            ) from missing

    def image(self, offset: int, epoch: int) -> Image:
        """The image after the records, the last of which is at this offset and epoch."""
        topics = self._copies.get("topics")
        for topic_id, partitions in self._partitions.items():
            assert topics is not None
            topics[topic_id] = replace(topics[topic_id], partitions=partitions)
        changed = {name: copy for name, copy in self._copies.items() if copy is not getattr(self.before, name)}
        made = replace(self.before, offset=offset, epoch=epoch, next_producer_id=self._next_producer_id, **changed)
        # What was handed out must not change any more; records that follow start from copies again.
        self.before, self._copies, self._partitions = made, {}, {}
        return made

    # --- copies on the first write ------------------------------------------------------------------------------------

    def _own(self, name: str) -> dict[Any, Any]:
        if name not in self._copies:
            self._copies[name] = dict(getattr(self.before, name))
        found: dict[Any, Any] = self._copies[name]
        return found

    def _own_partitions(self, topic_id: bytes) -> dict[int, Partition]:
        topics = self._own("topics")
        if topic_id not in self._partitions:
            self._partitions[topic_id] = dict(topics[topic_id].partitions)
        return self._partitions[topic_id]

    # --- brokers and controllers --------------------------------------------------------------------------------------

    def _register_broker(self, record: m.RegisterBrokerRecord) -> None:
        self._own("brokers")[record.broker_id] = Broker(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            is_fenced=record.fenced,
            is_shutting_down=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
        )
        self.changed_brokers[record.broker_id] = None

    def _unregister_broker(self, record: m.UnregisterBrokerRecord) -> None:
        self._check_epoch(record.broker_id, record.broker_epoch)
        del self._own("brokers")[record.broker_id]
        self.changed_brokers[record.broker_id] = None

    def _change_broker(self, record: m.BrokerRegistrationChangeRecord) -> None:
        broker = self._check_epoch(record.broker_id, record.broker_epoch)
        self._set_broker(
            replace(
                broker,
                is_fenced=broker.is_fenced if record.fenced == 0 else record.fenced > 0,
                is_shutting_down=broker.is_shutting_down or record.in_controlled_shutdown > 0,
                directories=tuple(record.log_dirs) or broker.directories,
            )
        )

    def _fence_broker(self, record: m.FenceBrokerRecord) -> None:
        self._set_broker(replace(self._check_epoch(record.id, record.epoch), is_fenced=True))

    def _unfence_broker(self, record: m.UnfenceBrokerRecord) -> None:
        self._set_broker(replace(self._check_epoch(record.id, record.epoch), is_fenced=False))

    def _set_broker(self, broker: Broker) -> None:
        self._own("brokers")[broker.id] = broker
        self.changed_brokers[broker.id] = None

    def _check_epoch(self, broker_id: int, epoch: int) -> Broker:
        broker: Broker = self._own("brokers")[broker_id]
        if broker.epoch != epoch:
            raise MetadataDamaged(
                f"The metadata log changes broker {broker_id} in epoch {epoch}, which is in epoch {broker.epoch}."
            )
        return broker

    def _register_controller(self, record: m.RegisterControllerRecord) -> None:
        self._own("controllers")[record.controller_id] = ControllerNode(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
        )

    # --- topics -------------------------------------------------------------------------------------------------------

    def _topic(self, record: m.TopicRecord) -> None:
        if record.name in self._own("topic_ids"):
            raise MetadataDamaged(f"The metadata log creates topic {record.name}, which exists.")
        self._own("topics")[record.topic_id] = Topic(record.name, record.topic_id, {})
        self._own("topic_ids")[record.name] = record.topic_id
        self.changed_topics.setdefault(record.topic_id, {})

    def _remove_topic(self, record: m.RemoveTopicRecord) -> None:
        removed: Topic = self._own("topics").pop(record.topic_id)
        self._partitions.pop(record.topic_id, None)
        del self._own("topic_ids")[removed.name]
        self.changed_topics.pop(record.topic_id, None)
        before = self.before.topics.get(record.topic_id)
        if before is not None:
            self.removed_topics[record.topic_id] = before
        if self._own("configs").pop((ResourceType.TOPIC, removed.name), None) is not None:
            self.changed_configs[ResourceType.TOPIC, removed.name] = None

    def _partition(self, record: m.PartitionRecord) -> None:
        self._own_partitions(record.topic_id)[record.partition_id] = Partition(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories) or (UNASSIGNED_DIRECTORY,) * len(record.replicas),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_leaders=tuple(record.last_known_elr or ()),
            is_recovering=record.leader_recovery_state > 0,
        )
        self.changed_topics.setdefault(record.topic_id, {})[record.partition_id] = None

    def _change_partition(self, record: m.PartitionChangeRecord) -> None:
        partitions = self._own_partitions(record.topic_id)
        partitions[record.partition_id] = changed_partition(partitions[record.partition_id], record)
        self.changed_topics.setdefault(record.topic_id, {})[record.partition_id] = None

    def _clear_elr(self, record: m.ClearElrRecord) -> None:
        ids = [self._own("topic_ids")[record.topic_name]] if record.topic_name else list(self._own("topics"))
        for topic_id in ids:
            partitions = self._own_partitions(topic_id)
            for index, partition in partitions.items():
                if partition.eligible_leader_replicas or partition.last_known_leaders:
                    partitions[index] = replace(partition, eligible_leader_replicas=(), last_known_leaders=())
                    self.changed_topics.setdefault(topic_id, {})[index] = None

    # --- settings, features, ids --------------------------------------------------------------------------------------

    def _config(self, record: m.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._own("configs")
        settings = dict(configs.get(resource, {}))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            configs[resource] = settings
        else:
            configs.pop(resource, None)
        self.changed_configs[resource] = None

    def _feature(self, record: m.FeatureLevelRecord) -> None:
        features = self._own("features")
        if record.feature_level:
            features[record.name] = record.feature_level
        else:
            features.pop(record.name, None)
        self.changed_features[record.name] = None

    def _producer_ids(self, record: m.ProducerIdsRecord) -> None:
        # Ids are never handed out twice (hazard 7): a block can only be behind the last one.
        if record.next_producer_id <= self._next_producer_id:
            raise MetadataDamaged(
                f"The metadata log hands out producer ids up to {record.next_producer_id} again; "
                f"it was at {self._next_producer_id}."
            )
        self._next_producer_id = record.next_producer_id

    def _quota(self, record: m.ClientQuotaRecord) -> None:
        entity: QuotaEntity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self._own("quotas")
        values = dict(quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            quotas[entity] = values
        else:
            quotas.pop(entity, None)

    # --- security -----------------------------------------------------------------------------------------------------

    def _credential(self, record: m.UserScramCredentialRecord) -> None:
        self._own("credentials")[record.name, record.mechanism] = record

    def _remove_credential(self, record: m.RemoveUserScramCredentialRecord) -> None:
        del self._own("credentials")[record.name, record.mechanism]

    def _acl(self, record: m.AccessControlEntryRecord) -> None:
        self._own("acls")[record.id] = record

    def _remove_acl(self, record: m.RemoveAccessControlEntryRecord) -> None:
        del self._own("acls")[record.id]

    def _token(self, record: m.DelegationTokenRecord) -> None:
        self._own("tokens")[record.token_id] = record

    def _remove_token(self, record: m.RemoveDelegationTokenRecord) -> None:
        del self._own("tokens")[record.token_id]

    def _nothing(self, record: Message) -> None:
        """A record that changes no state."""


def changed_partition(partition: Partition, record: m.PartitionChangeRecord) -> Partition:
    """A partition after a change. A new leader, the same one too, begins a new leader epoch."""
    replicas = partition.replicas if record.replicas is None else tuple(record.replicas)
    if record.directories is not None:
        directories = tuple(record.directories)
    elif record.replicas is None:
        directories = partition.directories
    else:
        directories = tuple(
            partition.directory(r) if r in partition.replicas else UNASSIGNED_DIRECTORY for r in replicas
        )
    has_leader_change = record.leader != NO_LEADER_CHANGE
    return Partition(
        replicas=replicas,
        isr=partition.isr if record.isr is None else tuple(record.isr),
        leader=record.leader if has_leader_change else partition.leader,
        leader_epoch=partition.leader_epoch + 1 if has_leader_change else partition.leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        directories=directories,
        removing_replicas=_or(record.removing_replicas, partition.removing_replicas),
        adding_replicas=_or(record.adding_replicas, partition.adding_replicas),
        eligible_leader_replicas=_or(record.eligible_leader_replicas, partition.eligible_leader_replicas),
        last_known_leaders=_or(record.last_known_elr, partition.last_known_leaders),
        is_recovering=partition.is_recovering
        if record.leader_recovery_state == NO_RECOVERY_CHANGE
        else record.leader_recovery_state > 0,
    )


def _or(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


_REPLAY: Final[dict[str, Callable[[Delta, Any], None]]] = {
    "RegisterBrokerRecord": Delta._register_broker,
    "UnregisterBrokerRecord": Delta._unregister_broker,
    "BrokerRegistrationChangeRecord": Delta._change_broker,
    "FenceBrokerRecord": Delta._fence_broker,
    "UnfenceBrokerRecord": Delta._unfence_broker,
    "RegisterControllerRecord": Delta._register_controller,
    "TopicRecord": Delta._topic,
    "RemoveTopicRecord": Delta._remove_topic,
    "PartitionRecord": Delta._partition,
    "PartitionChangeRecord": Delta._change_partition,
    "ClearElrRecord": Delta._clear_elr,
    "ConfigRecord": Delta._config,
    "FeatureLevelRecord": Delta._feature,
    "ProducerIdsRecord": Delta._producer_ids,
    "ClientQuotaRecord": Delta._quota,
    "UserScramCredentialRecord": Delta._credential,
    "RemoveUserScramCredentialRecord": Delta._remove_credential,
    "AccessControlEntryRecord": Delta._acl,
    "RemoveAccessControlEntryRecord": Delta._remove_acl,
    "DelegationTokenRecord": Delta._token,
    "RemoveDelegationTokenRecord": Delta._remove_token,
    "NoOpRecord": Delta._nothing,
}
