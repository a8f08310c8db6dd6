"""A controller whose decisions are committed when a test says so."""

from __future__ import annotations

from typing import Any

from headrace.metadata.controller import Controller, ControllerSettings, Decision
from headrace.metadata.image import Image, Partition
from headrace.metadata.loader import Loader
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from tests.metadata.running import CLUSTER, DEFAULTS, Chance, creation, registration


class Deciding:
    """The log is a list of batches; `commit` brings them to the image one by one, `depose` forgets what is left."""

    def __init__(self) -> None:
        chance = Chance()
        self.controller = Controller(ControllerSettings(CLUSTER, DEFAULTS), new_id=self._new_id, choose=chance.choose)
        self.loader = Loader()
        self.now_ms = 1000
        self.epoch = 0
        self.end_offset = 0
        self.uncommitted: list[tuple[list[Versioned], int]] = []
        self.committed: list[Versioned] = []
        self._ids = 0
        self.elect()
        self.commit()

    def _new_id(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big").replace(b"\x00", b"\x09")

    @property
    def image(self) -> Image:
        """What is committed."""
        return self.loader.image

    def elect(self) -> None:
        self.epoch += 1
        self.append(self.controller.activate(self.loader.image, self.now_ms))

    def depose(self, lost: int = 10**9) -> None:
        """Of what is not committed, the last batches are lost; the others are, under the next controller."""
        self.controller.deactivate()
        kept = max(0, len(self.uncommitted) - lost)
        del self.uncommitted[kept:]
        self.commit()
        self.end_offset = self.image.offset + 1

    def append(self, records: list[Versioned]) -> None:
        if records:
            self.end_offset += len(records)
            self.controller.appended(records, self.end_offset - 1, self.epoch)
            self.uncommitted.append((records, self.end_offset - 1))

    def commit(self, batches: int = 10**9) -> None:
        for records, last_offset in self.uncommitted[:batches]:
            self.loader.apply([record for record, _ in records], last_offset, self.epoch)
            self.committed += records
        del self.uncommitted[:batches]

    def decide(self, request: Message) -> Decision:
        decision = self.controller.decide(request, self.end_offset, self.now_ms)
        self.append(decision.records)
        return decision

    def ask(self, request: Message) -> Any:
        """Decides, commits and returns the response."""
        response = self.decide(request).response
        self.commit()
        return response

    def beat(self, broker_id: int, **fields: Any) -> m.BrokerHeartbeatResponse:
        """A heartbeat of a broker that knows all that is committed."""
        image = self.controller.image
        assert image is not None
        fields = {
            "broker_epoch": image.brokers[broker_id].epoch,
            "current_metadata_offset": self.image.offset,
            **fields,
        }
        response: m.BrokerHeartbeatResponse = self.ask(m.BrokerHeartbeatRequest(broker_id=broker_id, **fields))
        return response

    def up(self, *broker_ids: int, incarnation: int = 1) -> Deciding:
        for broker_id in broker_ids:
            assert self.ask(registration(broker_id, incarnation)).error_code == 0
            assert not self.beat(broker_id).is_fenced
        return self

    def create(self, name: str, replicas: list[list[int]]) -> Deciding:
        assert self.ask(creation(name, replicas=replicas)).topics[0].error_code == 0
        return self

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        self.append(self.controller.tick(self.now_ms))
        self.commit()

    def partition(self, name: str = "t", index: int = 0) -> Partition:
        topic = self.image.topic(name)
        assert topic is not None
        return topic.partitions[index]

    def state(self, name: str = "t", index: int = 0) -> tuple[int, tuple[int, ...], int]:
        """Leader, in-sync replicas and leader epoch."""
        partition = self.partition(name, index)
        return partition.leader, partition.isr, partition.leader_epoch
