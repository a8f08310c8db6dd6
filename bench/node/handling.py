"""What a produce request costs inside of a node, without the sockets: `python -m bench.node.handling [TREE …]`.

Each tree is a checkout of ours with its kernels compiled; by default it is this one. A node of its code is fed frames,
as the loop would, by a connection whose transport throws the replies away. Trees take turns in processes of their own;
what counts is the least of many short blocks, which no other work on the machine can make smaller. So it shows
differences of a tenth of a microsecond, where a load over sockets shows those of one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.node.report import show

CASES: Final = {"1 a read": 1, "5 a read": 5, "50 a read": 50}
BLOCK: Final = 100
"""Requests; short enough that many a block is not interrupted."""
BLOCKS: Final = 500


async def feed(folder: str, batch: int) -> float:
    """Microseconds for a request of one record, with so many in a read."""
    from headrace.broker.local import local_ports
    from headrace.broker.node import Node
    from headrace.config import NodeConfig
    from headrace.net.connection import Connection
    from headrace.protocol import messages as m
    from headrace.protocol.batch_builder import build
    from headrace.protocol.frame import write_request

    class Transport(asyncio.Transport):
        def write(self, data: Any) -> None:
            pass

        def writelines(self, list_of_data: Any) -> None:
            pass

        def pause_reading(self) -> None:
            pass

        def resume_reading(self) -> None:
            pass

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

        def get_write_buffer_size(self) -> int:
            return 0

        def close(self) -> None:
            connection.connection_lost(None)

        def abort(self) -> None:
            pass

    loop = asyncio.get_running_loop()
    node = Node(NodeConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder}), local_ports(loop))
    await node.start()
    assert node._listeners is not None
    connection = Connection(node._listeners.all[0])
    connection.connection_made(Transport())

    def receive(data: bytes) -> None:
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))

    topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    receive(b"".join(write_request(m.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, 1, "bench")))
    await asyncio.sleep(0.3)
    records = build([(None, os.urandom(100), (), int(time.time() * 1000))])
    data = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    named = m.ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    request = m.ProduceRequest(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=[named])
    frames = b"".join(write_request(request, 9, 1, "bench")) * batch
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 1, 3000)  # as `headrace serve` has it
    least = float("inf")
    for _ in range(BLOCKS):
        began = time.thread_time_ns()
        for _ in range(BLOCK // batch):
            receive(frames)
        least = min(least, (time.thread_time_ns() - began) / (BLOCK // batch * batch) / 1000)
        await asyncio.sleep(0)
    await node.stop()
    return least


def child(batch: int) -> None:
    import uvloop

    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        print(uvloop.run(feed(folder, batch)))


def measure(tree: Path, batch: int) -> float:
    here = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}:{here}", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "bench.node.handling", "--child", str(batch)]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    rows = []
    trees = arguments.trees or [Path(__file__).parents[2]]
    for name, batch in CASES.items():
        spent: dict[Path, list[float]] = {tree: [] for tree in trees}
        for _ in range(arguments.rounds):
            for tree, found in spent.items():
                found.append(measure(tree, batch))
        cells = [f"{min(found):.2f} ({statistics.median(found):.2f})" for found in spent.values()]
        rows.append([name, *cells])
    show(
        "A produce request of one record inside of a node",
        "µs of CPU, the least block of all runs (and the median of the runs' least)",
        ["frames", *map(str, trees)],
        rows,
    )


if __name__ == "__main__":
    main()
