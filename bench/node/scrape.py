"""A scrape of many partitions: how long it takes, and how long it holds the loop up at most.

`python -m bench.node.scrape [--partitions 10000] [--topics 10]`. The node is in this process, on a folder of its own;
between the steps of a page another callback of the loop looks at the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator

import uvloop

from bench.node.report import show
from headrace.broker.local import local_ports
from headrace.broker.node import Node
from headrace.config import NodeConfig
from headrace.metrics.exposition import Form
from headrace.net.peer import Peer
from headrace.protocol import messages as m


async def scrape(pages: Callable[[Form], Iterator[str]]) -> tuple[float, float, int]:
    """Seconds of CPU, the longest step in seconds, and bytes."""
    longest = size = 0.0
    began = time.thread_time()
    steps = pages(Form.PROMETHEUS)
    while True:
        start = time.thread_time()
        part = next(steps, None)
        longest = max(longest, time.thread_time() - start)
        if part is None:
            return time.thread_time() - began, longest, int(size)
        size += len(part)
        await asyncio.sleep(0)


async def measure(partitions: int, topics: int, rounds: int) -> list[list[str]]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        loop = asyncio.get_running_loop()
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder, "http.listen": "off"}
        node = Node(NodeConfig.parse(settings), local_ports(loop))
        await node.start()
        peer = Peer("127.0.0.1", node.endpoints[0].port, "bench")
        await peer.connect(10)
        kind = m.CreateTopicsRequest
        for number in range(topics):
            topic = kind.CreatableTopic(name=f"t{number}", num_partitions=partitions // topics, replication_factor=1)
            await peer.call(kind(topics=[topic], timeout_ms=60_000), 5, 120)
        metrics = node._observation._metrics
        assert metrics is not None
        while f"headrace_partitions {partitions}\n" not in "".join(metrics.pages(Form.PROMETHEUS)):
            await asyncio.sleep(0.5)
        rows = []
        for name, pages in (("/metrics", metrics.pages), ("/metrics/partitions", metrics.partition_pages)):
            found = [await scrape(pages) for _ in range(rounds)]
            cpu_s, longest_s, size = min(one[0] for one in found), min(one[1] for one in found), found[0][2]
            rows.append([name, f"{cpu_s * 1e3:.1f}", f"{longest_s * 1e3:.2f}", f"{size / 1e6:.2f}"])
        peer.close()
        await node.stop()
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = uvloop.run(measure(arguments.partitions, arguments.topics, arguments.rounds))
    show(
        f"A scrape of {arguments.partitions} partitions of {arguments.topics} topics",
        "the least of all rounds",
        ["page", "CPU, ms", "longest step, ms", "MB"],
        rows,
    )


if __name__ == "__main__":
    main()
