"""python -m headrace.testing.sim --scenario module:function --seeds 1000     a campaign, on all cores
python -m headrace.testing.sim --scenario module:function --seed 17        one seed, with the end of its trace
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from headrace.cores import cores
from headrace.errors import HeadraceError
from headrace.testing.sim.campaign import Campaign, Failure, find_scenario
from headrace.testing.sim.run import run_seed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m headrace.testing.sim", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--scenario", required=True, help="module:function")
    parser.add_argument("--seeds", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=cores(), help="worker processes (default: one a core)")
    parser.add_argument("--failures-max", type=int, default=20, help="stop after so many (default: 20)")
    parser.add_argument("--resume", action="store_true", help="leave out the seeds that this code has run already")
    parser.add_argument("--state", type=Path, default=Path("build/sim"), help="where that is written down")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of --seed")
    parser.add_argument("--digest", action="store_true", help="print nothing but the digest of --seed")
    options = parser.parse_args(arguments)
    try:
        if options.seed is not None:
            return _one(options.scenario, options.seed, trace=options.trace, digest=options.digest)
        return _many(options)
    except HeadraceError as error:
        print(f"sim: {error}", file=sys.stderr)
        return 2


def _one(scenario: str, seed: int, *, trace: bool, digest: bool) -> int:
    run = run_seed(find_scenario(scenario), seed, keep_trace=trace)
    if digest:
        print(run.digest)
        return 0
    if trace or not run.is_ok:
        print("\n".join(run.trace))
    print(
        f"seed {seed}: {run.failure or 'ok'}\n{run.steps:,} callbacks, {run.simulated_seconds:.1f} simulated s, "
        f"{run.cpu_seconds:.2f} CPU-s, digest {run.digest}"
    )
    return 0 if run.is_ok else 1


def _many(options: argparse.Namespace) -> int:
    def on_failure(failure: Failure) -> None:
        print(
            f"seed {failure.seed} failed: {failure.text}\n"
            f"  again: python -m headrace.testing.sim --scenario {options.scenario} --seed {failure.seed}",
            flush=True,
        )

    find_scenario(options.scenario)
    state = options.state / (options.scenario.replace(":", ".") + ".jsonl")
    campaign = Campaign(
        options.scenario, options.first, options.seeds, options.jobs, options.failures_max, state, on_failure
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its workers would wait for ever for who was ended
    try:
        tally = campaign.run(resume=options.resume)
    except KeyboardInterrupt:
        print("stopped; go on with --resume", file=sys.stderr)
        return 130
    print(f"{options.scenario}: {tally}")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
