"""Runs a fuzzer over many seeds on all cores, and says how far it is."""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from time import monotonic

SLICE_INPUTS = 10_000


def run(campaign: Callable[[int, int], tuple[int, int]], description: str | None) -> None:
    """`campaign(seed, inputs)` tries so many inputs; it returns how many could be read, and how many it tried."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    starts = range(0, arguments.inputs, SLICE_INPUTS)
    seeds = [arguments.seed * 1_000_003 + number for number in range(len(starts))]
    sizes = [min(SLICE_INPUTS, arguments.inputs - start) for start in starts]
    started, readable, done = monotonic(), 0, 0
    with ProcessPoolExecutor(arguments.processes) as pool:
        for part_readable, part in pool.map(campaign, seeds, sizes):
            readable, done = readable + part_readable, done + part
            rate = done / (monotonic() - started)
            print(f"\r{done:>12,} of {arguments.inputs:,} inputs, {rate:,.0f} a second", end="", flush=True)
    print(f"\n{done:,} inputs, of which {readable:,} could be read: always an answer, or one kind of error")
