"""`headrace cluster`: its brokers, its features, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from headrace.cli.cluster_state import ClusterState, cluster_findings, look_at
from headrace.cli.columns import Cell, Column
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Json, run
from headrace.cli.findings import Level, print_findings
from headrace.cli.output import BAD, GOOD, NAME, QUIET, WARN, print_facts, print_json, print_table, remark, say
from headrace.cli.quantities import count_text, plural, size_text
from headrace.errors import Error

if TYPE_CHECKING:
    from headrace.client import Client, Node
    from headrace.client.admin import FeaturesInfo, LogDirInfo

app = typer.Typer(
    help="Look at a cluster: its brokers, its features, and what is wrong with it.\n\n"
    "Where the cluster is: --bootstrap HOST:PORT, or the variable HEADRACE_BOOTSTRAP.\n\n"
    "Examples:\n\n"
    "- `headrace cluster describe`\n"
    "- `headrace cluster features`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


@app.command("describe")
def describe(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the brokers of a cluster, how full they are, and what is wrong and which command helps.

    Examples:

    - `headrace cluster describe`
    - `headrace cluster describe --bootstrap kafka.example.net:9092 --json`
    """
    state = run(bootstrap, look_at, once=True)
    if as_json:
        print_json(state_json(state))
    else:
        print_state(state)


def print_state(state: ClusterState) -> None:
    info = state.info
    say(Text.assemble(("cluster ", "bold"), (info.cluster_id, f"bold {NAME}")))
    fenced = f", {len(info.fenced_ids)} not in service" if info.fenced_ids else ""
    facts: list[tuple[str, Cell]] = [
        ("brokers", f"{len(info.nodes)}{fenced}"),
        ("controller", Text("none", BAD) if state.controller < 0 else f"node {state.controller}"),
        ("topics", f"{count_text(len(state.topics))} with {plural(state.partition_count, 'partition')}"),
    ]
    if state.quorum is not None:
        voters = ", ".join(str(voter.replica_id) for voter in state.quorum.voters)
        facts.append(("quorum", f"voters {voters}, in epoch {state.quorum.leader_epoch}"))
    if state.features is not None and (level := state.features.finalized.get("metadata.version")):
        facts.append(("metadata.version", str(level[1])))
    print_facts(facts, indent="  ")
    say("")
    columns = [
        Column(">broker", NAME),
        Column("address"),
        Column("rack", rank=5),
        Column("state"),
        Column(">leads", rank=2),
        Column(">replicas", rank=3),
        Column(">data", rank=1),
        Column(">disk free", rank=1),
    ]
    print_table(columns, [_broker_cells(state, node) for node in info.nodes], indent="  ")
    if any(len(state.directories_of(node.node_id)) > 1 for node in info.nodes):
        say("")
        _print_directories(state)
    wrong = [finding for finding in cluster_findings(state) if finding.level is not Level.GOOD]
    say("")
    if wrong:
        print_findings(wrong)
    else:
        say("  nothing is wrong", GOOD)


def _broker_cells(state: ClusterState, node: Node) -> list[Cell]:
    directories = state.directories_of(node.node_id)
    offline = [directory for directory in directories if directory.error is not Error.NONE]
    told = node.node_id not in state.silent and directories
    if state.is_fenced(node):
        status = Text("not in service", BAD)
    elif offline:
        status = Text(f"{plural(len(offline), 'directory')} offline".replace("directorys", "directories"), BAD)
    elif node.node_id in state.silent and not state.is_too_old(node.node_id):
        status = Text("does not answer", WARN)
    else:
        status = Text("ok", GOOD)
    return [
        str(node.node_id),
        f"{node.host}:{node.port}",
        node.rack or "-",
        status,
        count_text(state.leads(node.node_id)),
        count_text(sum(len(directory.replicas) for directory in directories)) if told else "?",
        size_text(sum(directory.size_bytes for directory in directories)) if told else "?",
        _least_free(directories),
    ]


def _least_free(directories: Sequence[LogDirInfo]) -> str:
    """Of the fullest disk. Directories may share one, which nobody tells, so that a sum could count it twice."""
    told = [directory for directory in directories if directory.total_bytes > 0]
    if not told:
        return "?"
    return f"{'at least ' if len(told) > 1 else ''}{_free(min(told, key=_free_share))}"


def _free(directory: LogDirInfo) -> str:
    return f"{size_text(directory.usable_bytes)} ({_free_share(directory):.0%})" if directory.total_bytes > 0 else "?"


def _free_share(directory: LogDirInfo) -> float:
    return directory.usable_bytes / directory.total_bytes


def _print_directories(state: ClusterState) -> None:
    columns = [
        Column(">broker", NAME),
        Column("directory"),
        Column("state"),
        Column(">replicas", rank=2),
        Column(">data", rank=1),
        Column(">disk free", rank=1),
    ]
    rows: list[list[Cell]] = [
        [
            str(directory.broker_id),
            directory.path,
            Text("ok", GOOD) if directory.error is Error.NONE else Text("offline", BAD),
            count_text(len(directory.replicas)),
            size_text(directory.size_bytes),
            _free(directory),
        ]
        for node in state.info.nodes
        for directory in state.directories_of(node.node_id)
    ]
    print_table(columns, rows, indent="  ")


def state_json(state: ClusterState) -> dict[str, Any]:
    return {
        "cluster_id": state.info.cluster_id,
        "controller": state.controller,
        "brokers": [
            {
                "broker": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "fenced": state.is_fenced(node),
                "leads": state.leads(node.node_id),
                "log_dirs": [
                    {
                        "path": directory.path,
                        "error": None if directory.error is Error.NONE else directory.error.name,
                        "replicas": len(directory.replicas),
                        "size_bytes": directory.size_bytes,
                        "usable_bytes": directory.usable_bytes,
                        "total_bytes": directory.total_bytes,
                    }
                    for directory in state.directories_of(node.node_id)
                ],
            }
            for node in state.info.nodes
        ],
        "topics": len(state.topics),
        "partitions": state.partition_count,
        "offline_partitions": [f"{topic}-{index}" for topic, index in state.offline],
        "under_replicated_partitions": [f"{topic}-{index}" for topic, index in state.under_replicated],
        "features": None if state.features is None else _features_json(state.features),
        "findings": [finding.as_json() for finding in cluster_findings(state)],
    }


@app.command("features")
def features(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the features of a cluster: at which level each is, and which levels its brokers support.

    Examples:

    - `headrace cluster features`
    """

    async def work(client: Client) -> FeaturesInfo:
        return await client.admin.describe_features()

    found = run(bootstrap, work, once=True)
    if as_json:
        print_json(_features_json(found))
        return
    names = sorted({*found.supported, *found.finalized})
    if not names:
        remark("The cluster tells of no features.")
        return
    columns = [Column("feature", NAME), Column(">level"), Column("supported", QUIET)]
    rows = [
        (
            name,
            str(found.finalized[name][1]) if name in found.finalized else "-",
            "-".join(map(str, found.supported[name])) if name in found.supported else "?",
        )
        for name in names
    ]
    print_table(columns, rows)


def _features_json(found: FeaturesInfo) -> dict[str, Any]:
    return {
        "epoch": found.epoch,
        "features": [
            {
                "name": name,
                "level": found.finalized[name][1] if name in found.finalized else None,
                "supported_min": found.supported[name][0] if name in found.supported else None,
                "supported_max": found.supported[name][1] if name in found.supported else None,
            }
            for name in sorted({*found.supported, *found.finalized})
        ],
    }
