"""An image as records: what a snapshot holds, and what a node that is far behind is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from headrace.metadata.image import Broker, ControllerNode, Image, Partition, Topic
from headrace.protocol import messages as m
from headrace.protocol.message import Message

Versioned: TypeAlias = tuple[Message, int]
"""A record, and the version to write it in."""


def records_of(image: Image) -> Iterator[Versioned]:
    """Records that make this image out of nothing. What others refer to comes first."""
    for name, level in image.features.items():
        yield m.FeatureLevelRecord(name=name, feature_level=level), 0
    for controller in image.controllers.values():
        yield controller_record(controller), 0
    for broker in image.brokers.values():
        yield broker_record(broker), 3
    for topic in image.topics.values():
        yield from _topic(topic)
    for (kind, name), settings in image.configs.items():
        for key, value in settings.items():
            yield m.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value), 0
    if image.next_producer_id:
        yield m.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id), 0
    for entity, values in image.quotas.items():
        parts = [m.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, quota in values.items():
            yield m.ClientQuotaRecord(entity=parts, key=key, value=quota), 0
    kept: tuple[Mapping[object, Message], ...] = (image.credentials, image.acls, image.tokens)  # type: ignore[assignment]
    for table in kept:
        for record in table.values():
            yield record, 0


def partition_record(topic_id: bytes, index: int, partition: Partition) -> Versioned:
    """A partition as it is. Version 2 knows of eligible leaders; it is written only when there are some."""
    has_elr = bool(partition.eligible_leader_replicas or partition.last_known_leaders)
    record = m.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=int(partition.is_recovering),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) if has_elr else None,
        last_known_elr=list(partition.last_known_leaders) if has_elr else None,
    )
    return record, 2 if has_elr else 1


def _topic(topic: Topic) -> Iterator[Versioned]:
    yield m.TopicRecord(name=topic.name, topic_id=topic.id), 0
    for index, partition in topic.partitions.items():
        yield partition_record(topic.id, index, partition)


def broker_record(broker: Broker) -> m.RegisterBrokerRecord:
    record = m.RegisterBrokerRecord
    return record(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            record.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            record.BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
            for name, (least, most) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_shutting_down,
        log_dirs=list(broker.directories),
    )


def controller_record(controller: ControllerNode) -> m.RegisterControllerRecord:
    record = m.RegisterControllerRecord
    return record(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        end_points=[
            record.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints
        ],
        features=[
            record.ControllerFeature(name=name, min_supported_version=least, max_supported_version=most)
            for name, (least, most) in controller.features.items()
        ],
    )
