"""`headrace group reset`: the offsets of a group set anew, shown before it is done."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from headrace.cli import Misused
from headrace.cli.columns import Cell, Column
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, DryRun, Json, Yes, all_topics, matching, run
from headrace.cli.consume_range import Point, point
from headrace.cli.group_names import GroupName, unknown_group
from headrace.cli.output import NAME, WARN, print_json, print_table, say, sure
from headrace.cli.quantities import plural
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.client import Client, TopicInfo

TopicPartition = tuple[str, int]


def reset(
    group: GroupName,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="WHERE", help="beginning, end, an offset, or a time as 2h or 2026-01-31T12:00Z."),
    ] = None,
    by: Annotated[
        int | None, typer.Option("--by", metavar="N", help="So many on from where it is, or back with -N.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", metavar="FILE", help="Lines of topic,partition,offset, or JSON of --dry-run --json."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Only this, or a pattern, or orders:0,2; may be repeated."),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the group, if it is not there.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set from where a group goes on: to an end, an offset or a time, by so many, or as a file says.

    The group must have no members meanwhile. Without --topic all that it has committed is set. An offset that a log
    does not have becomes the nearest that it has. A terminal shows what would change and asks; elsewhere --yes is
    needed.

    Examples:

    - `headrace group reset billing --to beginning --dry-run`
    - `headrace group reset billing --to 2h`
    - `headrace group reset billing --topic orders:0 --to 1500`
    - `headrace group reset billing --by -100 --yes`
    - `headrace group reset billing --from-file offsets.csv`
    """
    if [to is not None, by is not None, file is not None].count(True) != 1:
        raise Misused("Say where to, once: --to WHERE, --by N or --from-file FILE")
    wanted = None if to is None else point(to, "--to")
    given = None if file is None else read_offsets(file)
    if given is not None and topic:
        raise Misused("The file says which topics; leave out --topic")

    async def find(client: Client) -> list[Change]:
        return await changes(client, group, wanted, by, given, topic or (), create=create)

    found = run(bootstrap, find)
    moved = [change for change in found if change.after != change.before]
    if not dry_run and moved:
        sure(f"Set {plural(len(moved), 'offset')} of group {group}?", lambda: _print(found), yes=yes)
        offsets = {change.key: change.after for change in moved}
        try:
            run(bootstrap, lambda client: client.admin.alter_group_offsets(group, offsets))
        except Refused as refused:
            raise _not_set(refused, group) from refused
    if as_json:
        print_json({"group": group, "dry_run": dry_run, "offsets": [change.as_json() for change in found]})
        return
    if not moved:
        say(f"The offsets of group {group} are there already; nothing was changed.")
        return
    _print(found)
    say(f"{'Would set' if dry_run else 'Set'} {plural(len(moved), 'offset')} of group {group}.")


def _not_set(refused: Refused, group: str) -> Refused:
    if refused.error in (
        Error.UNKNOWN_MEMBER_ID,
        Error.NON_EMPTY_GROUP,
        Error.ILLEGAL_GENERATION,
        Error.STALE_MEMBER_EPOCH,
    ):
        return Refused(
            refused.error,
            f"Group {group} has members, who would go on from where they are: stop them first; "
            f"`headrace group members {group}` shows who they are.",
        )
    return refused


class Change:
    """Where a group is in a partition, and where it is to be."""

    __slots__ = ("after", "before", "end", "key", "start")

    def __init__(self, key: TopicPartition, before: int | None, after: int, start: int, end: int) -> None:
        self.key = key
        self.before = before
        self.start = start
        self.end = end
        self.after = min(max(after, start), end)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.key[0],
            "partition": self.key[1],
            "before": self.before,
            "offset": self.after,
            "lag_before": None if self.before is None else max(0, self.end - self.before),
            "lag": self.end - self.after,
        }


async def changes(
    client: Client,
    group: str,
    wanted: Point | None,
    by: int | None,
    given: Mapping[TopicPartition, int] | None,
    topics: Sequence[str],
    *,
    create: bool,
) -> list[Change]:
    groups = await client.admin.list_groups()
    if group not in groups and not create:
        raise unknown_group(group, groups)
    committed = {key: at.offset for key, at in (await client.admin.group_offsets([group])).get(group, {}).items()}
    there = await all_topics(client)
    keys = _chosen(there, committed, given, topics, group)
    starts, ends = (
        {key: at.offset for key, at in found.items()}
        for found in [
            await client.admin.list_offsets(dict.fromkeys(keys, "earliest")),
            await client.admin.list_offsets(dict.fromkeys(keys, "latest")),
        ]
    )
    if given is not None:
        after = dict(given)
    elif by is not None:
        lost = [key for key in keys if key not in committed]
        if lost:
            raise HeadraceError(f"Group {group} has no offset of {lost[0][0]}-{lost[0][1]} to count from; say --to.")
        after = {key: committed[key] + by for key in keys}
    else:
        assert wanted is not None
        after = await _resolved(client, keys, wanted, starts, ends)
    return [Change(key, committed.get(key), after[key], starts[key], ends[key]) for key in keys]


async def _resolved(
    client: Client,
    keys: Sequence[TopicPartition],
    wanted: Point,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if wanted.end is not None:
        return dict(starts if wanted.end == "beginning" else ends)
    if wanted.offset is not None:
        return dict.fromkeys(keys, wanted.offset)
    assert wanted.time_ms is not None
    found = await client.admin.list_offsets(dict.fromkeys(keys, wanted.time_ms))
    return {key: ends[key] if found[key].offset < 0 else found[key].offset for key in keys}


def _chosen(
    there: Mapping[str, TopicInfo],
    committed: Mapping[TopicPartition, int],
    given: Mapping[TopicPartition, int] | None,
    topics: Sequence[str],
    group: str,
) -> list[TopicPartition]:
    """Which partitions: those of the file, of the topics that are named, or all that the group has committed."""
    keys: list[TopicPartition] = []
    if given is not None:
        keys = sorted(given)
    for text in topics:
        name, colon, listed = text.rpartition(":")
        if not colon or not re.fullmatch(r"\d+(,\d+)*", listed):
            name, listed = text, ""
        for info in matching(dict(there), [name]).values():
            keys += (
                [(info.name, int(index)) for index in listed.split(",")]
                if listed
                else [(info.name, index) for index in info.partitions]
            )
    if given is None and not topics:
        keys = sorted(key for key in committed if key[0] in there)
        if not keys:
            raise HeadraceError(f"Group {group} has committed nothing yet; say which topics, with --topic.")
    for topic, index in keys:
        matching(dict(there), [topic])
        if index not in there[topic].partitions:
            text = f"Topic {topic} has no partition {index}; it has 0 to {len(there[topic].partitions) - 1}."
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, text)
    return list(dict.fromkeys(sorted(keys)))


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """topic,partition,offset a line (a first line of titles is let be), or the JSON that this command prints."""
    try:
        text = path.read_text()
    except OSError as error:
        raise HeadraceError(f"{path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise HeadraceError(f"{path} is no text.") from None
    found: dict[TopicPartition, int] = {}
    if text.lstrip()[:1] in ("{", "["):
        try:
            told = json.loads(text)
            for one in told["offsets"] if isinstance(told, dict) else told:
                found[str(one["topic"]), int(one["partition"])] = int(one["offset"])
        except (ValueError, KeyError, TypeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise HeadraceError(
                f"{path} is no JSON of offsets, with topic, partition and offset each ({what})."
            ) from None
    else:
        for number, row in enumerate(csv.reader(text.splitlines()), 1):
            if not row or (number == 1 and [cell.strip() for cell in row] == ["topic", "partition", "offset"]):
                continue
            if len(row) != 3 or not all(cell.strip().isdecimal() for cell in row[1:]):
                raise HeadraceError(f"{path}, line {number}: write topic,partition,offset, not '{','.join(row)}'.")
            found[row[0].strip(), int(row[1])] = int(row[2])
    if not found:
        raise HeadraceError(f"{path} has no offsets in it.")
    return found


def _print(found: Sequence[Change]) -> None:
    columns = [
        Column("topic", NAME),
        Column(">partition", NAME),
        Column(">start"),
        Column(">end"),
        Column(">was"),
        Column(">new"),
        Column(">lag"),
    ]
    rows: list[list[Cell]] = [
        [
            change.key[0],
            str(change.key[1]),
            str(change.start),
            str(change.end),
            "-" if change.before is None else str(change.before),
            Text(str(change.after), WARN if change.after != change.before else ""),
            str(change.end - change.after),
        ]
        for change in found
    ]
    print_table(columns, rows)
