"""The clients: pre-encoded requests over raw sockets, which cost next to nothing, and librdkafka, as users have it.

Both are C, compiled at first use: `wire_load.c` and `rdkafka_load.c`. A client in Python would be what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.protocol.frame import write_request

PARTITIONS: Final = 2
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11  # the last one whose fields are at fixed places
IN_FLIGHT: Final = 5
"""What the Java client does by default; librdkafka has no such limit unless it is idempotent."""
FETCH_BYTES: Final = 1 << 20
SLICE_S: Final = 0.5
"""The raw client tells of so long at a time."""
BINARIES: Final = Path(__file__).parents[2] / "build" / "bench"


class Work(NamedTuple):
    """What a client sends: so many records of this size, so many in a batch, one batch in a request."""

    record_bytes: int
    batch: int
    records: int
    acks: int = 1

    @property
    def requests(self) -> int:
        return max(1, self.records // self.batch)


class Result(NamedTuple):
    wall_s: float
    cpu_s: float
    """The client's own."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0
    bytes: int = 0
    replies: int = 0
    slices: Sequence[tuple[int, Sequence[int]]] = ()
    """With a rate: what the host stole in each, in ticks, and what each request took that was due in it, in µs."""


class Running:
    """A client at work; `result` waits for its end."""

    def __init__(self, command: Sequence[str], folder: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self._folder = folder
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    @property
    def is_done(self) -> bool:
        return self._child.poll() is not None

    def result(self) -> Result:
        printed, _ = self._child.communicate()
        if self._folder is not None:
            self._folder.cleanup()
        if self._child.returncode:
            raise RuntimeError("the load client failed")
        return Result(**json.loads(printed))

    def stop(self) -> None:
        self._child.kill()
        self._child.communicate()
        if self._folder is not None:
            self._folder.cleanup()


# --------------------------------------------------------------------------------------------------------- the raw one


def produce(
    bootstrap: str,
    topic: str,
    work: Work,
    *,
    rate: float = 0,
    partitions: int = PARTITIONS,
    in_flight: int = IN_FLIGHT,
) -> Running:
    """One connection a partition. Without a rate, `in_flight` requests are under way on each."""
    frames = [_produce_frame(topic, partition, work) for partition in range(partitions)]
    error_at = 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4  # size, correlation id, tags, topics, name, partitions, index
    return ask(bootstrap, frames, work.requests, error_at, rate=rate, in_flight=in_flight)


def ask(
    bootstrap: str, frames: Sequence[bytes], requests: int, error_at: int, *, rate: float = 0, in_flight: int = 1
) -> Running:
    """Any request, again and again: one connection a frame. `error_at` is where a reply has its error."""
    return _wire("ask", bootstrap, (requests, rate, in_flight, error_at), frames)


def fetch(bootstrap: str, topic: str, end_offset: int, *, partitions: int = PARTITIONS) -> Running:
    """Reads every partition from its start, one fetch of up to a megabyte at a time on a connection each."""
    frames = [_fetch_frame(topic, partition, 0) for partition in range(partitions)]
    marked = _fetch_frame(topic, 0, 0x0102030405060708)
    offset_at = marked.index(bytes(range(1, 9)))
    error_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    records_at = error_at + 2 + 8 + 8 + 8 + 4 + 4 + 4  # offsets, no aborted transactions, preferred replica, size
    return _wire("fetch", bootstrap, (end_offset, offset_at, error_at, records_at), frames)


def _wire(kind: str, bootstrap: str, numbers: Sequence[float], frames: Sequence[bytes]) -> Running:
    folder = tempfile.TemporaryDirectory(prefix="headrace-load-")
    paths = []
    for number, frame in enumerate(frames):
        paths.append(f"{folder.name}/{number}")
        Path(paths[-1]).write_bytes(frame)
    return Running([str(compiled("wire_load")), kind, bootstrap.rpartition(":")[2], *map(str, numbers), *paths], folder)


def compiled(name: str, *options: str) -> Path:
    """The program of a source beside this file."""
    source, binary = Path(__file__).with_name(f"{name}.c"), BINARIES / name
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        BINARIES.mkdir(parents=True, exist_ok=True)
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", str(binary), str(source), *options], check=True)
    return binary


def _produce_frame(topic: str, partition: int, work: Work) -> bytes:
    now_ms = int(time.time() * 1000)
    records = build([(None, os.urandom(work.record_bytes), (), now_ms) for _ in range(work.batch)])
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = m.ProduceRequest(transactional_id=None, acks=work.acks, timeout_ms=30_000, topic_data=[named])
    return b"".join(write_request(request, PRODUCE_VERSION, 1, "bench"))


def _fetch_frame(topic: str, partition: int, offset: int) -> bytes:
    asked = m.FetchRequest.FetchPartition(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    named = m.FetchRequest.FetchTopic(topic=topic, partitions=[asked])
    request = m.FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_epoch=-1, topics=[named]
    )
    return b"".join(write_request(request, FETCH_VERSION, 1, "bench"))


# ---------------------------------------------------------------------------------------------------------- librdkafka


def librdkafka(kind: str, bootstrap: str, topic: str, work: Work) -> Running:
    """`produce` or `consume`."""
    numbers = (PARTITIONS, work.record_bytes, work.batch, work.records, work.acks)
    library = next(_libraries().glob("librdkafka*.so*"))
    binary = compiled("rdkafka_load", str(library), f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined")
    return Running([str(binary), kind, bootstrap, topic, *map(str, numbers)])


def _libraries() -> Path:
    """What the wheel of confluent-kafka brings; finding it needs no import of it."""
    found = find_spec("confluent_kafka")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parents[1] / "confluent_kafka.libs"
