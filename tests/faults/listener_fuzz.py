"""Hostile clients at a live node: `python -m tests.faults.listener_fuzz --seconds 300`.

Noise, lengths that lie, halves of frames, damaged requests of every API and version, clients that never read and
thousands that never speak, while a healthy client produces and consumes. The node stays up and its memory bounded, the
healthy client sees all that it sent, once and in order, and the node's log tells of no failure inside it.
"""

from __future__ import annotations

import argparse
import resource
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from struct import pack
from typing import Any, Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.protocol import messages as m
from tests.compat.confluent import TIMEOUT_S, new_consumer, new_producer, produce, take
from tests.compat.conftest import create_topic
from tests.compat.process import Process
from tests.compat.requests import fetch_partition, fetch_request, metadata
from tests.compat.wire import Wire
from tests.faults.hostile_requests import LENGTHS, Hostile

ATTACKERS: Final = 3
DEAF_MAX: Final = 20
"""Connections at one time that ask for much and never read."""
HALF_MAX: Final = 40
RSS_MB_MAX: Final = 600
"""Replies that nobody reads may have 256 MB (fetch.replies.max.bytes); the rest is requests and what is around them."""
DRAIN_S: Final = 0.02
FAT_VALUES: Final = [bytes(500_000)] * 40
NO_LINGER: Final = pack("ii", 1, 0)


@dataclass(slots=True)
class Outcome:
    frames: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    read: int = 0
    idle: int = 0
    rss_mb_before: float = 0
    rss_mb_max: float = 0


class Attacker(threading.Thread):
    """Opens connections and misuses them, until it is told to stop."""

    def __init__(self, node: Process, hostile: Hostile, fat: tuple[str, bytes], random: Random, done: Outcome) -> None:
        super().__init__(daemon=True)
        self._node, self._hostile, self._fat, self._random, self._done = node, hostile, fat, random, done
        self._deaf: list[socket.socket] = []
        self._half: list[socket.socket] = []
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        ways = (self._send_damaged, self._send_noise, self._lie_about_length, self._stay_in_the_middle, self._be_deaf)
        try:
            while not self.stopping.is_set():
                with suppress(ConnectionError, TimeoutError):
                    self._random.choices(ways, (10, 2, 2, 1, 1))[0](self._connect())
        except BaseException as error:
            self.failure = error
        for held in self._deaf + self._half:
            held.close()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._node.port), TIMEOUT_S)
        if self._random.random() < 0.3:  # ends with a reset, whatever is under way
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        return connection

    def _send_damaged(self, connection: socket.socket) -> None:
        with connection:
            for _ in range(self._random.randrange(1, 30)):
                self._send(connection, self._hostile.frame(), "damaged")
            if self._random.random() < 0.7:
                drain(connection)

    def _send_noise(self, connection: socket.socket) -> None:
        with connection:
            self._send(connection, self._random.randbytes(self._random.randrange(1, 3000)), "noise")
            drain(connection)

    def _lie_about_length(self, connection: socket.socket) -> None:
        with connection:
            frame = pack(">i", self._random.choice(LENGTHS)) + self._hostile.frame()[4:]
            self._send(connection, frame, "lies")
            drain(connection)

    def _stay_in_the_middle(self, connection: socket.socket) -> None:
        """Half of a frame, and no more of it; sometimes a large half."""
        frame = self._hostile.frame()
        if self._random.random() < 0.2:
            frame = pack(">i", 60 << 20) + bytes(2 << 20)
        self._send(connection, frame[: self._random.randrange(1, len(frame))], "halves")
        self._hold(self._half, connection, HALF_MAX // ATTACKERS)

    def _be_deaf(self, connection: socket.socket) -> None:
        topic, topic_id = self._fat
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        wire = Wire.__new__(Wire)
        wire.socket, wire._correlation_id, wire._asked = connection, 0, {}
        with suppress(BlockingIOError):
            for _ in range(200):
                wire.send(fetch_request(topic, topic_id, [fetch_partition(0, max_bytes=50 << 20)]), 12)
                self._done.frames["unread"] += 1
        self._hold(self._deaf, connection, DEAF_MAX // ATTACKERS)

    def _hold(self, held: list[socket.socket], connection: socket.socket, most: int) -> None:
        held.append(connection)
        if len(held) > most:
            held.pop(self._random.randrange(len(held))).close()

    def _send(self, connection: socket.socket, data: bytes, kind: str) -> None:
        connection.sendall(data)
        self._done.frames[kind] += 1


def drain(connection: socket.socket) -> None:
    """Reads what comes, until nothing does."""
    connection.settimeout(DRAIN_S)
    with suppress(ConnectionError, TimeoutError):
        while connection.recv(1 << 16):
            pass


class Healthy(threading.Thread):
    """Produces numbers and reads them back, all the time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._producer = new_producer(bootstrap, enable_idempotence=True, acks="all")
        self._consumer = new_consumer(bootstrap)
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.stopping = threading.Event()
        self.acknowledged = 0
        self.read = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                values = [b"%d" % (self.acknowledged + number) for number in range(50)]
                for message in produce(self._producer, self._topic, values, partition=0):
                    assert message.offset() == self.acknowledged
                    self.acknowledged += 1
                for message in take(self._consumer, len(values)):
                    assert int(message.value()) == self.read == message.offset()
                    self.read += 1
        except BaseException as error:
            self.failure = error
        self._consumer.close()


def campaign(
    seconds: float, folder: Path, seed: int, told: Callable[[float, Outcome], None], idle_connections: int = 2000
) -> Outcome:
    """Attacks for so long. Raises AssertionError when the node or its other clients suffer."""
    raise_open_files()
    node = Process(folder / "data", "--set", "auto.create.topics.enable=false")
    node.start()
    outcome = Outcome()
    idle: list[Wire] = []
    attackers: list[Attacker] = []
    healthy: Healthy | None = None
    try:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        target, fat, quiet = (create_topic(admin, 3) for _ in range(3))
        produce(new_producer(node.bootstrap), fat, FAT_VALUES, partition=0)
        outcome.rss_mb_before = rss_mb(node.pid, "VmRSS")
        with Wire(node.bootstrap) as wire:
            fat_id, target_id = metadata(wire, fat).topic_id, metadata(wire, target).topic_id
            served = wire.ask(
                m.ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 4
            ).api_keys
        # To unregister the broker is an order that a node follows: it stops. Who may give it is for permissions to say.
        orders = m.UnregisterBrokerRequest.api_key
        apis = [(api.api_key, api.min_version, api.max_version) for api in served if api.api_key != orders]
        idle = [Wire(node.bootstrap) for _ in range(idle_connections)]
        outcome.idle = len(idle)
        healthy = Healthy(node.bootstrap, quiet)
        healthy.start()
        for number in range(ATTACKERS):
            random = Random(seed * 1_000_003 + number)
            hostile = Hostile(random, apis, target, target_id)
            attackers.append(Attacker(node, hostile, (fat, fat_id), random, outcome))
            attackers[-1].start()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            assert node.is_running, f"the node is gone:\n{node.said}"
            workers: list[Any] = [healthy, *attackers]
            for worker in workers:
                assert worker.failure is None, f"{worker.failure!r}\n{node.said}"
            outcome.acknowledged, outcome.read = healthy.acknowledged, healthy.read
            outcome.rss_mb_max = rss_mb(node.pid, "VmHWM")
            told(seconds - left, outcome)
            time.sleep(min(left, 0.25))
        stop(attackers)
        stop([healthy])
        for wire in idle[:: max(1, len(idle) // 20)]:  # who was silent all the time is served as before
            wire.ask(m.ApiVersionsRequest(client_software_name="idle", client_software_version="1"), 3)
        outcome.acknowledged, outcome.read = healthy.acknowledged, healthy.read
        outcome.rss_mb_max = rss_mb(node.pid, "VmHWM")
        assert outcome.read == outcome.acknowledged > 0
        assert not node.defects, "".join(node.defects[:20])
        assert outcome.rss_mb_max < RSS_MB_MAX, outcome
    finally:
        for attacker in attackers:
            attacker.stopping.set()
        if healthy is not None:
            healthy.stopping.set()
        for wire in idle:
            wire.close()
        if node.is_running:
            assert node.stop() == 0, node.said
    return outcome


def stop(workers: list[Any]) -> None:
    for worker in workers:
        worker.stopping.set()
    for worker in workers:
        worker.join()
        assert worker.failure is None, repr(worker.failure)


def rss_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0


def raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))


def main() -> int:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--idle", type=int, default=2000, help="connections that never speak")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    columns = (TextColumn("hostile clients"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder, Progress(*columns) as bar:
        task = bar.add_task("", total=arguments.seconds)

        def told(passed: float, so_far: Outcome) -> None:
            frames = so_far.frames.total()
            text = f"{frames:,} frames, {so_far.acknowledged:,} records beside them, {so_far.rss_mb_max:.0f} MB"
            bar.update(task, completed=passed, description=text)

        outcome = campaign(arguments.seconds, Path(folder), arguments.seed, told, arguments.idle)
        bar.update(task, completed=arguments.seconds)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in outcome.frames.most_common())
    print(f"{outcome.frames.total():,} hostile frames ({kinds}) and {outcome.idle:,} silent connections.")
    print(f"A healthy client wrote and read {outcome.read:,} records: none missing, doubled or out of order.")
    print(f"Memory of the node: {outcome.rss_mb_before:.0f} MB before, at most {outcome.rss_mb_max:.0f} MB.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
