"""Transactions: `python -m bench.groups.transactions [--peers ours,kafka]`.

Begin to commit: one producer of transaction version 2 (Produce v12 adds the partitions, EndTxn v5 bumps the epoch)
sends one request with a batch of ten records for each of 1, 10 and 100 partitions, waits for it, commits, waits, and
goes on with the next transaction at once: what the one before it left undone is in its time. Requests are encoded
before the clock starts, and the client is the same few lines over one raw socket for both. `--pause-ms` lets the broker
finish between two transactions.

Throughput: transactions of 10,000 records of 1 KB, a hundred in a batch, five requests in flight, against the same
batches of an idempotent producer without transactions, in turns. Both wait for acks=all.

Every batch of every topic, those of the coordinators too, is synced before it counts (`log.flush.interval.messages=1`).
The bars: p50 and p99 not above Kafka's; inside at least 0.9 of outside.
"""

from __future__ import annotations

import os
import time
from collections import deque
from struct import Struct
from typing import Final, NamedTuple

from bench.node import peers
from bench.node.report import arguments_of, middle, ratio, say, show
from bench.node.topics import topic_of
from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.apis import find_api
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.frame import write_request
from tests.compat.wire import Wire

PARTITIONS: Final = (1, 10, 100)
ROUND_S: Final = 6.0
DURABLE: Final = ("log.flush.interval.messages=1",)
RECORDS: Final = 10
BULK_RECORDS: Final = 10_000
BULK_RECORD_BYTES: Final = 1_000
BULK_BATCH: Final = 100
BULK_PARTITIONS: Final = 2
IN_FLIGHT: Final = 5
BACK_OFF_S: Final = 0.02
"""What Java's producer waits before it tries again to begin while the transaction before is not complete."""

INIT_VERSION: Final = 4
PRODUCE: Final = 0
PRODUCE_VERSION: Final = 12
END_VERSION: Final = 5
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_AGAIN: Final = (Error.NOT_ENOUGH_REPLICAS, Error.CONCURRENT_TRANSACTIONS)


class Latency(NamedTuple):
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """Of the broker, for a transaction."""
    a_second: float
    retries: float
    """For a transaction."""


class Frame:
    """A produce request with a batch for each of some partitions, which get the identity of the producer later."""

    def __init__(self, topic: str, indexes: range, batch: bytes, transactional_id: str | None) -> None:
        kind = m.ProduceRequest
        data = [kind.PartitionProduceData(index=index, records=batch) for index in indexes]
        request = kind(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[kind.TopicProduceData(name=topic, partition_data=data)],
        )
        self.bytes = bytearray(b"".join(write_request(request, PRODUCE_VERSION, 1, "bench")))
        self._size = len(batch)
        self._starts: list[int] = []
        start = 0
        for _ in indexes:
            start = self.bytes.index(batch, start)
            self._starts.append(start)
            start += len(batch)

    def stamp(self, producer_id: int, epoch: int, sequence: int) -> None:
        frame = memoryview(self.bytes)
        for start in self._starts:
            _PRODUCER.pack_into(frame, start + _PRODUCER_AT, producer_id, epoch, sequence)
            _CRC.pack_into(frame, start + _CRC_AT, crc32c(frame[start + _CRC_FROM : start + self._size]))


class Producer:
    """On one connection: of transactions when it has a transactional id, idempotent without one."""

    def __init__(self, wire: RawWire, transactional_id: str | None) -> None:
        self._wire = wire
        self._transactional_id = transactional_id
        while True:
            asked = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            found = wire.ask(asked, INIT_VERSION)
            if not found.error_code:
                break
            time.sleep(BACK_OFF_S)
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        self.retries = 0

    def send(self, frame: Frame) -> None:
        self._wire.send_produce(frame.bytes)

    def received(self, *, is_behind: bool = False) -> bool:
        """False when it has to be sent again, as all have that are behind such a one."""
        answers = [answer for topic in self._wire.receive().responses for answer in topic.partition_responses]
        errors = [Error.of(answer.error_code) for answer in answers if answer.error_code]
        if not errors:
            return True
        again = (*_AGAIN, Error.OUT_OF_ORDER_SEQUENCE_NUMBER) if is_behind else _AGAIN
        if len(errors) == len(answers) and all(error in again for error in errors):
            self.retries += 1
            return False
        raise SystemExit(f"a batch was refused: {errors[0].name}")

    def produce(self, frame: Frame) -> None:
        self.send(frame)
        while not self.received():
            time.sleep(BACK_OFF_S)
            self.send(frame)

    def commit(self) -> None:
        asked = m.EndTxnRequest(
            transactional_id=self._transactional_id or "",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=True,
        )
        while (answer := self._wire.ask(asked, END_VERSION)).error_code:
            if answer.error_code not in _AGAIN:
                raise SystemExit(f"a commit was refused: {Error.of(answer.error_code).name}")
            self.retries += 1
            time.sleep(BACK_OFF_S)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch


class RawWire(Wire):
    def send_produce(self, frame: bytearray) -> None:
        """Sends what was encoded before; the correlation id is put in."""
        api = find_api(PRODUCE)
        assert api is not None
        self._correlation_id += 1
        self._asked[self._correlation_id] = (api, PRODUCE_VERSION)
        _CRC.pack_into(frame, 8, self._correlation_id)  # behind the size, the key and the version
        self.socket.sendall(frame)


def batch_of(records: int, record_bytes: int, *, transactional: bool) -> bytes:
    now_ms = int(time.time() * 1000)
    fields = [(None, os.urandom(record_bytes), (), now_ms) for _ in range(records)]
    return bytes(build(fields, producer_id=1, producer_epoch=0, base_sequence=0, transactional=transactional))


def ready(wire: Wire, transactional_id: str) -> None:
    asked = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    while wire.ask(asked, 4).coordinators[0].error_code:
        time.sleep(0.1)


# ------------------------------------------------------------------------------------------------------ begin to commit


def begin_to_commit(peer: peers.Peer, topic: str, partitions: int, seconds: float, pause_s: float) -> Latency:
    name = f"bench-{topic}"
    frame = Frame(topic, range(partitions), batch_of(RECORDS, 100, transactional=True), name)
    found: list[float] = []
    with RawWire(peer.bootstrap) as wire:
        ready(wire, name)
        producer = Producer(wire, name)
        warm_s = time.perf_counter() + seconds / 4
        end_s = warm_s + seconds
        start_s, start_cpu_s = time.perf_counter(), peer.cpu_s()
        while (now_s := time.perf_counter()) < end_s:
            if now_s < warm_s:
                found.clear()
                producer.retries = 0
                start_s, start_cpu_s = now_s, peer.cpu_s()
            frame.stamp(producer.producer_id, producer.epoch, 0)
            begin_s = time.perf_counter()
            producer.produce(frame)
            producer.commit()
            found.append(time.perf_counter() - begin_s)
            if pause_s:
                time.sleep(pause_s)
    count, took_s, cpu_s = len(found), time.perf_counter() - start_s, peer.cpu_s() - start_cpu_s
    found.sort()
    return Latency(
        found[count // 2] * 1000,
        found[int(count * 0.99)] * 1000,
        cpu_s / count * 1000,
        count / took_s,
        producer.retries / count,
    )


# ----------------------------------------------------------------------------------------------------------- throughput


def bulk(peer: peers.Peer, topic: str, seconds: float, *, is_inside: bool) -> float:
    """Records a second."""
    name = f"bench-{topic}" if is_inside else None
    batch = batch_of(BULK_BATCH, BULK_RECORD_BYTES, transactional=is_inside)
    frames = [Frame(topic, range(index, index + 1), batch, name) for index in range(BULK_PARTITIONS)]
    sequences = [0] * BULK_PARTITIONS
    sent = 0
    with RawWire(peer.bootstrap) as wire:
        if name is not None:
            ready(wire, name)
        producer = Producer(wire, name)
        pipeline = Pipeline(producer, frames)
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < seconds:
            for number in range(BULK_RECORDS // BULK_BATCH):
                index = number % BULK_PARTITIONS
                pipeline.put(index, sequences[index])
                sequences[index] += BULK_BATCH
            sent += BULK_RECORDS
            if is_inside:
                pipeline.drain()
                producer.commit()
                sequences = [0] * BULK_PARTITIONS
        pipeline.drain()
        return sent / (time.perf_counter() - start_s)


class Pipeline:
    """Some requests in flight. What has to be sent again is, in its order, when all have come back."""

    def __init__(self, producer: Producer, frames: list[Frame]) -> None:
        self._producer = producer
        self._frames = frames
        self._flying: deque[tuple[int, int]] = deque()
        self._again: list[tuple[int, int]] = []

    def put(self, index: int, sequence: int) -> None:
        while len(self._flying) >= IN_FLIGHT:
            self._land()
        if self._again:
            self.drain()
        self._send(index, sequence)

    def drain(self) -> None:
        while self._flying or self._again:
            while self._flying:
                self._land()
            again, self._again = self._again, []
            if again:
                time.sleep(BACK_OFF_S)
            for index, sequence in again:
                self._send(index, sequence)

    def _send(self, index: int, sequence: int) -> None:
        frame, producer = self._frames[index], self._producer
        frame.stamp(producer.producer_id, producer.epoch, sequence)
        producer.send(frame)
        self._flying.append((index, sequence))

    def _land(self) -> None:
        batch = self._flying.popleft()
        if not self._producer.received(is_behind=bool(self._again)):
            self._again.append(batch)


def main() -> None:
    parser = arguments_of(__doc__, ("ours", "kafka"))
    parser.add_argument("--pause-ms", type=float, default=0, help="between two transactions")
    parser.add_argument("--partitions", default=",".join(map(str, PARTITIONS)))
    options = parser.parse_args()
    names = tuple(options.peers.split(","))
    seconds = ROUND_S * options.scale
    rows, bulk_rows = [], []
    with peers.running(names, DURABLE) as running:
        for partitions in map(int, options.partitions.split(",")):
            found: dict[str, list[Latency]] = {name: [] for name in running}
            for number in range(options.rounds):
                for name, peer in running.items():
                    say(f"{name}, {partitions} partitions, round {number}")
                    with topic_of(peer, partitions) as topic:
                        found[name].append(begin_to_commit(peer, topic, partitions, seconds, options.pause_ms / 1000))
            ours = [middle([result[field] for result in found[names[0]]]) for field in range(2)]
            for name, results in found.items():
                p50, p99, cpu, a_second, retries = (
                    middle([result[field] for result in results]) for field in range(len(Latency._fields))
                )
                rows.append(
                    [
                        f"{partitions} partitions, {name}",
                        f"{p50:.2f}",
                        ratio(ours[0], p50),
                        f"{p99:.2f}",
                        ratio(ours[1], p99),
                        f"{cpu:.2f}",
                        f"{a_second:.0f}",
                        f"{retries:.2f}",
                    ]
                )
        both: dict[str, dict[bool, list[float]]] = {name: {True: [], False: []} for name in running}
        for number in range(options.rounds):
            for name, peer in running.items():
                for is_inside in (False, True):
                    say(f"{name}, {'inside' if is_inside else 'outside'} of transactions, round {number}")
                    with topic_of(peer, BULK_PARTITIONS) as topic:
                        both[name][is_inside].append(bulk(peer, topic, seconds / 2, is_inside=is_inside))
        for name, by_side in both.items():
            inside, outside = middle(by_side[True]), middle(by_side[False])
            bulk_rows.append([name, f"{inside / 1000:.0f}", f"{outside / 1000:.0f}", ratio(inside, outside)])
    show(
        "Transactions, begin to commit",
        f"{RECORDS} records of 100 B a partition, one request, pause of {options.pause_ms:g} ms between two of them, "
        "each batch of every topic synced before it counts",
        ("", "p50 ms", "ours to it", "p99 ms", "ours to it", "CPU ms", "a second", "retries"),
        rows,
    )
    show(
        "Produce inside of transactions and outside",
        f"1 KB, {BULK_BATCH} a batch, {BULK_RECORDS:,} records a transaction, {BULK_PARTITIONS} partitions, "
        f"{IN_FLIGHT} requests in flight, acks=all, each batch synced before it counts",
        ("", "inside k/s", "outside k/s", "inside to outside"),
        bulk_rows,
    )


if __name__ == "__main__":
    main()
