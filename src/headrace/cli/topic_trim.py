"""`headrace topic trim`: the oldest records of a topic deleted, up to an offset, up to a time, or all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import Misused
from headrace.cli.amounts import moment_ms
from headrace.cli.columns import Cell, Column
from headrace.cli.connection import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    DryRun,
    Json,
    Topic,
    Yes,
    all_topics,
    run,
    unknown_topic,
)
from headrace.cli.output import NAME, print_json, print_table, say, sure
from headrace.cli.quantities import count_text, plural
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.cli.cluster_view import Span, TopicPartition
    from headrace.client import Client, TopicInfo


def trim(
    topic: Topic,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", "-o", metavar="N", min=0, help="Delete the records before this offset.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--before", "-t", metavar="TIME", help="Delete those older than 2026-01-31T12:00Z, or than 7d."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all that there is now.")] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only of this partition; may be repeated."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete the oldest records of a topic: up to an offset, up to a time, or all. The topic stays.

    Times without a zone are in UTC. A terminal shows what would be lost and asks; elsewhere --yes is needed.

    Examples:

    - `headrace topic trim orders --before 30d`
    - `headrace topic trim orders --to-offset 1000 --partition 0`
    - `headrace topic trim orders --all --yes`
    """
    if [to_offset is not None, before is not None, everything].count(True) != 1:
        raise Misused("Say up to where to trim, once: --to-offset N, --before TIME or --all")
    before_ms = None if before is None else moment_ms(before, time.time_ns() // 1_000_000)

    async def find(client: Client) -> list[_Cut]:
        from headrace.cli.cluster_view import spans

        topics = await all_topics(client)
        if topic not in topics:
            raise unknown_topic(topic, topics)
        await _require_deletable(client, topic)
        indexes = _chosen(topics[topic], partition)
        known = await spans(client, [topics[topic]])
        for index in indexes:
            if (topic, index) not in known:
                raise HeadraceError(f"Nobody answers for {topic}-{index}: see `headrace topic describe {topic}`.")
        to: dict[int, int] = {}
        if before_ms is not None:
            found = await client.admin.list_offsets({(topic, index): before_ms for index in indexes})
            to = {index: at.offset for (_, index), at in found.items()}
        return [
            _cut((topic, index), known[topic, index], to.get(index, -1) if to_offset is None else to_offset)
            for index in indexes
        ]

    cuts = run(bootstrap, find)
    lost = sum(cut.records for cut in cuts)
    if not dry_run and lost:
        sure(f"Delete {plural(lost, 'record')} of topic {topic}?", lambda: _print_cuts(cuts), yes=yes)
        to = {cut.key: cut.to for cut in cuts if cut.records}
        run(bootstrap, lambda client: client.admin.delete_records(to))
    if as_json:
        print_json({"topic": topic, "dry_run": dry_run, "records": lost, "partitions": [cut.as_json() for cut in cuts]})
    elif not lost:
        say(f"Topic {topic} has no records there; nothing was deleted.")
    else:
        if dry_run:
            _print_cuts(cuts)
        say(f"{'Would delete' if dry_run else 'Deleted'} {plural(lost, 'record')} of topic {topic}.")


async def _require_deletable(client: Client, topic: str) -> None:
    """A broker that refuses says no more than that a policy is against it, and a dry run would not even ask."""
    from headrace.client import ConfigResource

    resource, policy = ConfigResource.topic(topic), "delete"
    with suppress(Refused):  # who may not look at settings may delete records all the same
        entry = (await client.admin.describe_configs([resource], ["cleanup.policy"]))[resource].get("cleanup.policy")
        policy = policy if entry is None or entry.value is None else entry.value
    if "delete" not in policy:
        raise Refused(
            Error.POLICY_VIOLATION,
            f"Topic {topic} has cleanup.policy={policy}, and is trimmed only with delete in it: `headrace topic alter "
            f"{topic} --config cleanup.policy+=delete` adds it, and then retention.ms and retention.bytes count, too.",
        )


class _Cut:
    """Where a partition's log begins now, and where it is to begin."""

    __slots__ = ("key", "span", "to")

    def __init__(self, key: TopicPartition, span: Span, to: int) -> None:
        self.key = key
        self.span = span
        self.to = to

    @property
    def records(self) -> int:
        return max(0, self.to - self.span.start)

    def as_json(self) -> dict[str, int]:
        return {
            "partition": self.key[1],
            "start_offset": self.span.start,
            "end_offset": self.span.end,
            "new_start_offset": max(self.to, self.span.start),
            "records": self.records,
        }


def _cut(key: TopicPartition, span: Span, to: int) -> _Cut:
    """-1 is the end: no record is as young as the time that was asked for, or all are to go."""
    if to > span.end:
        raise Refused(
            Error.OFFSET_OUT_OF_RANGE,
            f"{key[0]}-{key[1]} ends at offset {span.end}, before {to}; choose another offset, or --all.",
        )
    return _Cut(key, span, span.end if to < 0 else to)


def _chosen(info: TopicInfo, partitions: Sequence[int] | None) -> list[int]:
    for index in partitions or ():
        if index not in info.partitions:
            raise Refused(
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic {info.name} has no partition {index}; it has 0 to {len(info.partitions) - 1}.",
            )
    return sorted(set(partitions or info.partitions))


def _print_cuts(cuts: Sequence[_Cut]) -> None:
    columns = [Column(">partition", NAME), Column(">start"), Column(">end"), Column(">new start"), Column(">deleted")]
    rows: list[list[Cell]] = [
        [
            str(cut.key[1]),
            str(cut.span.start),
            str(cut.span.end),
            str(max(cut.to, cut.span.start)),
            count_text(cut.records),
        ]
        for cut in cuts
    ]
    print_table(columns, rows)
