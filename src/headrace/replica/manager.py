"""The partitions that this node hosts, as the metadata image says.

What the image adds is made in small steps, or at once when somebody asks for it. What it takes away is deleted. What is
on the disk at the start, and not in the image, was deleted while the node was down, or is of a topic of the same name
that is no more (hazard 9): it is set aside, and the operator is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from headrace.errors import Error, HeadraceError, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.image import UNASSIGNED_DIRECTORY, Image, ResourceType
from headrace.metadata.image import Partition as PartitionState
from headrace.metrics.traffic import TopicTraffic
from headrace.replica.partition import Partition
from headrace.replica.removals import Removals
from headrace.replica.topic_settings import TopicSettings
from headrace.replica.waits import Waits
from headrace.storage.cleaner import Cleaner
from headrace.storage.directories import Directories
from headrace.storage.disk import DiskError
from headrace.storage.log import Log
from headrace.storage.log_directory import LogDirectory

logger = logging.getLogger(__name__)

MADE_A_STEP: Final = 16
"""Partitions that are made before the loop gets its turn, at some 300 µs each."""
AGAIN_AFTER_MS: Final = 1000
"""A partition that could not be made, or a flush that came to nothing, is tried again after this."""


class Replicas:
    """Subscribe `apply` to the loader, after `Directories.open`."""

    __slots__ = (
        "_by_id",
        "_call_soon",
        "_failed",
        "_flushing_soon",
        "_held_flushes",
        "_is_known",
        "_is_making",
        "_is_to_try_again",
        "_missing",
        "_partitions",
        "_removals",
        "_settings",
        "_told",
        "cleaner",
        "directories",
        "image",
        "is_stopped",
        "node_id",
        "now_ms",
        "on_offline",
        "on_placed",
        "traffic",
        "waits",
    )

    def __init__(
        self,
        node_id: int,
        directories: Directories,
        settings: TopicSettings,
        waits: Waits,
        *,
        now_ms: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        cleaner: Cleaner | None = None,
    ) -> None:
        """`settings` are those that the directories were opened with. `call_soon` is the loop's."""
        self.node_id = node_id
        self.directories = directories
        self.waits = waits
        self.now_ms = now_ms
        self.image = Image()
        self.cleaner = cleaner
        self.on_offline: Callable[[LogDirectory], None] = lambda directory: None
        """Called when a directory went offline, after all that waited for it has been told."""
        self.on_placed: Callable[[Partition], None] = lambda partition: None
        """Called when a partition is in a directory, in which it was found, made or moved to."""
        self._settings = settings
        self._call_soon = call_soon
        self._removals = Removals(directories, call_soon)
        self.traffic: dict[bytes, TopicTraffic] = {}
        """By topic id, of those that the node hosts a partition of."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._missing: dict[tuple[bytes, int], bool] = {}
        """What the image has for this node and nobody has made yet, and whether it had it before this start."""
        self._failed: dict[tuple[bytes, int], HeadraceError] = {}
        """Those of them that could not be made when it was last tried, and why."""
        self._told: dict[tuple[bytes, int], HeadraceError] = {}
        """Those that could not be made the time before, so that the operator knows."""
        self._is_making = False
        self._is_to_try_again = False
        self._flushing_soon: dict[Partition, None] = {}
        self._held_flushes: dict[Partition, bool] = {}
        """Partitions that are not flushed for a moment, and whether somebody wants it; see `hold_flushes`."""
        self._is_known = False
        self.is_stopped = False
        directories.on_offline = self._directory_offline

    # ---------------------------------------------------------------------------------------------------------- finding

    def find(self, topic: str, index: int) -> Partition:
        """A partition that this node hosts. Raises Refused."""
        found = self._partitions.get((topic, index))
        return found if found is not None else self._look_for(self.image.topic_ids.get(topic), index, topic)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition:
        found = self._by_id.get((topic_id, index))
        return found if found is not None else self._look_for(topic_id, index)

    def hosted(self) -> Iterator[Partition]:
        """All that there are so far, in the order in which they came."""
        yield from self._by_id.values()

    def traffic_of(self, topic: str, topic_id: bytes) -> TopicTraffic | None:
        """Of a topic by its id, or by its name where it has no id; None when the node hosts nothing of it."""
        found = self.traffic.get(topic_id)
        return self.traffic.get(self.image.topic_ids.get(topic, b"")) if found is None else found

    @property
    def unmade_count(self) -> int:
        """Partitions that could neither be opened nor made."""
        found = {key for directory in self.directories.all for key in directory.offline_logs}
        topics = self.image.topics
        found |= {(topics[topic_id].name, index) for topic_id, index in self._failed if topic_id in topics}
        return len(found)

    def _look_for(self, topic_id: bytes | None, index: int, name: str | None = None) -> Partition:
        topic = self.image.topics.get(topic_id) if topic_id is not None else None
        if topic is None or topic_id is None:
            if name is None:
                raise Refused(Error.UNKNOWN_TOPIC_ID, "There is no topic of this id.")
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
        state = topic.partitions.get(index)
        if state is None:
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name} has no partition {index}.")
        if self.node_id not in state.replicas:
            raise Refused(
                Error.NOT_LEADER_OR_FOLLOWER,
                f"Broker {self.node_id} does not host {topic.name}-{index}; refresh metadata.",
            )
        return self._make(topic_id, index)

    # ---------------------------------------------------------------------------------------------- following the image

    def apply(self, delta: Delta, image: Image) -> None:
        """The loader's subscriber."""
        self.image = image
        for _, name in (found for found in delta.changed_configs if found[0] == ResourceType.TOPIC):
            self._settings.changed(name, image)
        is_first, self._is_known = not self._is_known, True
        if is_first:
            self._set_strangers_aside(image)
        for topic_id, topic in delta.removed_topics.items():
            for index in topic.partitions:
                self._drop(topic_id, topic.name, index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            self.traffic.pop(topic_id, None)
        for topic_id, changed in delta.changed_topics.items():
            topic = image.topics[topic_id]
            for index in changed:
                self._apply_one(topic_id, index, topic.partitions[index], is_old=is_first)
        for kind, name in delta.changed_configs:
            if kind == ResourceType.TOPIC and name in image.topic_ids:
                self._configure(name)
        if self._missing:
            self._make_soon()

    def _apply_one(self, topic_id: bytes, index: int, state: PartitionState, *, is_old: bool) -> None:
        key = (topic_id, index)
        if self.node_id not in state.replicas:
            self._drop(topic_id, self.image.topics[topic_id].name, index, Error.NOT_LEADER_OR_FOLLOWER)
        elif (partition := self._by_id.get(key)) is not None:
            partition.apply(state, self.node_id)
        elif (
            log := self.directories.log(self.image.topics[topic_id].name, index)
        ) is not None and log.topic_id == topic_id:
            self._host(topic_id, log, state)
        else:
            self._missing.setdefault(key, is_old)

    def _configure(self, name: str) -> None:
        config = self._settings.of(name)
        for index in self.image.topics[self.image.topic_ids[name]].partitions:
            partition = self._partitions.get((name, index))
            if partition is not None and partition.log.config is not config:
                self._set_config(partition.log)
                partition.configured()

    def configure_all(self) -> None:
        """The broker's settings have changed, and with them those of all topics that leave them open."""
        for partition in self._by_id.values():
            if partition.log.config is not self._settings.of(partition.topic):
                self._set_config(partition.log)
                partition.configured()

    def _set_config(self, log: Log) -> None:
        log.configure(self._settings.of(log.topic))
        if self.cleaner is not None:
            self.cleaner.retry(log)

    def _set_strangers_aside(self, image: Image) -> None:
        """What is here and not ours. Kafka keeps the files too: the image may be the one that is wrong."""
        for log in list(self.directories.logs()):
            if self.directories.log(log.topic, log.partition) is not log:
                continue
            topic = image.topic(log.topic)
            state = None if topic is None or topic.id != log.topic_id else topic.partitions.get(log.partition)
            if state is None or self.node_id not in state.replicas:
                self._set_aside(log)

    def _set_aside(self, log: Log) -> None:
        try:
            self.directories.set_aside(log.topic, log.partition)
        except DiskError as error:
            logger.error("%s-%d can't be set aside: %s", log.topic, log.partition, error)

    # ---------------------------------------------------------------------------------------------- making and dropping

    def _host(self, topic_id: bytes, log: Log, state: PartitionState) -> Partition:
        if log.config is not self._settings.of(log.topic):
            self._set_config(log)
        partition = Partition(log.topic, topic_id, log.partition, log, self)
        partition.traffic = self.traffic.setdefault(topic_id, partition.traffic)
        self._by_id[topic_id, log.partition] = partition
        self._partitions[log.topic, log.partition] = partition
        partition.apply(state, self.node_id)
        self.on_placed(partition)
        return partition

    def _make(self, topic_id: bytes, index: int) -> Partition:
        """A partition that is new, in the directory that the image says. Raises Refused."""
        key = (topic_id, index)
        topic = self.image.topics[topic_id]
        state = topic.partitions[index]
        directory_id = state.directory(self.node_id)
        self._removals.finish(topic.name, index)
        try:
            if self.directories.directory_of(topic.name, index) is not None:
                raise Refused(Error.KAFKA_STORAGE_ERROR, f"A folder of another topic is in the way of {topic.name}.")
            if self._missing.get(key) and directory_id == UNASSIGNED_DIRECTORY:
                self._require_all_directories(topic.name, index)
            log = self.directories.create(
                topic.name, index, topic_id, None if directory_id == UNASSIGNED_DIRECTORY else directory_id
            )
        except Refused as refused:
            # Of what is here and offline the operator was told at the start.
            is_told = self.directories.why_offline(topic.name, index) is not None
            if not is_told and key not in self._failed and key not in self._told:
                logger.error("%s-%d can't be made: %s", topic.name, index, refused)
            self._failed[key] = refused
            raise
        self._missing.pop(key, None)
        self._failed.pop(key, None)
        return self._host(topic_id, log, state)

    def reopened(self, log: Log) -> None:
        """A log that was here and offline can be used now. If nobody wants it any more, it is set aside."""
        topic = self.image.topic(log.topic)
        state = None if topic is None or topic.id != log.topic_id else topic.partitions.get(log.partition)
        if topic is None or state is None or self.node_id not in state.replicas:
            self._set_aside(log)
            return
        self._missing.pop((topic.id, log.partition), None)
        self._failed.pop((topic.id, log.partition), None)
        self._host(topic.id, log, state)

    def _require_all_directories(self, topic: str, index: int) -> None:
        """What is not here may be in a directory that is not online, and an empty log would take its place."""
        directories = self.directories
        roots = [*directories.failed, *(found.root for found in directories.all if found.offline is not None)]
        if roots:
            raise Refused(
                Error.KAFKA_STORAGE_ERROR,
                f"{topic}-{index} may be in {' or '.join(roots)}, which is offline; mend that, then restart the node.",
            )

    def _make_soon(self) -> None:
        if not self._is_making:
            self._is_making = True
            self._call_soon(self._make_some)

    def _make_some(self) -> None:
        """One step of many. What can't be made, on a full disk say, is tried again after a while."""
        self._is_making = False
        if self.is_stopped:
            return
        to_make = list(islice((key for key in self._missing if key not in self._failed), MADE_A_STEP + 1))
        for topic_id, index in to_make[:MADE_A_STEP]:
            with suppress(Refused):
                self._make(topic_id, index)
        if len(to_make) > MADE_A_STEP:
            self._make_soon()
        elif self._failed and not self._is_to_try_again:
            self._is_to_try_again = True
            self.waits.after_ms(AGAIN_AFTER_MS, self._try_again)

    def _try_again(self) -> None:
        self._is_to_try_again = False
        self._told, self._failed = self._failed, {}
        self._make_soon()

    def _drop(self, topic_id: bytes, topic: str, index: int, error: Error) -> None:
        key = (topic_id, index)
        self._missing.pop(key, None)
        self._failed.pop(key, None)
        partition = self._by_id.pop(key, None)
        if partition is None:
            if self.directories.why_offline(topic, index) is not None:
                self.directories.give_up(topic, index, topic_id)
            return
        self._partitions.pop((partition.topic, index), None)
        self._flushing_soon.pop(partition, None)
        self._held_flushes.pop(partition, None)
        if self.cleaner is not None:
            self.cleaner.forget(partition.log)
        self._removals.add(partition)
        partition.close(error)

    # ----------------------------------------------------------------------------------------------------------- moving

    def moved(self, partition: Partition, log: Log) -> None:
        """The log of a partition is another one now, in another directory."""
        if self.cleaner is not None:
            self.cleaner.forget(partition.log)
        if log.config is not self._settings.of(log.topic):
            self._set_config(log)
        partition.moved(log)
        self.on_placed(partition)

    def hosts(self, partition: Partition) -> bool:
        return self._by_id.get((partition.topic_id, partition.index)) is partition

    # --------------------------------------------------------------------------------------------------------- flushing

    def flush_soon(self, partition: Partition) -> None:
        """At the end of this round, so that all appends of it share one flush."""
        if not self._flushing_soon:
            self._call_soon(self._flush)
        self._flushing_soon[partition] = None

    def flush_now(self) -> None:
        """For who appends at the end of the round, or much at once: what was to be flushed then is not to wait."""
        if self._flushing_soon:
            self._flush()
        for directory in self.directories.all:
            directory.begin_flushes()

    def hold_flushes(self, partition: Partition) -> None:
        """Until `release_flushes`, appends go on and what must be on the disk waits: a copy is about to have it all."""
        self._held_flushes.setdefault(partition, False)

    def release_flushes(self, partition: Partition) -> None:
        if self._held_flushes.pop(partition, False):
            self.flush_soon(partition)

    def flush_again(self, partition: Partition) -> None:
        self.waits.after_ms(AGAIN_AFTER_MS, lambda: self._flush_again(partition))

    def _flush_again(self, partition: Partition) -> None:
        if self.hosts(partition) and partition.offline is None:
            self.flush_soon(partition)

    def _flush(self) -> None:
        now_ms = self.now_ms()
        partitions, self._flushing_soon = self._flushing_soon, {}
        held = self._held_flushes
        for partition in partitions:
            if held and partition in held:
                held[partition] = True
            else:
                partition.flush(now_ms)

    # ----------------------------------------------------------------------------------------------------------- ending

    def _directory_offline(self, directory: LogDirectory) -> None:
        for partition in list(self._by_id.values()):
            if partition.log.place.disk is directory.disk:
                partition.went_offline()
        self.on_offline(directory)

    def stop(self) -> None:
        """Begins nothing any more. Whoever waits is told to ask another broker."""
        self.is_stopped = True
        self._removals.finish_all()
        if self.cleaner is not None:
            self.cleaner.stop()
        for partition in self._by_id.values():
            partition.close(Error.NOT_LEADER_OR_FOLLOWER)
