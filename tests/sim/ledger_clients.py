"""Clients of the ledger. They write down what they saw, and what they do not know is "maybe"."""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.errors import Error
from headrace.net.peer import Disconnected, Peer
from headrace.protocol.messages import FetchRequest, ProduceRequest
from headrace.testing.sim.history import Entry, History, Outcome, Poll, Promise, Write
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation
from tests.sim.ledger_service import FETCH_VERSION, PORT, PRODUCE_VERSION, Record

IN_FLIGHT = 5


class Producer:
    """Idempotent: it retries what it has no answer for, in order and under the same number."""

    def __init__(self, simulation: Simulation, history: History, name: str, acks: int) -> None:
        self.name = name
        self.is_stopping = False
        self.is_done = False
        self._simulation = simulation
        self._history = history
        self._acks = acks
        self._open: deque[tuple[Record, Write]] = deque()
        self._generation = 0
        self._sequence = 0
        self._number = 0

    async def run(self, process: Process) -> None:
        chance = process.chance
        while not (self.is_stopping and not self._open):
            try:
                peer = Peer("server", PORT, self.name)
                await peer.connect(timeout_seconds=1)
                try:
                    while not (self.is_stopping and not self._open):
                        if not self.is_stopping:
                            for _ in range(chance.randint(1, IN_FLIGHT - min(IN_FLIGHT - 1, len(self._open)))):
                                self._make(chance.choice((0, 0, 300, 5000)))
                        await self._send_all(peer)
                        await asyncio.sleep(chance.expovariate(1 / 0.05))
                finally:
                    peer.close()
            except Disconnected:
                await asyncio.sleep(chance.uniform(0, 0.1))
        self.is_done = True

    def _make(self, padding: int) -> None:
        value = f"{self.name}.{self._number}" + "." * padding
        self._number += 1
        producer = f"{self.name}/{self._generation}"
        record = Record(producer, self._sequence, value)
        self._sequence += 1
        promise = Promise.ALL_MACHINES if self._acks == -1 else Promise.PROCESS_CRASHES
        write = Write(value, 0, producer, self._simulation.now, promise=promise)
        self._history.writes.append(write)
        self._open.append((record, write))

    async def _send_all(self, peer: Peer) -> None:
        calls = [asyncio.ensure_future(self._call(peer, record)) for record, _ in self._open]
        try:
            for call in calls:
                error, offset = await call
                self._answered(error, offset)
        finally:
            for call in calls:
                call.cancel()

    async def _call(self, peer: Peer, record: Record) -> tuple[Error, int]:
        data = ProduceRequest.PartitionProduceData(index=0, records=record.encode())
        request = ProduceRequest(
            acks=self._acks, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
        )
        response = await peer.call(request, PRODUCE_VERSION, timeout_seconds=2)
        partition = response.responses[0].partition_responses[0]
        return Error(partition.error_code), partition.base_offset

    def _answered(self, error: Error, offset: int) -> None:
        if error is Error.NONE:
            _, write = self._open.popleft()
            write.outcome, write.offset, write.end = Outcome.ACKNOWLEDGED, offset, self._simulation.now
        elif error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # A crash took what came before. What is open may be there or not; a new generation starts over.
            self._open.clear()
            self._generation += 1
            self._sequence = 0
            raise Disconnected("start over.")
        else:
            raise Disconnected(f"{error.name}.")


class Consumer:
    """Reads on from where it was. Told that the epoch is over, it starts from the beginning."""

    def __init__(self, simulation: Simulation, history: History, name: str) -> None:
        self.name = name
        self._simulation = simulation
        self._history = history
        self._session = 0
        self._position = 0
        self._epoch = -1

    async def run(self, process: Process) -> None:
        while True:
            try:
                peer = Peer("server", PORT, self.name)
                await peer.connect(timeout_seconds=1)
                try:
                    while True:
                        await self.poll(peer)
                        await asyncio.sleep(process.chance.expovariate(1 / 0.02))
                finally:
                    peer.close()
            except Disconnected:
                await asyncio.sleep(process.chance.uniform(0, 0.1))

    async def read_to_end(self, process: Process) -> None:
        """All there is, after the trouble. It exits when it has everything."""
        while True:
            entries: list[Entry] = []
            start, self._position, self._epoch = self._simulation.now, 0, -1
            try:
                peer = Peer("server", PORT, self.name)
                await peer.connect(timeout_seconds=1)
                while found := await self._fetch(peer):
                    entries += found
                peer.close()
            except Disconnected:
                continue
            self._history.polls.append(Poll(self.name, 0, 0, start, self._simulation.now, entries, reads_to_end=True))
            return

    async def poll(self, peer: Peer) -> None:
        start = self._simulation.now
        entries = await self._fetch(peer)
        if entries:
            poll = Poll(self.name, self._session, 0, start, self._simulation.now, entries)
            self._history.polls.append(poll)

    async def _fetch(self, peer: Peer) -> list[Entry]:
        asked = FetchRequest.FetchPartition(
            partition=0, current_leader_epoch=self._epoch, fetch_offset=self._position, partition_max_bytes=1 << 20
        )
        request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t", partitions=[asked])])
        response = await peer.call(request, FETCH_VERSION, timeout_seconds=2)
        partition = response.responses[0].partitions[0]
        if partition.error_code == Error.FENCED_LEADER_EPOCH:
            self._session += 1
            self._position, self._epoch = 0, -1
            return []
        self._epoch = partition.current_leader.leader_epoch
        lines = bytes(partition.records).decode().splitlines()
        entries = [Entry(int(offset), value) for offset, value in (line.split("\t") for line in lines)]
        if entries:
            self._position = entries[-1].offset + 1
        return entries
