"""kill -9 under load, again and again: `python -m tests.faults.kill9 --rounds 100`.

An idempotent producer with acks=all, a producer with acks=1 that never retries, and a reader work while the node's
process is killed. After each restart: nothing acknowledged is missing, and nothing is doubled, reordered or changed
since it was read. A crash of the process alone must not lose acks=1 either.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.compat.confluent import TIMEOUT_S, new_consumer, new_producer, take
from tests.compat.conftest import create_topic
from tests.compat.process import Process

PARTITIONS: Final = 2
LOAD_S: Final = (0.2, 1.2)
Place = tuple[str, int]


@dataclass(slots=True)
class Sent:
    """What one producer sent and what came of it."""

    topic: str
    producer: Any
    must_all_arrive: bool
    count: int = 0
    acknowledged: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def send(self) -> None:
        value = b"%d" % self.count
        try:
            self.producer.produce(self.topic, value, partition=self.count % PARTITIONS, on_delivery=self.delivered)
        except BufferError:
            self.producer.poll(0.05)
            return
        self.count += 1

    def delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[(self.topic, message.partition()), message.offset()] = message.value()
        else:
            self.failed.append(str(error))


class Reader(threading.Thread):
    """Reads all the time from the start on, over every crash, and remembers what it saw."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        super().__init__(daemon=True)
        self.seen: dict[tuple[Place, int], bytes] = {}
        self.faults: list[str] = []
        self.stopping = threading.Event()
        self.consumer = new_consumer(bootstrap, reconnect_backoff_max_ms=200, auto_offset_reset="error")
        self.consumer.assign([TopicPartition(topic, index, 0) for topic in topics for index in range(PARTITIONS)])
        self.next: dict[Place, int] = {}

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self.consumer.consume(1000, 0.2):
                if message.error() is not None:
                    if message.error().fatal() or not message.error().retriable():
                        self.faults.append(str(message.error()))
                    continue
                place = (message.topic(), message.partition())
                if message.offset() != self.next.get(place, 0):
                    self.faults.append(f"{place}: {message.offset()} came after {self.next.get(place, 0) - 1}")
                self.next[place] = message.offset() + 1
                self.seen[place, message.offset()] = message.value()
        self.consumer.close()


def campaign(rounds: int, folder: Path, seed: int, told: Callable[[int, int], None]) -> int:
    """So many kills. Returns how many records were acknowledged; raises AssertionError on the first that is wrong."""
    chance = random.Random(seed)
    node = Process(folder / "data")
    node.start()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    loads = [
        Sent(create_topic(admin, PARTITIONS), new_producer(node.bootstrap, **settings), safe)
        for settings, safe in (
            ({"enable_idempotence": True, "acks": "all", "reconnect_backoff_max_ms": 200}, True),
            ({"acks": 1, "retries": 0, "reconnect_backoff_max_ms": 200, "message_timeout_ms": 5000}, False),
        )
    ]
    reader = Reader(node.bootstrap, [load.topic for load in loads])
    reader.start()
    stored: dict[Place, list[bytes]] = {(load.topic, index): [] for load in loads for index in range(PARTITIONS)}
    try:
        for number in range(rounds):
            killer = threading.Timer(chance.uniform(*LOAD_S), node.kill)
            killer.start()
            while killer.is_alive():
                for load in loads:
                    for _ in range(chance.randrange(1, 200)):
                        load.send()
                    load.producer.poll(0.001)
            killer.join()
            node.start()
            for load in loads:
                assert load.producer.flush(TIMEOUT_S * 2) == 0, f"{load.topic}: the node did not take what was sent"
            read_on(node.bootstrap, stored)
            check(loads, reader, stored)
            told(number + 1, sum(len(load.acknowledged) for load in loads))
        whole: dict[Place, list[bytes]] = {place: [] for place in stored}
        read_on(node.bootstrap, whole)
        assert whole == stored, "what was read at first differs from what is there at the end"
    finally:
        reader.stopping.set()
        reader.join()
        if node.is_running:
            assert node.stop() == 0, node.said
    return sum(len(load.acknowledged) for load in loads)


def read_on(bootstrap: str, stored: dict[Place, list[bytes]]) -> None:
    """Reads what has come since, partition by partition, to its end."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    consumer = new_consumer(bootstrap)
    try:
        for (topic, index), values in stored.items():
            partition = TopicPartition(topic, index)
            end = admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(TIMEOUT_S).offset
            assert end != OFFSET_END
            assert end >= len(values), f"{topic}-{index} went back from {len(values)} to {end}"
            if end == len(values):
                continue
            consumer.assign([TopicPartition(topic, index, len(values))])
            for message in take(consumer, end - len(values)):
                assert message.offset() == len(values), (
                    f"{topic}-{index}: offset {message.offset()} after {len(values)}"
                )
                values.append(message.value())
    finally:
        consumer.close()


def check(loads: list[Sent], reader: Reader, stored: dict[Place, list[bytes]]) -> None:
    for load in loads:
        for (place, offset), value in load.acknowledged.items():
            values = stored[place]
            assert offset < len(values), f"{place}: acknowledged offset {offset} is missing"
            assert values[offset] == value, (
                f"{place}: offset {offset} has {values[offset]!r}, acknowledged was {value!r}"
            )
        for index in range(PARTITIONS):
            numbers = [int(value) for value in stored[load.topic, index]]
            assert len(set(numbers)) == len(numbers), f"{load.topic}-{index} has something twice"
            assert numbers == sorted(numbers), f"{load.topic}-{index} is out of order"
            if load.must_all_arrive:
                assert numbers == list(range(index, load.count, PARTITIONS)), f"{load.topic}-{index} has gaps"
        assert not (load.must_all_arrive and load.failed), load.failed[:3]
    assert not reader.faults, reader.faults[:3]
    for (place, offset), value in list(reader.seen.items()):
        assert offset >= len(stored[place]) or stored[place][offset] == value, f"{place}: offset {offset} changed"


def main() -> int:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of when the kills come")
    arguments = parser.parse_args()
    columns = (TextColumn("kill -9"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with (
        tempfile.TemporaryDirectory(prefix="headrace-kill9-") as folder,
        Progress(*columns, TimeElapsedColumn()) as bar,
    ):
        task = bar.add_task("", total=arguments.rounds)
        told = lambda done, count: bar.update(task, completed=done, description=f"{count:,} acknowledged")  # noqa: E731
        count = campaign(arguments.rounds, Path(folder), arguments.seed, told)
    print(f"{arguments.rounds} kills, {count:,} acknowledged records: none missing, doubled, reordered or changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
