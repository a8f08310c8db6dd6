"""A metadata service on a disk in memory, with clock, timers and workers in the hand of a test; and requests to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.config import LogConfig
from headrace.config.quorum import QuorumConfig
from headrace.errors import HeadraceError
from headrace.metadata.features import SUPPORTED
from headrace.metadata.image import Image
from headrace.metadata.service import Member, MetadataPorts, MetadataService, format_metadata
from headrace.metadata.topics import TopicDefaults
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from headrace.storage.flusher import Flusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import SteppedWorkers
from tests.raft.single import Timers

CLUSTER = "cluster"
DEFAULTS = TopicDefaults(partitions=1, replication_factor=1, log=LogConfig())


def directory(broker_id: int, number: int = 0) -> bytes:
    return bytes([broker_id % 256, number]).ljust(16, b"d")


def registration(
    broker_id: int = 1,
    incarnation: int = 1,
    *,
    directories: list[bytes] | None = None,
    cluster_id: str = CLUSTER,
    rack: str | None = None,
) -> m.BrokerRegistrationRequest:
    kind = m.BrokerRegistrationRequest
    return kind(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=bytes([broker_id % 256]).ljust(8, b"i") + incarnation.to_bytes(8, "big"),
        listeners=[kind.Listener(name="PLAINTEXT", host="localhost", port=9092 + broker_id, security_protocol=0)],
        features=[
            kind.Feature(name=name, min_supported_version=least, max_supported_version=most)
            for name, (least, most) in SUPPORTED.items()
        ],
        rack=rack,
        log_dirs=[directory(broker_id)] if directories is None else directories,
    )


def creation(name: str, partitions: int = 1, replicas: list[list[int]] | None = None) -> m.CreateTopicsRequest:
    kind = m.CreateTopicsRequest
    if replicas is None:
        return kind(topics=[kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])
    assignments = [
        kind.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
    ]
    return kind(
        topics=[kind.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)]
    )


class Chance:
    """Bytes that are other ones each time, and the same in each run."""

    def __init__(self, seed: int = 0) -> None:
        self._count = seed << 32

    def bytes(self, size: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(8, "big").rjust(size, b"\x07")[:size]

    def choose(self, below: int) -> int:
        self._count += 1
        return self._count % below


class Running:
    """One incarnation of a node's service on a disk."""

    def __init__(
        self,
        disk: FaultyDisk,
        *,
        timers: Timers | None = None,
        config: QuorumConfig | None = None,
        incarnation: int = 1,
    ) -> None:
        self.disk = disk
        self.timers = timers or Timers()
        self.workers = SteppedWorkers()
        self.soon: list[Callable[[], None]] = []
        self.failures: list[HeadraceError] = []
        self.ready: list[HeadraceError | None] = []
        chance = Chance(incarnation)
        member = Member(CLUSTER, 1, directory(1), b"c" * 15 + bytes([incarnation]))
        format_metadata(disk, member, self.timers.now_ms)
        ports = MetadataPorts(
            disk=disk,
            flusher=Flusher(
                disk, self.workers, call_soon=self.soon.append, clock=lambda: 0.0, on_offline=lambda failure: None
            ),
            workers=self.workers,
            handles=Handles(100),
            indexes=IndexCache(1 << 20),
            now_ms=lambda: self.timers.now_ms,
            call_later=self.timers.call_later,
            random_bytes=chance.bytes,
            choose=chance.choose,
        )
        self.service = MetadataService(
            member, ports, config=config or QuorumConfig(), defaults=DEFAULTS, failed=self.failures.append
        )
        self.service.begin(self.ready.append)

    @property
    def image(self) -> Image:
        return self.service.loader.image

    def settle(self) -> Running:
        """Ends what the loop, the workers and timers of no time have to do."""
        while True:
            if self.soon:
                self.soon.pop(0)()
            elif len(self.workers):
                self.workers.step()
            elif self.timers.has_due():
                self.timers.advance(0)
            else:
                return self

    def submit(self, request: Message) -> list[Message]:
        """The list gets the reply when there is one."""
        replies: list[Message] = []
        self.service.submit(request, replies.append)
        return replies

    def call(self, request: Message) -> Message:
        replies = self.submit(request)
        self.settle()
        assert len(replies) == 1
        return replies[0]

    def register(self, broker_id: int = 1, incarnation: int = 1) -> int:
        response = self.call(registration(broker_id, incarnation))
        assert isinstance(response, m.BrokerRegistrationResponse)
        assert response.error_code == 0
        return response.broker_epoch

    def beat(self, broker_id: int, epoch: int, **wants: Any) -> m.BrokerHeartbeatResponse:
        request = m.BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=self.image.offset, **wants
        )
        response = self.call(request)
        assert isinstance(response, m.BrokerHeartbeatResponse)
        return response

    def up(self, broker_id: int = 1, incarnation: int = 1) -> int:
        """Registers and unfences a broker."""
        epoch = self.register(broker_id, incarnation)
        assert not self.beat(broker_id, epoch).is_fenced
        return epoch

    def create(self, name: str, partitions: int = 1, replicas: list[list[int]] | None = None) -> None:
        response = self.call(creation(name, partitions, replicas))
        assert isinstance(response, m.CreateTopicsResponse)
        assert [topic.error_code for topic in response.topics] == [0]

    def producer_ids(self, epoch: int, broker_id: int = 1) -> m.AllocateProducerIdsResponse:
        response = self.call(m.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))
        assert isinstance(response, m.AllocateProducerIdsResponse)
        return response
