"""How long a coordinator takes to load: `python -m bench.groups.loading`.

A node writes a million commits of offsets into one partition of `__consumer_offsets`, in batches of a hundred, and
stops. Its next start loads them; a ticker on the loop tells how long others had to wait meanwhile, and how much CPU
the loop took between two ticks: on a machine with other work that tells more.

The bar: a million commits in at most 10 s, in slices of at most 5 ms of the loop.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from headrace.broker.local import local_ports
from headrace.broker.node import Node
from headrace.cli.serve import COLLECTED
from headrace.config import NodeConfig
from headrace.coordinator.groups.shard import GroupShard
from headrace.coordinator.offsets.records import encode_commit, encode_key
from headrace.coordinator.shard import Outcome, StateRecord
from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.message import Message

BATCH = 100
TICK_S = 0.001
TOPIC = "a-topic-of-theirs"


class Count:
    """A reply that counts."""

    def __init__(self) -> None:
        self.left = 0
        self.done = asyncio.Event()

    def __call__(self, message: Message, /) -> None:
        self.left -= 1
        if self.left < 20:
            self.done.set()

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        raise SystemExit(f"{error.name}: {text}")


def config_of(folder: Path) -> NodeConfig:
    return NodeConfig.parse(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "offsets.topic.num.partitions": "1"}
    )


async def started(folder: Path) -> Node:
    config = config_of(folder)
    node = Node(config, local_ports(asyncio.get_running_loop()))
    await node.start()
    return node


async def write(folder: Path, commits: int, keys: int) -> None:
    node = await started(folder)
    coordinators = node._coordinators
    assert coordinators is not None
    await coordinators.topics.create("__consumer_offsets")
    await coordinators.topics._channel.call(
        m.CreateTopicsRequest(
            topics=[m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=50, replication_factor=1)],
            timeout_ms=5000,
        ),
        5.0,
    )
    while coordinators.groups.refusal(0):
        await asyncio.sleep(0.01)
    count = Count()
    for first in range(0, commits, BATCH):
        records = [
            StateRecord(
                encode_key(f"group-{key // 50}", TOPIC, key % 50),
                encode_commit(number, 3, "", 1_700_000_000_000, -1, bytes(16)),
            )
            for number in range(first, min(first + BATCH, commits))
            for key in (number % keys,)
        ]
        count.left += 1
        coordinators.groups.ask_shard(0, partial(_outcome, records, count), count)
        await asyncio.sleep(0)
        if count.left > 100:
            count.done.clear()
            await count.done.wait()
    while count.left:
        await asyncio.sleep(0.01)
    await node.stop()


def _outcome(records: list[StateRecord], reply: Count, shard: GroupShard, now_ms: int) -> Outcome:
    return Outcome(records, [(reply, Message())])


class Loaded(NamedTuple):
    seconds: float
    cpu_s: float
    late_s: list[float]
    """By how much the ticker was late, sorted."""
    held_s: list[float]
    """The CPU of the loop between two ticks, sorted: no other work on the machine adds to it."""
    offsets: int


async def load(folder: Path) -> Loaded:
    late_s, held_s = [], []
    loop = asyncio.get_running_loop()

    def tick(due_s: float, cpu_s: float) -> None:
        now_s, now_cpu_s = loop.time(), time.thread_time()
        late_s.append(now_s - due_s)
        held_s.append(now_cpu_s - cpu_s)
        loop.call_at(now_s + TICK_S, tick, now_s + TICK_S, now_cpu_s)

    node = await started(folder)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    coordinators = node._coordinators
    assert coordinators is not None
    tick(loop.time(), time.thread_time())
    while coordinators.groups.refusal(0):
        await asyncio.sleep(0.01)
    seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    hosted = coordinators.groups._hosted[0]
    assert hosted._shard is not None
    count = hosted._shard.offsets.store.count
    await node.stop()
    return Loaded(seconds, cpu_s, sorted(late_s), sorted(held_s), count)


def percentiles(seconds: list[float]) -> str:
    return f"{seconds[int(len(seconds) * 0.99)] * 1000:.1f} ms (p99), {seconds[-1] * 1000:.1f} ms (most)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000, help="different partitions of groups among them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(write(Path(folder), options.commits, options.keys))
        load_before = os.getloadavg()[0]
        loaded = uvloop.run(load(Path(folder)))
        print(
            f"{options.commits} commits, {loaded.offsets} offsets, in batches of {BATCH}; {os.cpu_count()} cores, load "
            f"{load_before:.1f} before\n"
            f"loaded in {loaded.seconds:.1f} s ({loaded.cpu_s:.1f} s of CPU)\n"
            f"a ticker of 1 ms was late by {percentiles(loaded.late_s)}\n"
            f"CPU of the loop between two ticks: {percentiles(loaded.held_s)}"
        )


if __name__ == "__main__":
    main()
