"""The runtime of a state topic: its shards on this node, one for each partition that the node leads.

It follows the image: where this node is elected, a shard is loaded; where it resigns, or the topic goes, the shard
ends, and whoever waits is told to look for the coordinator again. It asks shards on behalf of handlers, by the key that
they have: a group id, a transactional id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic

from headrace.coordinator.shard import Effect, Operation, ProducerStamp, Reply, S, Timers
from headrace.coordinator.slices import Slices
from headrace.coordinator.state_topic import CONSUMER_OFFSETS, fits_key, partition_for, partitions_of
from headrace.errors import Error
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.loader import everything_in
from headrace.protocol.compression import Compression
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.storage.append import Appended
from headrace.storage.refusals import Refusals
from headrace.storage.workers import Workers

if TYPE_CHECKING:
    from headrace.coordinator.hosted import HostedShard

logger = logging.getLogger(__name__)

ASKED_AT_ONCE: Final = 200
"""Keys of one request, each of which takes some 10 microseconds."""


class Runtime(Generic[S]):
    """Subscribe `apply` to the loader, after that of the replicas."""

    __slots__ = (
        "_call_soon",
        "_hosted",
        "_is_current",
        "_is_registered",
        "_is_stopped",
        "_make",
        "_replicas",
        "_to_write",
        "_topic_id",
        "commit_timeout_ms",
        "compression",
        "effects",
        "image",
        "load_bytes",
        "now_ms",
        "partitions",
        "refusals",
        "slices",
        "topic",
        "waits",
        "workers",
    )

    def __init__(
        self,
        topic: str,
        make: Callable[[Timers, int], S],
        replicas: Replicas,
        workers: Workers,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        is_registered: Callable[[Image], bool],
        load_bytes: int = 1 << 20,
        commit_timeout_ms: int = 5000,
        compression: Compression = Compression.NONE,
    ) -> None:
        """`make` makes an empty shard for a leader epoch. `call_soon` is the loop's; the workers read logs.

        `is_registered` says whether an image knows of this life of the broker: before that, it may be an old one.
        """
        self.topic = topic
        self.refusals = Refusals()
        self.workers = workers
        self.waits = replicas.waits
        self.now_ms = replicas.now_ms
        self.slices = Slices(call_soon, replicas.waits.time)
        self.load_bytes = load_bytes
        self.commit_timeout_ms = commit_timeout_ms
        self.compression = compression
        self.image = Image()
        self.effects: dict[type[Any], Callable[[Any], None]] = {}
        """Who brings about the effects of a type. Called when everything decided before it is committed."""
        self._is_registered = is_registered
        self._is_current = False
        self._make = make
        self._replicas = replicas
        self._call_soon = call_soon
        self._hosted: dict[int, HostedShard] = {}
        self._to_write: list[HostedShard] = []
        self.partitions = 0
        """Of the state topic; 0 while it is not there."""
        self._topic_id = b""
        self._is_stopped = False

    # ----------------------------------------------------------------------------------------------------------- asking

    def ask(self, key: str, operation: Operation[S], reply: Reply) -> None:
        """Asks the shard of a group or transactional id; `operation(shard, now_ms)` returns an outcome, or raises
        Refused. Where there is no such shard, or it ends before all is committed, the reply is refused."""
        if not self.partitions:
            reply.refuse(Error.COORDINATOR_NOT_AVAILABLE)
            return
        if not fits_key(key):
            reply.refuse(Error.INVALID_GROUP_ID if self.topic == CONSUMER_OFFSETS else Error.INVALID_REQUEST)
            return
        hosted = self._hosted.get(partition_for(key, self.partitions))
        if hosted is None:
            reply.refuse(Error.NOT_COORDINATOR)
        else:
            hosted.ask(operation, reply)

    def ask_many(self, asks: Iterator[None], count: int) -> None:
        """For a request about many keys: `asks` asks for one of `count` in each step. Beyond some, others are served in
        between."""
        if count > ASKED_AT_ONCE:
            self.slices.add(asks)
        else:
            for _ in asks:
                pass

    def shard_of(self, key: str) -> S | None:
        """The shard itself, if it can be asked now: for what changes nothing that is in the log, and may be answered
        whatever of it is committed, such as a heartbeat."""
        partitions = self.partitions
        hosted = self._hosted.get(partition_for(key, partitions)) if partitions else None
        return None if hosted is None else hosted.shard

    def hosted_of(self, key: str) -> HostedShard | None:
        """The shard of a key that may be asked for, as it is hosted here, for who has more to ask of it later."""
        if not self.partitions or not fits_key(key):
            return None
        return self._hosted.get(partition_for(key, self.partitions))

    def ask_shard(self, index: int, operation: Operation[S], reply: Reply) -> None:
        """The same, by the number of the partition."""
        hosted = self._hosted.get(index)
        if hosted is None:
            reply.refuse(Error.NOT_COORDINATOR)
        else:
            hosted.ask(operation, reply)

    def indexes(self) -> list[int]:
        """The partitions whose shards are here, loaded or not."""
        return sorted(self._hosted)

    def refusal(self, index: int) -> Error:
        """NONE when the shard can be asked now."""
        hosted = self._hosted.get(index)
        return Error.NOT_COORDINATOR if hosted is None else hosted.refusal

    def index_of(self, key: str) -> int:
        """The partition of a group or transactional id; -1 while the topic is not there."""
        return partition_for(key, self.partitions) if self.partitions else -1

    def append_marker(
        self,
        index: int,
        marker: bytearray,
        stamp: ProducerStamp,
        *,
        is_commit: bool,
        transaction_version: int = 0,
    ) -> Appended:
        """Ends a transaction on a partition of the topic, and tells its shard. Raises Refused. It is committed when the
        high watermark is past it, as on every partition."""
        hosted, now_ms = self._hosted.get(index), self.now_ms()
        if hosted is None:  # between its election and the load
            return self.find(index).append_own(memoryview(marker), now_ms, transaction_version)
        return hosted.append_marker(memoryview(marker), stamp, is_commit, now_ms, transaction_version)

    # --------------------------------------------------------------------------------------------- following the image

    def apply(self, delta: Delta, image: Image) -> None:
        """The loader's subscriber."""
        self.image = image
        if self._is_stopped:
            return
        if not self._is_current:
            # What a broker had of the metadata log when it stopped may lack topics that its coordinators have offsets
            # and transactions of: they would be taken for deleted (hazard 9). Its registration comes behind all that.
            if not self._is_registered(image):
                return
            self._is_current = True
            delta = everything_in(image)
        topic = image.topic(self.topic)
        if topic is None or topic.id != self._topic_id:
            for index in self.indexes():
                self._hosted.pop(index).end(Error.NOT_COORDINATOR)
            self._topic_id = b"" if topic is None else topic.id
        self.partitions = partitions_of(image, self.topic)
        if (
            delta.changed_topics
            or delta.removed_topics
            or delta.changed_brokers
            or delta.changed_configs
            or delta.changed_features
        ):
            for hosted in list(self._hosted.values()):
                hosted.image_changed(delta, image)
        if topic is not None:
            for index in delta.changed_topics.get(topic.id, ()):
                self._elect(index, topic.partitions[index].leader == self._replicas.node_id)

    def _elect(self, index: int, is_leader: bool) -> None:
        hosted = self._hosted.get(index)
        if is_leader and hosted is None:
            from headrace.coordinator.hosted import HostedShard  # with the first: a node may never have one

            # A new epoch of a leader that stays changes nothing: nobody else has written meanwhile.
            self._hosted[index] = hosted = HostedShard(self, index)
            self.slices.add(hosted.load_soon())
        elif not is_leader and hosted is not None:
            del self._hosted[index]
            hosted.end(Error.NOT_COORDINATOR)

    def stop(self) -> None:
        """Whoever waits is told to ask another broker."""
        self._is_stopped = True
        for index in self.indexes():
            self._hosted.pop(index).end(Error.NOT_COORDINATOR)

    # -------------------------------------------------------------------------------------------- what its shards need

    def find(self, index: int) -> Partition:
        return self._replicas.find(self.topic, index)

    def make(self, timers: Timers, leader_epoch: int) -> S:
        return self._make(timers, leader_epoch)

    def write_soon(self, hosted: HostedShard) -> None:
        if not self._to_write:
            self._call_soon(self._write)
        self._to_write.append(hosted)

    def _write(self) -> None:
        to_write, self._to_write = self._to_write, []
        now_ms = self.now_ms()
        for hosted in to_write:
            hosted.write(now_ms)
        self._replicas.flush_now()

    def bring_about(self, effect: Effect) -> None:
        try:
            self.effects[type(effect)](effect)
        except Exception:
            logger.exception("%s could not be brought about", type(effect).__name__)
