"""How topics are shown: one a row, or one in full; and the same as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from headrace.cli.amounts import setting_words
from headrace.cli.cluster_view import (
    Span,
    brokers_of,
    leader_sizes,
    log_dirs,
    offsets,
    soon,
    spans,
)
from headrace.cli.columns import Cell, Column
from headrace.cli.output import BAD, GOOD, NAME, QUIET, WARN, print_facts, print_table, say
from headrace.cli.quantities import count_text, plural, size_text, time_text
from headrace.client.offsets import MAX_TIMESTAMP
from headrace.errors import Error, HeadraceError

if TYPE_CHECKING:
    from headrace.client import Client, ConfigEntry, ConfigSource, PartitionInfo, TopicInfo

UNKNOWN: Final = "?"
"""In the place of what nobody answered for."""


@dataclass(slots=True)
class TopicView:
    """A topic and what its leaders say of it."""

    info: TopicInfo
    spans: dict[int, Span] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    newest_ms: dict[int, int] = field(default_factory=dict)
    configs: list[ConfigEntry] | None = None
    """Those that differ from the defaults; None where they were not asked for or not told."""

    @property
    def records(self) -> int | None:
        return sum(span.records for span in self.spans.values()) if self._is_whole(self.spans) else None

    @property
    def size_bytes(self) -> int | None:
        return sum(self.sizes.values()) if self._is_whole(self.sizes) else None

    @property
    def replicas(self) -> int:
        return max((len(partition.replicas) for partition in self.info.partitions.values()), default=0)

    @property
    def offline(self) -> list[int]:
        return [index for index, partition in self.info.partitions.items() if partition.leader_id < 0]

    @property
    def under_replicated(self) -> list[int]:
        return [index for index, part in self.info.partitions.items() if len(part.in_sync) < len(part.replicas)]

    def _is_whole(self, known: Mapping[int, object]) -> bool:
        return len(known) == len(self.info.partitions)


async def views(client: Client, topics: Mapping[str, TopicInfo], *, in_full: bool = False) -> list[TopicView]:
    """What there is to show of topics: offsets and sizes; in full, the newest record and the settings, too."""
    infos = list(topics.values())
    found = {name: TopicView(info) for name, info in topics.items()}
    known, (directories, _) = await asyncio.gather(spans(client, infos), log_dirs(client, brokers_of(infos)))
    for (name, index), span in known.items():
        found[name].spans[index] = span
    for (name, index), size in leader_sizes(infos, directories).items():
        found[name].sizes[index] = size
    if in_full:
        settings = asyncio.gather(*(_add_configs(client, view) for view in found.values()))
        newest, _ = await asyncio.gather(offsets(client, infos, MAX_TIMESTAMP), settings)
        for (name, index), time_ms in newest.items():
            found[name].newest_ms[index] = time_ms
    return list(found.values())


async def _add_configs(client: Client, view: TopicView) -> None:
    from headrace.client import ConfigResource

    resource = ConfigResource.topic(view.info.name)
    try:
        described = await soon(client.admin.describe_configs([resource]))
    except HeadraceError:
        return
    view.configs = [entry for _, entry in sorted(described[resource].items()) if not entry.is_default]


# --- many -------------------------------------------------------------------------------------------------------------


def print_list(shown: Sequence[TopicView]) -> None:
    columns = [
        Column("topic", NAME),
        Column(">partitions", rank=1),
        Column(">replicas", rank=4),
        Column(">records", rank=2),
        Column(">size", rank=1),
        Column("state", rank=3),
    ]
    print_table(
        columns,
        [
            (
                view.info.name,
                count_text(len(view.info.partitions)),
                str(view.replicas),
                _count(view.records),
                _size(view.size_bytes),
                _state(view),
            )
            for view in shown
        ],
    )


def _state(view: TopicView) -> Text:
    if view.info.error is not Error.NONE:
        return Text(view.info.error.name, BAD)
    if view.offline:
        return Text(f"{count_text(len(view.offline))} offline", BAD)
    if view.under_replicated:
        return Text(f"{count_text(len(view.under_replicated))} under-replicated", WARN)
    return Text("ok", GOOD)


def _count(count: int | None) -> str:
    return UNKNOWN if count is None else count_text(count)


def _size(size_bytes: int | None) -> str:
    return UNKNOWN if size_bytes is None else size_text(size_bytes)


# --- one --------------------------------------------------------------------------------------------------------------


def print_topic(view: TopicView) -> None:
    info = view.info
    say(Text.assemble((info.name, f"bold {NAME}"), (" (internal)" if info.is_internal else "", QUIET)))
    partitions = f"{plural(len(info.partitions), 'partition')}, {plural(view.replicas, 'replica')} each"
    facts: list[tuple[str, Cell]] = [
        ("id", topic_id_text(info.topic_id)),
        ("partitions", partitions),
        ("records", Text.assemble(_count(view.records), (_by_offsets(view), QUIET))),
        ("size", _size(view.size_bytes)),
        ("newest", _newest(view)),
        ("state", _state(view)),
    ]
    print_facts(facts, indent="  ")
    print_configs(view.configs)
    print_partitions(view)


def _by_offsets(view: TopicView) -> str:
    policy = next((entry.value for entry in view.configs or () if entry.name == "cleanup.policy"), None)
    return (
        "  (offsets in use; compaction may have removed some of the records)" if policy and "compact" in policy else ""
    )


def _newest(view: TopicView) -> str:
    newest = max(view.newest_ms.values(), default=-1)
    if newest >= 0:
        return f"{time_text(newest)} UTC"
    return "no record" if len(view.newest_ms) == len(view.info.partitions) else UNKNOWN


def print_configs(configs: Sequence[ConfigEntry] | None) -> None:
    if configs is None:
        return
    if not configs:
        say("\n  all settings are at their defaults", QUIET)
        return
    say("\n  settings that are not at their defaults", "bold")
    columns = [Column("", NAME), Column(""), Column("", QUIET, rank=1), Column("", QUIET, rank=2)]
    rows = [
        (entry.name, value_text(entry), setting_words(entry.name, entry.value), source_text(entry.source))
        for entry in configs
    ]
    print_table(columns, rows, indent="    ")


def value_text(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(secret)"
    return "(not set)" if entry.value is None else entry.value or "(empty)"


def source_text(source: ConfigSource) -> str:
    """Where a value comes from, in the words of `config set`."""
    from headrace.client import ConfigSource

    match source:
        case ConfigSource.DEFAULT:
            return "default"
        case ConfigSource.DYNAMIC_DEFAULT_BROKER:
            return "set on the cluster"
        case ConfigSource.STATIC_BROKER:
            return "set at the broker's start"
        case ConfigSource.UNKNOWN:
            return ""
        case _:
            return f"set on the {source.name.removeprefix('DYNAMIC_').lower().replace('_', ' ')}"


def print_partitions(view: TopicView) -> None:
    say("")
    columns = [
        Column(">partition"),
        Column(">leader"),
        Column("replicas", rank=1),
        Column("in sync", rank=1),
        Column(">start", rank=3),
        Column(">end", rank=2),
        Column(">records", rank=4),
        Column(">size", rank=2),
        Column("newest (UTC)", rank=5),
    ]
    rows = [_partition_cells(view, partition) for _, partition in sorted(view.info.partitions.items())]
    print_table(columns, rows, indent="  ")


def _partition_cells(view: TopicView, partition: PartitionInfo) -> list[Cell]:
    index = partition.partition
    span, newest = view.spans.get(index), view.newest_ms.get(index)
    missing = set(partition.replicas) - set(partition.in_sync)
    return [
        str(index),
        Text("none", BAD) if partition.leader_id < 0 else str(partition.leader_id),
        brokers_text(partition.replicas),
        Text(brokers_text(partition.in_sync) or "none", WARN if missing else ""),
        UNKNOWN if span is None else str(span.start),
        UNKNOWN if span is None else str(span.end),
        UNKNOWN if span is None else count_text(span.records),
        _size(view.sizes.get(index)),
        UNKNOWN if newest is None else time_text(newest),
    ]


def brokers_text(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


# --- JSON -------------------------------------------------------------------------------------------------------------


def summary_json(view: TopicView) -> dict[str, Any]:
    return {
        "name": view.info.name,
        "topic_id": topic_id_text(view.info.topic_id),
        "internal": view.info.is_internal,
        "partitions": len(view.info.partitions),
        "replication_factor": view.replicas,
        "records": view.records,
        "size_bytes": view.size_bytes,
        "offline_partitions": view.offline,
        "under_replicated_partitions": view.under_replicated,
    }


def topic_json(view: TopicView) -> dict[str, Any]:
    return summary_json(view) | {
        "configs": None if view.configs is None else [entry_json(entry) for entry in view.configs],
        "partitions": [
            {
                "partition": index,
                "leader": None if partition.leader_id < 0 else partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "in_sync": partition.in_sync,
                "offline": partition.offline,
                "start_offset": span.start if (span := view.spans.get(index)) else None,
                "end_offset": span.end if span else None,
                "records": span.records if span else None,
                "size_bytes": view.sizes.get(index),
                "newest_ms": newest if (newest := view.newest_ms.get(index, -1)) >= 0 else None,
            }
            for index, partition in sorted(view.info.partitions.items())
        ],
    }


def entry_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "source": entry.source.name.lower(),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }


def topic_id_text(topic_id: bytes) -> str:
    """As Kafka's tools write it."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else "-"
