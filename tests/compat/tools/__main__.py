"""Runs Kafka's own Java tools and kcat against a node of ours, and writes docs/compat.md:

    python -m tests.compat.tools                 everything
    python -m tests.compat.tools groups files    some sections; the page is left as it is

Needs Java 17 or newer, and Maven on the first run. Ends with 1 when something fails. Set KAFKA_HOME to say where
the jars are kept.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.errors import HeadraceError
from tests.compat.process import Process
from tests.compat.tools import (
    cluster,
    configs,
    disks,
    files,
    groups,
    kcat,
    performance,
    programs,
    records,
    topics,
    transactions,
)
from tests.compat.tools.page import page
from tests.compat.tools.run import Run

PAGE: Final = Path(__file__).parents[3] / "docs" / "compat.md"

# A group waits for three seconds for more members by default, which would be most of the time of many a command.
SETTINGS: Final = ("--set", "group.initial.rebalance.delay.ms=200")

SECTIONS: Final = {
    "topics": topics.run,
    "configs": configs.run,
    "cluster": cluster.run,
    "records": records.run,
    "groups": groups.run,
    "transactions": transactions.run,
    "performance": performance.run,
    "kcat": kcat.run,
    "disks": disks.run,
}
FILES: Final = "files"

UNSERVED: Final = (
    ("kafka-share-groups, kafka-console-share-consumer and the like", "share groups (KIP-932) are not served"),
    ("kafka-streams-groups", "groups of Streams (KIP-1071) are not served; Streams' classic groups are"),
    ("kafka-delegation-tokens", "there is no authentication yet"),
    ("kafka-metadata-quorum add-controller, remove-controller", "there is one controller"),
    ("kafka-replica-verification", "there is one replica to compare"),
    ("kafka-jmx", "there is no JVM; metrics are told over HTTP"),
    ("kafka-server-start, kafka-server-stop", "they start and stop Kafka itself"),
    ("connect-*, kafka-streams-application-reset, kafka-metadata-shell, trogdor", "they are in no jar that is fetched"),
)


def main(arguments: Sequence[str]) -> int:
    names = [*SECTIONS, FILES]
    if "--help" in arguments or "-h" in arguments:
        print(f"{__doc__}\nsections: {' '.join(names)}")
        return 0
    if unknown := [name for name in arguments if name not in names]:
        print(f"compat: there is no section {unknown[0]}; there are {', '.join(names)}.", file=sys.stderr)
        return 2
    try:
        programs.require()
        return judge(arguments or names, is_whole=not arguments)
    except HeadraceError as error:
        print(f"compat: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ncompat: stopped.", file=sys.stderr)
        return 130


def judge(names: Sequence[str], is_whole: bool) -> int:
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-compat-") as folder:
        done = run_all(Path(folder), names)
    minutes, seconds = divmod(round(time.monotonic() - began_s), 60)
    print(f"\n{len(done.steps) - len(done.failures)} of {len(done.steps)} are well, in {minutes} min {seconds} s.")
    for step in done.failures:
        print(f"FAILED  {step.line}\n        {step.why}")
    if is_whole:
        PAGE.write_text(
            page(done.sections, [*programs.conditions(), ("settings", f"all defaults, but {SETTINGS[1]}")], UNSERVED)
        )
        print(f"The table is in {PAGE}.")
    return 1 if done.failures else 0


def run_all(folder: Path, names: Sequence[str]) -> Run:
    node = Process(folder / "data", *SETTINGS)
    node.start()
    run = Run(folder, node.bootstrap)
    try:
        for name, section in SECTIONS.items():
            if name in names:
                section(run)
        code = node.stop()
        run.begin("The node", "What it was asked must not have upset it.")
        run.check("SIGTERM to the node", "exit code 0", "" if code == 0 else f"it ended with {code}: {node.said}")
        run.check("the node's log", "no failure inside", "".join(node.defects))
    finally:
        if node.is_running:
            node.kill()
    if FILES in names:
        files.run(run)
    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
