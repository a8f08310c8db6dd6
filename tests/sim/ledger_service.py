"""A log of one partition in one file: as little of a broker as shows what the simulator is for.

It appends, syncs in groups, recovers, knows its producers, and fences readers of an earlier epoch.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.errors import Error
from headrace.net.connection import Connection
from headrace.net.listener import Limits, Listener
from headrace.protocol.frame import Request, read_request, write_response
from headrace.protocol.message import Message
from headrace.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from headrace.storage.disk import Disk, DiskError, File, SyncFailed
from headrace.storage.flusher import Flusher
from headrace.testing.sim.process import Process

PORT = 9092
PRODUCE_VERSION = 9
FETCH_VERSION = 12
LOG_FILE = "ledger.log"
EPOCH_FILE = "epoch"
_HEAD = struct.Struct(">II")


class Record(NamedTuple):
    producer: str
    sequence: int
    value: str

    def encode(self) -> bytes:
        return f"{self.producer}\t{self.sequence}\t{self.value}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Record:
        producer, sequence, value = data.decode().split("\t")
        return cls(producer, int(sequence), value)


@dataclass(slots=True)
class ProducerState:
    last_sequence: int = -1
    offsets: dict[int, int] = field(default_factory=dict)


class Ledger:
    """The log and what is known of its producers."""

    def __init__(self, disk: Disk) -> None:
        self.records: list[Record] = []
        self.producers: dict[str, ProducerState] = {}
        self.file: File = disk.open(LOG_FILE, create=True)
        self.size = 0
        self.recover()
        disk.sync_directory("")

    def recover(self) -> None:
        """Keeps what is whole, cuts the rest. After a failed sync memory shows more than the device holds."""
        self.file.datasync()
        self.file.forget_cached()
        data = self.file.read(0, self.file.size())
        while (record := self.whole_record(data, self.size)) is not None:
            self.take(Record.decode(record))
            self.size += _HEAD.size + len(record)
        self.file.truncate(self.size)
        self.file.datasync()

    def whole_record(self, data: bytes, position: int) -> bytes | None:
        if position + _HEAD.size > len(data):
            return None
        size, checksum = _HEAD.unpack_from(data, position)
        body = data[position + _HEAD.size : position + _HEAD.size + size]
        return body if size and len(body) == size and zlib.crc32(body) == checksum else None

    def append(self, record: Record) -> int:
        body = record.encode()
        self.size += self.file.write(self.size, [_HEAD.pack(len(body), zlib.crc32(body)), body])
        return self.take(record)

    def take(self, record: Record) -> int:
        offset = len(self.records)
        self.records.append(record)
        state = self.producers.setdefault(record.producer, ProducerState())
        state.last_sequence = record.sequence
        state.offsets[record.sequence] = offset
        return offset


class LedgerService:
    def __init__(self, process: Process) -> None:
        self._process = process
        disk = process.disk()
        lock = disk.lock()
        assert lock is not None
        if process.chance.random() < 0.2:
            disk.faults.fail_sync_at = process.chance.randint(6, 20)
        self.epoch = int(disk.read(EPOCH_FILE)) + 1 if disk.exists(EPOCH_FILE) else 1
        disk.replace(EPOCH_FILE, str(self.epoch).encode())
        self.ledger = Ledger(disk)
        self.unsynced: dict[int, None] = {}
        """Offsets that an acknowledgement of all waits for; readers stop before the first."""
        self.flusher = Flusher(
            disk,
            process.workers(),
            call_soon=asyncio.get_running_loop().call_soon,
            clock=asyncio.get_running_loop().time,
            on_offline=self._offline,
        )

    async def run(self) -> None:
        listener = Listener("ledger", self.handle, Limits(requests_in_flight=8))
        await listener.start("server", PORT)
        await asyncio.Event().wait()

    def handle(self, connection: Connection, frame: memoryview) -> None:
        request = read_request(frame)
        assert isinstance(request, Request)
        if isinstance(request.body, ProduceRequest):
            self.produce(connection, request, request.body)
        else:
            assert isinstance(request.body, FetchRequest)
            self.fetch(connection, request, request.body)

    # --- produce ------------------------------------------------------------------------------------------------------

    def produce(self, connection: Connection, request: Request, body: ProduceRequest) -> None:
        record = Record.decode(bytes(body.topic_data[0].partition_data[0].records or b""))
        error, offset = self.admit(record)
        slot = connection.reserve()

        def answer(failure: DiskError | None) -> None:
            self.unsynced.pop(offset, None)
            told = error if failure is None else Error.KAFKA_STORAGE_ERROR
            slot.fill(_framed(request, _produced(told, offset)))

        if error is not Error.NONE or body.acks != -1:
            answer(None)
            return
        try:
            self.unsynced[offset] = None
            self.flusher.sync(self.ledger.file, answer)
        except DiskError as failure:
            answer(failure)

    def admit(self, record: Record) -> tuple[Error, int]:
        """Appends what comes next, knows what came before, refuses what comes too early."""
        state = self.ledger.producers.get(record.producer) or ProducerState()
        if record.sequence <= state.last_sequence:
            return Error.NONE, state.offsets[record.sequence]
        if record.sequence != state.last_sequence + 1:
            return Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return Error.NONE, self.ledger.append(record)

    def _offline(self, failure: SyncFailed) -> None:
        self._process.exit()

    # --- fetch --------------------------------------------------------------------------------------------------------

    def fetch(self, connection: Connection, request: Request, body: FetchRequest) -> None:
        asked = body.topics[0].partitions[0]
        if asked.current_leader_epoch not in (-1, self.epoch):
            connection.reply(_framed(request, self._fetched(Error.FENCED_LEADER_EPOCH, "")))
            return
        end = min(self.unsynced, default=len(self.ledger.records))
        records = self.ledger.records[asked.fetch_offset : min(end, asked.fetch_offset + 20)]
        lines = "".join(f"{asked.fetch_offset + index}\t{record.value}\n" for index, record in enumerate(records))
        connection.reply(_framed(request, self._fetched(Error.NONE, lines)))

    def _fetched(self, error: Error, lines: str) -> FetchResponse:
        partition = FetchResponse.PartitionData(
            error_code=error,
            records=lines.encode(),
            current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=self.epoch),
        )
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])


def _produced(error: Error, offset: int) -> ProduceResponse:
    partition = ProduceResponse.PartitionProduceResponse(error_code=error, base_offset=offset)
    return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])])


def _framed(request: Request, response: Message) -> list[object]:
    return write_response(response, request.version, request.correlation_id)
