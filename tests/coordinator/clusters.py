"""Clusters for tests of groups: topics that come, grow and go."""

from __future__ import annotations

from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol import messages as m


class ToyCluster:
    """An image, and the records that change it. Topic ids follow from the names, so that they sort alike."""

    def __init__(self, racks: dict[int, str] | None = None) -> None:
        self.image = Image()
        self._offset = 0
        delta = Delta(self.image)
        for name, level in (("metadata.version", 29), ("group.version", 1)):
            delta.replay(m.FeatureLevelRecord(name=name, feature_level=level))
        for broker, rack in (racks or {0: ""}).items():
            delta.replay(m.RegisterBrokerRecord(broker_id=broker, broker_epoch=1, rack=rack or None, fenced=False))
        self._done(delta)

    def topic(self, name: str, partitions: int, replicas: list[int] | None = None) -> Delta:
        """Created, or grown."""
        delta = Delta(self.image)
        topic = self.image.topic(name)
        if topic is None:
            delta.replay(m.TopicRecord(name=name, topic_id=topic_id(name)))
        for index in range(0 if topic is None else len(topic.partitions), partitions):
            at = [0] if replicas is None else [replicas[index % len(replicas)]]
            delta.replay(
                m.PartitionRecord(topic_id=topic_id(name), partition_id=index, replicas=at, isr=at, leader=at[0])
            )
        return self._done(delta)

    def new_leader(self, name: str) -> Delta:
        delta = Delta(self.image)
        delta.replay(m.PartitionChangeRecord(topic_id=topic_id(name), partition_id=0, leader=0))
        return self._done(delta)

    def delete(self, name: str) -> Delta:
        delta = Delta(self.image)
        delta.replay(m.RemoveTopicRecord(topic_id=topic_id(name)))
        return self._done(delta)

    def configure(self, group_id: str, name: str, value: str | None) -> Delta:
        delta = Delta(self.image)
        delta.replay(m.ConfigRecord(resource_type=32, resource_name=group_id, name=name, value=value))
        return self._done(delta)

    def limit_records(self, bytes_max: int) -> Delta:
        """Of the topic that groups are kept in."""
        delta = Delta(self.image)
        delta.replay(
            m.ConfigRecord(
                resource_type=2,
                resource_name="__consumer_offsets",
                name="max.message.bytes",
                value=str(bytes_max),
            )
        )
        return self._done(delta)

    def feature(self, name: str, level: int) -> Delta:
        delta = Delta(self.image)
        delta.replay(m.FeatureLevelRecord(name=name, feature_level=level))
        return self._done(delta)

    def _done(self, delta: Delta) -> Delta:
        self._offset += 1
        self.image = delta.image(self._offset, 1)
        return delta


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")[:16]
