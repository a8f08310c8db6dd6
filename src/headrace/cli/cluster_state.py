"""The state of a cluster in one look, and what is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.cli.cluster_view import TopicPartition, log_dirs, soon
from headrace.cli.connection import all_topics
from headrace.cli.findings import Finding, Level
from headrace.cli.quantities import plural, size_text
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.client import Client, ClusterInfo, Node, TopicInfo
    from headrace.client.admin import FeaturesInfo, LogDirInfo, QuorumInfo

DISK_LOW_SHARE: Final = 0.15
DISK_FULL_SHARE: Final = 0.05
NAMED_MAX: Final = 5


@dataclass(slots=True)
class ClusterState:
    info: ClusterInfo
    topics: dict[str, TopicInfo]
    directories: list[LogDirInfo]
    silent: dict[int, HeadraceError]
    """Brokers that don't tell their log directories, and why."""
    features: FeaturesInfo | None = None
    quorum: QuorumInfo | None = None
    quorum_failure: str = ""
    offline: list[TopicPartition] = field(default_factory=list)
    under_replicated: list[TopicPartition] = field(default_factory=list)
    elsewhere: list[TopicPartition] = field(default_factory=list)
    """Led by another broker than the one that should."""

    @property
    def controller(self) -> int:
        """Who leads the quorum. Brokers name any of theirs as the one to send changes to, and pass them on."""
        return self.info.controller_id if self.quorum is None else self.quorum.leader_id

    def leads(self, broker: int) -> int:
        return sum(
            partition.leader_id == broker for topic in self.topics.values() for partition in topic.partitions.values()
        )

    def directories_of(self, broker: int) -> list[LogDirInfo]:
        return [directory for directory in self.directories if directory.broker_id == broker]

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def is_too_old(self, broker: int) -> bool:
        """Whether it answers, and does not know what it was asked."""
        error = self.silent.get(broker)
        return isinstance(error, Refused) and error.error is Error.UNSUPPORTED_VERSION

    def is_fenced(self, node: Node) -> bool:
        return node.node_id in self.info.fenced_ids


async def look_at(client: Client) -> ClusterState:
    """All that one command may want to know. What is not told is left out."""
    try:
        info = await soon(client.admin.describe_cluster(fenced=True))
    except HeadraceError:  # before Kafka 4.0 nobody asks for fenced brokers
        info = await soon(client.admin.describe_cluster())
    topics = await all_topics(client)
    serving = [node.node_id for node in info.nodes if node.node_id not in info.fenced_ids]
    directories, silent = await log_dirs(client, serving)
    state = ClusterState(info, topics, directories, silent)
    await asyncio.gather(_add_features(client, state), _add_quorum(client, state))
    for name, topic in topics.items():
        for index, partition in topic.partitions.items():
            if partition.leader_id < 0:
                state.offline.append((name, index))
            elif len(partition.in_sync) < len(partition.replicas):
                state.under_replicated.append((name, index))
            elif partition.replicas and partition.leader_id != partition.replicas[0]:
                state.elsewhere.append((name, index))
    return state


async def _add_features(client: Client, state: ClusterState) -> None:
    try:
        state.features = await soon(client.admin.describe_features())
    except HeadraceError:
        state.features = None


async def _add_quorum(client: Client, state: ClusterState) -> None:
    try:
        state.quorum = await soon(client.admin.describe_quorum())
    except HeadraceError as error:
        state.quorum_failure = str(error)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def cluster_findings(state: ClusterState) -> Iterator[Finding]:
    """What there is to say of a cluster, the good too."""
    yield from _controller(state)
    yield from _brokers(state)
    yield from _partitions(state)
    yield from _directories(state)
    yield from _quorum(state)


def _controller(state: ClusterState) -> Iterator[Finding]:
    if state.controller < 0:
        advice = "See who votes with `headrace quorum describe`, and start the controllers that are down."
        yield Finding(Level.PROBLEM, "controller", "Nobody leads the cluster: nothing can be created.", advice)
    else:
        yield Finding(Level.GOOD, "controller", f"Node {state.controller} takes changes.")


def _brokers(state: ClusterState) -> Iterator[Finding]:
    for node in state.info.nodes:
        where = f"broker {node.node_id}"
        if state.is_fenced(node):
            text = f"{node.host}:{node.port} is registered and not in service."
            yield Finding(Level.PROBLEM, where, text, "Start it, or wait until it has caught up.")
        elif state.is_too_old(node.node_id):
            text = f"{node.host}:{node.port} is in service, and can't tell how large its data is."
            yield Finding(Level.NOTE, where, text)
        elif node.node_id in state.silent:
            text = f"{node.host}:{node.port} does not tell its log directories: {state.silent[node.node_id]}"
            advice = "Check that its advertised listener can be reached from here: `headrace doctor` tries it."
            yield Finding(Level.WARNING, where, text, advice)
        else:
            yield Finding(Level.GOOD, where, f"{node.host}:{node.port} is in service.")


def _partitions(state: ClusterState) -> Iterator[Finding]:
    if state.offline:
        text = f"{plural(len(state.offline), 'partition')} without a leader: {_named(state.offline)}."
        topic = state.offline[0][0]
        advice = f"Start the brokers that have replicas: `headrace topic describe {topic}` names them."
        yield Finding(Level.PROBLEM, "partitions", text, advice)
    if state.under_replicated:
        text = f"{plural(len(state.under_replicated), 'partition')} under-replicated: {_named(state.under_replicated)}."
        topic = state.under_replicated[0][0]
        advice = f"Look for brokers that are down or slow: `headrace topic describe {topic}` shows who is missing."
        yield Finding(Level.WARNING, "partitions", text, advice)
    if state.elsewhere:
        count = plural(len(state.elsewhere), "partition")
        text = f"{count} led by another broker than the preferred one: {_named(state.elsewhere)}."
        yield Finding(Level.NOTE, "leaders", text, "The cluster moves them back by itself in a while.")
    if not state.offline and not state.under_replicated:
        text = f"All {plural(state.partition_count, 'partition')} of {plural(len(state.topics), 'topic')} are in sync."
        if not state.topics:
            text = "There are no topics yet."
        yield Finding(Level.GOOD, "partitions", text)


def _directories(state: ClusterState) -> Iterator[Finding]:
    for directory in state.directories:
        where = f"{directory.path} of broker {directory.broker_id}"
        if directory.error is not Error.NONE:
            text = f"{where} is offline ({directory.error.name})."
            advice = "Look at the disk and at the broker's log; the broker takes it back at its next start."
            yield Finding(Level.PROBLEM, "log dirs", text, advice)
            continue
        if directory.total_bytes <= 0:
            continue
        share = directory.usable_bytes / directory.total_bytes
        free, total = size_text(directory.usable_bytes), size_text(directory.total_bytes)
        text = f"{where} has {free} of {total} free ({share:.0%})."
        advice = (
            "See what takes the room with `headrace topic list --sort size`, then shorten retention with `headrace "
            "config set --topic NAME retention.bytes=10GiB`, or make the disk larger."
        )
        if share < DISK_FULL_SHARE:
            yield Finding(Level.PROBLEM, "disk", text, advice)
        elif share < DISK_LOW_SHARE:
            yield Finding(Level.WARNING, "disk", text, advice)
        else:
            yield Finding(Level.GOOD, "disk", text)


def _quorum(state: ClusterState) -> Iterator[Finding]:
    quorum = state.quorum
    if quorum is None:
        yield Finding(Level.NOTE, "quorum", f"It is not told: {state.quorum_failure}")
        return
    end = max((voter.log_end_offset for voter in quorum.voters), default=0)
    behind = [voter for voter in quorum.voters if voter.log_end_offset < 0 or end - voter.log_end_offset > 1000]
    if quorum.leader_id < 0:
        advice = "Start controllers until a majority is up."
        yield Finding(Level.PROBLEM, "quorum", "The metadata quorum has no leader.", advice)
    elif behind:
        names = ", ".join(str(voter.replica_id) for voter in behind)
        advice = "See how far they are with `headrace quorum describe`, and start those that are down."
        yield Finding(Level.WARNING, "quorum", f"Voters that are behind or silent: {names}.", advice)
    else:
        text = f"{plural(len(quorum.voters), 'voter')}, led by {quorum.leader_id}, all caught up."
        yield Finding(Level.GOOD, "quorum", text)


def _named(partitions: list[TopicPartition]) -> str:
    names = ", ".join(f"{topic}-{index}" for topic, index in partitions[:NAMED_MAX])
    more = len(partitions) - NAMED_MAX
    return f"{names} and {more} more" if more > 0 else names
