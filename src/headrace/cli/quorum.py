"""`headrace quorum`: who votes on the metadata of a cluster, who follows, and how far each has come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from headrace.cli.columns import Cell, Column
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Json, run
from headrace.cli.output import BAD, GOOD, NAME, QUIET, WARN, print_facts, print_json, print_table, say
from headrace.cli.quantities import count_text
from headrace.cli.topic_view import topic_id_text

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.client.admin import QuorumInfo, QuorumReplica

app = typer.Typer(
    help="Look at the quorum that keeps a cluster's metadata.\n\n"
    "Where the cluster is: --bootstrap HOST:PORT, or the variable HEADRACE_BOOTSTRAP.\n\n"
    "Examples:\n\n"
    "- `headrace quorum describe`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


@app.callback()
def quorum() -> None:
    """Look at the quorum that keeps a cluster's metadata."""


@app.command("describe")
def describe(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show who leads the metadata quorum, who votes, who only follows, and how far each has come.

    Examples:

    - `headrace quorum describe`
    - `headrace quorum describe --json`
    """

    async def work(client: Client) -> tuple[QuorumInfo, str]:
        return await client.admin.describe_quorum(), (await client.admin.describe_cluster()).cluster_id

    found, cluster_id = run(bootstrap, work, once=True)
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        print_json(quorum_json(found, cluster_id))
        return
    say(Text.assemble(("metadata quorum of cluster ", "bold"), (cluster_id, f"bold {NAME}")))
    facts: list[tuple[str, Cell]] = [
        ("leader", Text("none", BAD) if found.leader_id < 0 else str(found.leader_id)),
        ("epoch", str(found.leader_epoch)),
        ("high watermark", count_text(found.high_watermark)),
    ]
    print_facts(facts, indent="  ")
    say("")
    columns = [
        Column(">node", NAME),
        Column("role"),
        Column(">log end", rank=2),
        Column(">behind"),
        Column("last fetch", rank=2),
        Column("caught up", rank=1),
        Column("listens at", rank=3),
        Column("directory", QUIET, rank=4),
    ]
    print_table(columns, [_cells(found, replica, now_ms) for replica in _replicas(found)], indent="  ")


def _replicas(found: QuorumInfo) -> list[QuorumReplica]:
    return sorted([*found.voters, *found.observers], key=lambda one: (one not in found.voters, one.replica_id))


def _role(found: QuorumInfo, replica: QuorumReplica) -> str:
    if replica not in found.voters:
        return "observer"
    return "leader" if replica.replica_id == found.leader_id else "voter"


def _lag(found: QuorumInfo, replica: QuorumReplica) -> int | None:
    end = max((one.log_end_offset for one in found.voters), default=-1)
    return None if replica.log_end_offset < 0 else max(0, end - replica.log_end_offset)


def _cells(found: QuorumInfo, replica: QuorumReplica, now_ms: int) -> list[Cell]:
    role, lag = _role(found, replica), _lag(found, replica)
    is_leader = role == "leader"
    places = ", ".join(f"{host}:{port}" for _, host, port in found.endpoints.get(replica.replica_id, ()))
    return [
        str(replica.replica_id),
        Text(role, GOOD if is_leader else ""),
        count_text(replica.log_end_offset) if replica.log_end_offset >= 0 else "?",
        Text("?", WARN) if lag is None else Text(count_text(lag), WARN if lag > 1000 else ""),
        "-" if is_leader else ago_text(replica.last_fetch_ms, now_ms),
        "-" if is_leader else ago_text(replica.last_caught_up_ms, now_ms),
        places or "-",
        topic_id_text(replica.directory_id),
    ]


def ago_text(then_ms: int, now_ms: int) -> str:
    """How long ago, in the largest unit that says something."""
    if then_ms < 0:
        return "?"
    ago_s = max(0, now_ms - then_ms) / 1000
    for size_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if ago_s >= 2 * size_s:
            return f"{ago_s / size_s:.0f} {unit} ago"
    return f"{ago_s:.1f} s ago" if ago_s < 10 else f"{ago_s:.0f} s ago"


def quorum_json(found: QuorumInfo, cluster_id: str) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "replicas": [
            {
                "node": replica.replica_id,
                "role": _role(found, replica),
                "directory_id": topic_id_text(replica.directory_id),
                "log_end_offset": replica.log_end_offset,
                "lag": _lag(found, replica),
                "last_fetch_ms": replica.last_fetch_ms if replica.last_fetch_ms >= 0 else None,
                "last_caught_up_ms": replica.last_caught_up_ms if replica.last_caught_up_ms >= 0 else None,
                "endpoints": [
                    {"listener": listener, "host": host, "port": port}
                    for listener, host, port in found.endpoints.get(replica.replica_id, ())
                ],
            }
            for replica in _replicas(found)
        ],
    }
