"""What `headrace doctor` looks at of a running cluster: whether it answers, where it says that it is, its health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace.cli.cluster_state import ClusterState, cluster_findings, look_at
from headrace.cli.cluster_view import soon
from headrace.cli.findings import Finding, Level
from headrace.config.listeners import host_and_port
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client import Client, Node

REACH_TIMEOUT_S: Final = 5.0
SKEW_MS_MAX: Final = 1000


async def examine(client: Client, bootstrap: str) -> tuple[ClusterState, list[Finding]]:
    """The state of the cluster and all that there is to say of it."""
    state = await look_at(client)
    findings = [Finding(Level.GOOD, "reachable", f"{bootstrap} is cluster {state.info.cluster_id}.")]
    findings += await listener_findings([node for node in state.info.nodes if not state.is_fenced(node)])
    findings += [finding async for finding in _skew(client)]
    findings += list(cluster_findings(state))
    return state, findings


async def listener_findings(nodes: Sequence[Node]) -> list[Finding]:
    """Clients are sent to where a broker says that it listens; that this works from here is worth a try."""
    found: list[Finding] = []
    for node, failure in zip(nodes, await asyncio.gather(*map(_reach, nodes)), strict=True):
        where = host_and_port(node.host, node.port)
        if not failure:
            text = f"Broker {node.node_id} can be reached at {where}, as it says."
            found.append(Finding(Level.GOOD, "listener", text))
            continue
        advice = (
            "Clients are sent there too: set advertised.listeners of the broker to an address that they can reach, "
            "as in `headrace serve --set advertised.listeners=PLAINTEXT://log.example.net:9092`."
        )
        text = f"Broker {node.node_id} says that it listens at {where}, and can't be reached there ({failure})."
        found.append(Finding(Level.PROBLEM, "listener", text, advice))
    return found


async def _reach(node: Node) -> str:
    """Why a connection fails; empty when it does not."""
    try:
        async with asyncio.timeout(REACH_TIMEOUT_S):
            _, writer = await asyncio.open_connection(node.host, node.port)
    except TimeoutError:
        return f"no answer within {REACH_TIMEOUT_S:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except (ValueError, OverflowError):  # of what looks up names, and of ports beyond 65535
        return "there can be no such address"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""


async def _skew(client: Client) -> AsyncIterator[Finding]:
    """The leader of the quorum stamps its own state with its clock; half of the way is taken off."""
    before_ms = time.time() * 1000
    try:
        quorum = await soon(client.admin.describe_quorum())
    except HeadraceError:
        return
    now_ms = (before_ms + time.time() * 1000) / 2
    told = next((voter.last_caught_up_ms for voter in quorum.voters if voter.replica_id == quorum.leader_id), -1)
    if told <= 0:
        return
    skew_ms = told - now_ms
    text = f"The clock of node {quorum.leader_id} is {_skew_text(skew_ms)} this machine's."
    if abs(skew_ms) <= SKEW_MS_MAX:
        yield Finding(Level.GOOD, "time", text)
    else:
        advice = "Keep the clocks of all machines right with an NTP client: records are found and deleted by time."
        yield Finding(Level.WARNING, "time", text, advice)


def _skew_text(skew_ms: float) -> str:
    if abs(skew_ms) < 100:
        return "within 0.1 s of"
    return f"{abs(skew_ms) / 1000:.1f} s {'ahead of' if skew_ms > 0 else 'behind'}"
