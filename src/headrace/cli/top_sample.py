"""One look at how busy a cluster is, and what two looks say together: rates, lag, latency, disks.

Any Kafka tells offsets, sizes and committed offsets, from which come rates in and how far groups are behind. Nodes of
ours tell more at /metrics: what goes out, bytes, and how long requests take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.cli.cluster_view import TopicPartition, leader_sizes, log_dirs, offsets, soon
from headrace.cli.connection import all_topics
from headrace.cli.doctor_bundle import metrics_address
from headrace.cli.group_view import GroupView, group_views
from headrace.cli.metrics_text import (
    Buckets,
    Samples,
    between,
    buckets,
    by_label,
    cluster_ids,
    merged,
    parse,
    percentile_s,
    read,
)
from headrace.client.offsets import LATEST
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client import Client, TopicInfo
    from headrace.client.admin import LogDirInfo


@dataclass(slots=True)
class Sample:
    at: float
    topics: dict[str, TopicInfo]
    ends: dict[TopicPartition, int]
    sizes: dict[TopicPartition, int]
    directories: list[LogDirInfo]
    groups: list[GroupView]
    brokers: list[int]
    controller: int
    cluster_id: str
    metrics: list[Samples] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def counted(self, name: str) -> dict[str, float] | None:
        """A counter by topic, over all nodes; None when no node tells it."""
        if not self.metrics:
            return None
        total: dict[str, float] = {}
        for samples in self.metrics:
            for topic, count in by_label(samples, name, "topic").items():
                total[topic] = total.get(topic, 0.0) + count
        return total


async def metrics_addresses(client: Client, given: Sequence[str] | None) -> list[str]:
    """Where the nodes tell their metrics: as given, or as their own settings say. Kafka's have no such place."""
    if given is not None:
        return list(given)
    from headrace.client import ConfigResource

    found = []
    cluster = await client.admin.describe_cluster()
    for node in cluster.nodes:
        resource = ConfigResource.broker(node.node_id)
        try:
            entries = (await soon(client.admin.describe_configs([resource])))[resource]
        except HeadraceError:
            continue
        entry = entries.get("http.listen")
        if address := metrics_address(None if entry is None else entry.value):
            found.append(address)
    return found


async def look(client: Client, addresses: Sequence[str], *, internal: bool, with_groups: bool = True) -> Sample:
    topics = {name: info for name, info in (await all_topics(client)).items() if internal or not info.is_internal}
    cluster = await client.admin.describe_cluster()
    brokers = [node.node_id for node in cluster.nodes]
    loop, failures = asyncio.get_running_loop(), list[str]()

    async def metrics(address: str) -> Samples | None:
        try:
            samples = parse(await loop.run_in_executor(None, read, address))
        except OSError as error:
            failures.append(f"no metrics from {address}: {getattr(error, 'reason', None) or error}")
            return None
        if cluster.cluster_id in cluster_ids(samples):
            return samples
        failures.append(f"{address} tells metrics of something else; say where this cluster's are: --metrics HOST:PORT")
        return None

    ends, (found, silent), told = await asyncio.gather(
        offsets(client, topics.values(), LATEST),
        log_dirs(client, brokers),
        asyncio.gather(*(metrics(address) for address in addresses)),
    )
    at = time.monotonic()
    failures += [str(error) for error in silent.values()]
    groups: list[GroupView] = []
    if with_groups:
        try:
            listed = await soon(client.admin.list_groups())
            groups = await group_views(client, listed, topics=topics, ends=ends if internal else None)
        except HeadraceError as error:
            failures.append(str(error))
    return Sample(
        at,
        topics,
        ends,
        leader_sizes(topics.values(), found),
        found,
        groups,
        brokers,
        cluster.controller_id,
        cluster.cluster_id,
        [samples for samples in told if samples is not None],
        failures,
    )


@dataclass(slots=True)
class TopicRate:
    name: str
    partitions: int
    records: int
    size_bytes: int | None
    records_in: float | None
    bytes_in: float | None
    records_out: float | None
    bytes_out: float | None


@dataclass(slots=True)
class GroupRate:
    name: str
    state: str
    kind: str
    lag: int | None
    reads: float | None
    """Records a second, by what is committed."""
    catches_up_s: float | None
    """At these rates; None when it does not, or is there."""


@dataclass(slots=True)
class ApiRate:
    name: str
    requests: float
    p50_s: float | None
    p99_s: float | None


@dataclass(slots=True)
class DiskUse:
    broker: int
    path: str
    size_bytes: int
    free_bytes: int | None
    total_bytes: int | None


@dataclass(slots=True)
class Picture:
    """What is shown."""

    seconds: float
    cluster_id: str
    brokers: int
    controller: int
    topics: list[TopicRate]
    groups: list[GroupRate]
    apis: list[ApiRate]
    disks: list[DiskUse]
    has_metrics: bool
    notes: list[str]


def picture(before: Sample, after: Sample) -> Picture:
    seconds = max(after.at - before.at, 1e-3)
    return Picture(
        seconds,
        after.cluster_id,
        len(after.brokers),
        after.controller,
        _topics(before, after, seconds),
        _groups(before, after, seconds),
        _apis(before, after, seconds),
        _disks(after),
        bool(after.metrics),
        after.failures,
    )


def _topics(before: Sample, after: Sample, seconds: float) -> list[TopicRate]:
    names = ("bytes_in", "messages_out", "bytes_out")
    counters = {name: _rates(before, after, f"headrace_topic_{name}_total", seconds) for name in names}
    found = []
    for name, info in after.topics.items():
        keys = [(name, index) for index in info.partitions]
        known = [key for key in keys if key in after.ends and key in before.ends]
        sizes = [after.sizes[key] for key in keys if key in after.sizes]
        grown = sum(max(0, after.ends[key] - before.ends[key]) for key in known)
        has_counters = bool(before.metrics) and bool(after.metrics)

        def rate(counter: str, topic: str = name, is_told: bool = has_counters) -> float | None:
            return counters[counter].get(topic, 0.0) if is_told else None

        grown_bytes = sum(
            after.sizes[key] - before.sizes[key] for key in keys if key in after.sizes and key in before.sizes
        )
        found.append(
            TopicRate(
                name,
                len(info.partitions),
                sum(after.ends.get(key, 0) for key in keys),
                sum(sizes) if sizes else None,
                grown / seconds if known else None,
                rate("bytes_in") if has_counters else max(0, grown_bytes) / seconds if sizes else None,
                rate("messages_out"),
                rate("bytes_out"),
            )
        )
    return sorted(
        found, key=lambda one: (-(one.bytes_in or 0) - (one.bytes_out or 0), -(one.records_in or 0), one.name)
    )


def _rates(before: Sample, after: Sample, name: str, seconds: float) -> dict[str, float]:
    first, second = before.counted(name) or {}, after.counted(name) or {}
    return {topic: max(count - first.get(topic, 0.0), 0.0) / seconds for topic, count in second.items()}


def _groups(before: Sample, after: Sample, seconds: float) -> list[GroupRate]:
    earlier = {view.listing.group_id: view for view in before.groups}
    found = []
    for view in after.groups:
        then = earlier.get(view.listing.group_id)
        was = {} if then is None else {(part.topic, part.partition): part.committed for part in then.partitions}
        moved = [
            part.committed - (was[part.topic, part.partition] or 0)
            for part in view.partitions
            if part.committed is not None and was.get((part.topic, part.partition)) is not None
        ]
        reads = max(0, sum(moved)) / seconds if then is not None else None
        catches_up_s = None
        if then is not None and view.lag and then.lag is not None and view.lag < then.lag:
            catches_up_s = view.lag / ((then.lag - view.lag) / seconds)
        found.append(
            GroupRate(view.listing.group_id, view.listing.state, view.listing.type, view.lag, reads, catches_up_s)
        )
    return sorted(found, key=lambda one: (-(one.lag or 0), -(one.reads or 0), one.name))


def _apis(before: Sample, after: Sample, seconds: float) -> list[ApiRate]:
    name = "headrace_request_seconds"
    earlier, later = (_histograms(sample, name) for sample in (before, after))
    found = []
    for api, histogram in later.items():
        came = between(earlier.get(api, {}), histogram)
        count = came.get(float("inf"), 0.0)
        if count:
            found.append(ApiRate(api, count / seconds, percentile_s(came, 50), percentile_s(came, 99)))
    return sorted(found, key=lambda one: (-one.requests, one.name))


def _histograms(sample: Sample, name: str) -> dict[str, Buckets]:
    each = [buckets(samples, name, "api") for samples in sample.metrics]
    return {api: merged(its.get(api, {}) for its in each) for api in sorted({api for its in each for api in its})}


def _disks(sample: Sample) -> list[DiskUse]:
    return [
        DiskUse(
            one.broker_id,
            one.path,
            one.size_bytes,
            one.usable_bytes if one.usable_bytes >= 0 else None,
            one.total_bytes if one.total_bytes > 0 else None,
        )
        for one in sample.directories
    ]


def picture_json(shown: Picture) -> dict[str, Any]:
    return {
        "seconds": round(shown.seconds, 3),
        "cluster_id": shown.cluster_id,
        "brokers": shown.brokers,
        "controller": shown.controller,
        "topics": [
            {
                "topic": one.name,
                "partitions": one.partitions,
                "end_offsets": one.records,
                "size_bytes": one.size_bytes,
                "records_in_per_second": _rounded(one.records_in),
                "bytes_in_per_second": _rounded(one.bytes_in),
                "records_out_per_second": _rounded(one.records_out),
                "bytes_out_per_second": _rounded(one.bytes_out),
            }
            for one in shown.topics
        ],
        "groups": [
            {
                "group": one.name,
                "type": one.kind,
                "state": one.state,
                "lag": one.lag,
                "records_read_per_second": _rounded(one.reads),
                "seconds_to_catch_up": _rounded(one.catches_up_s),
            }
            for one in shown.groups
        ],
        "requests": [
            {
                "api": one.name,
                "per_second": _rounded(one.requests),
                "p50_ms": _milliseconds(one.p50_s),
                "p99_ms": _milliseconds(one.p99_s),
            }
            for one in shown.apis
        ],
        "disks": [
            {
                "broker": one.broker,
                "path": one.path,
                "size_bytes": one.size_bytes,
                "free_bytes": one.free_bytes,
                "total_bytes": one.total_bytes,
            }
            for one in shown.disks
        ],
        "notes": shown.notes,
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 2)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
