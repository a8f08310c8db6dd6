"""What a group knows of the topics that it subscribes to: their ids, their partitions, and where these are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from headrace.coordinator.groups.consumer.assignors.spec import Racks, TopicSpec
from headrace.metadata.image import Image, Topic

INT64_RANGE = 1 << 64
INT64_MAX = (1 << 63) - 1
NOWHERE: Racks = frozenset()


class Topics:
    """The topics of the cluster, as assignors see them; `version` grows when something that they look at changed."""

    __slots__ = ("_hashes", "_racks", "_specs", "image", "version")

    def __init__(self) -> None:
        self.image = Image()
        self.version = 0
        self._hashes: dict[tuple[bytes, bool], tuple[Topic, int]] = {}
        self._specs: dict[tuple[bytes, bool], tuple[Topic, TopicSpec]] = {}
        self._racks: dict[tuple[str, ...], Racks] = {}

    def reset(self, image: Image) -> None:
        self.image = image
        self.version += 1
        self._hashes.clear()
        self._specs.clear()

    def change(self, image: Image, changed: Iterable[bytes], *, are_racks_changed: bool) -> tuple[list[str], list[str]]:
        """What came and what went, by name. A change of leaders or of in-sync replicas is none."""
        before, self.image = self.image, image
        came: list[str] = []
        went: list[str] = []
        is_changed = are_racks_changed
        for topic_id in changed:
            old, new = before.topics.get(topic_id), image.topics.get(topic_id)
            if old is None and new is not None:
                came.append(new.name)
            elif old is not None and new is None:
                went.append(old.name)
            elif old is not None and new is not None and not is_changed:
                is_changed = _is_changed(old, new)
            if old is not None:
                for with_racks in (False, True):
                    self._hashes.pop((topic_id, with_racks), None)
                    self._specs.pop((topic_id, with_racks), None)
        if are_racks_changed:
            self._hashes.clear()
            self._specs.clear()
        if is_changed or came or went:
            self.version += 1
        return came, went

    def ids(self, names: Iterable[str]) -> tuple[bytes, ...]:
        """Of those that exist, ascending."""
        ids = self.image.topic_ids
        return tuple(sorted([ids[name] for name in names if name in ids]))

    def spec(self, topic_id: bytes, *, with_racks: bool) -> TopicSpec:
        topic = self.image.topics[topic_id]
        known = self._specs.get((topic_id, with_racks))
        if known is not None and known[0].partitions is topic.partitions:
            return known[1]
        count = len(topic.partitions)
        racks = tuple(self._racks_of(topic, partition) for partition in range(count)) if with_racks else ()
        spec = TopicSpec(count, racks)
        self._specs[topic_id, with_racks] = (topic, spec)
        return spec

    def hash(self, names: Iterable[str], *, with_racks: bool) -> int:
        """Changes when one of these topics comes, goes, grows or, where racks matter, moves (64 bits, signed)."""
        total = 0
        for topic_id in self.ids(names):
            total = (total * 31 + self._hash(topic_id, with_racks)) % INT64_RANGE
        return total - INT64_RANGE if total > INT64_MAX else total

    def _hash(self, topic_id: bytes, with_racks: bool) -> int:
        topic = self.image.topics[topic_id]
        known = self._hashes.get((topic_id, with_racks))
        if known is not None and known[0].partitions is topic.partitions:
            return known[1]
        spec = self.spec(topic_id, with_racks=with_racks)
        digest = blake2b(topic_id, digest_size=8)
        digest.update(topic.name.encode())
        digest.update(spec.partition_count.to_bytes(4))
        for racks in spec.racks:
            digest.update("\0".join(sorted(racks)).encode() + b"\n")
        made = int.from_bytes(digest.digest())
        self._hashes[topic_id, with_racks] = (topic, made)
        return made

    def _racks_of(self, topic: Topic, partition: int) -> Racks:
        found = topic.partitions.get(partition)
        if found is None:
            return NOWHERE
        brokers = self.image.brokers
        racks = [brokers[replica].rack for replica in found.replicas if replica in brokers]
        key = tuple([rack for rack in racks if rack])
        known = self._racks.get(key)
        if known is None:
            known = self._racks[key] = frozenset(key)
        return known


def _is_changed(old: Topic, new: Topic) -> bool:
    if old.partitions is new.partitions:
        return False
    if len(old.partitions) != len(new.partitions):
        return True
    return any(partition.replicas != old.partitions[index].replicas for index, partition in new.partitions.items())


def broker_racks(image: Image) -> Mapping[int, str | None]:
    return {broker_id: broker.rack for broker_id, broker in image.brokers.items()}
