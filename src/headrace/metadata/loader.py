"""Replays committed records into images, and tells subscribers what changed.

Records between a begin and an end of a metadata transaction (KIP-868) apply as one; those before an abort do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from headrace.metadata.delta import Delta, MetadataDamaged
from headrace.metadata.image import Image
from headrace.protocol.message import Message

Subscriber: TypeAlias = Callable[[Delta, Image], None]
"""Called with what changed and the image after it, once for each committed batch of records, in order."""


class Loader:
    """Holds the newest image. Subscribers that come late are told of everything that there is."""

    def __init__(self) -> None:
        self.image = Image()
        self._subscribers: list[Subscriber] = []
        self._transaction: list[Message] | None = None

    @property
    def is_in_transaction(self) -> bool:
        """Records wait for the end of a metadata transaction: the image is behind its offset."""
        return self._transaction is not None

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)
        if self.image.offset >= 0:
            subscriber(everything_in(self.image), self.image)

    def apply(self, records: Iterable[Message], last_offset: int, epoch: int) -> Image:
        """A committed batch of records, the last of which has this offset."""
        delta = Delta(self.image)
        for record in records:
            self._take(delta, record)
        return self._publish(delta, last_offset, epoch)

    def load(self, records: Iterable[Message], last_offset: int, epoch: int) -> Image:
        """A snapshot, in place of everything before. Subscribers are told of what is different from then."""
        delta = Delta(Image())
        for record in records:
            delta.replay(record)
        self._transaction = None
        image = delta.image(last_offset, epoch)
        before, self.image = self.image, image
        change = difference(before, image)
        for subscriber in self._subscribers:
            subscriber(change, image)
        return image

    def _take(self, delta: Delta, record: Message) -> None:
        kind = record.shape.name
        if kind == "BeginTransactionRecord":
            if self._transaction is not None:
                raise MetadataDamaged("The metadata log begins a transaction inside another one.")
            self._transaction = []
        elif kind in ("EndTransactionRecord", "AbortTransactionRecord"):
            if self._transaction is None:
                raise MetadataDamaged("The metadata log ends a transaction that it did not begin.")
            held, self._transaction = self._transaction, None
            if kind == "EndTransactionRecord":
                for item in held:
                    delta.replay(item)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            delta.replay(record)

    def _publish(self, delta: Delta, last_offset: int, epoch: int) -> Image:
        self.image = delta.image(last_offset, epoch)
        for subscriber in self._subscribers:
            subscriber(delta, self.image)
        return self.image


def everything_in(image: Image) -> Delta:
    return difference(Image(), image)


def difference(before: Image, after: Image) -> Delta:
    """What a subscriber that knows one image must look at to know the other."""
    delta = Delta(after)
    for broker_id in {**before.brokers, **after.brokers}:
        if before.brokers.get(broker_id) != after.brokers.get(broker_id):
            delta.changed_brokers[broker_id] = None
    for topic_id, topic in before.topics.items():
        if topic_id not in after.topics:
            delta.removed_topics[topic_id] = topic
    for topic_id, topic in after.topics.items():
        known = before.topics.get(topic_id)
        if known is topic:
            continue
        old = {} if known is None else known.partitions
        changed = {index: None for index, partition in topic.partitions.items() if old.get(index) != partition}
        if changed or known is None:
            delta.changed_topics[topic_id] = changed
    for resource in {**before.configs, **after.configs}:
        if before.configs.get(resource) != after.configs.get(resource):
            delta.changed_configs[resource] = None
    for name in {**before.features, **after.features}:
        if before.features.get(name) != after.features.get(name):
            delta.changed_features[name] = None
    return delta
