"""`headrace group`: which groups there are, who is in them, how far they are, and offsets set anew."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from headrace.cli import INTERRUPTED, Misused, live
from headrace.cli.amounts import duration_ms
from headrace.cli.columns import Cell, Column
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, DryRun, Json, Yes, run
from headrace.cli.group_names import GroupNames, GroupsOrAll, matching_groups
from headrace.cli.group_reset import reset
from headrace.cli.output import (
    BAD,
    GOOD,
    NAME,
    QUIET,
    WARN,
    left_off_text,
    print_facts,
    print_json,
    print_json_line,
    print_table,
    remark,
    say,
    sure,
)
from headrace.cli.quantities import count_text, plural
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.cli.group_view import GroupView, PartitionLag
    from headrace.client import Client
    from headrace.client.admin import GroupDetail, GroupListing

app = typer.Typer(
    help="Look at groups of consumers, see how far they are behind, set their offsets, delete them.\n\n"
    "Where the cluster is: --bootstrap HOST:PORT, or the variable HEADRACE_BOOTSTRAP.\n\n"
    "Examples:\n\n"
    "- `headrace group list`\n"
    "- `headrace group describe billing`\n"
    "- `headrace group lag billing --watch`\n"
    "- `headrace group reset billing --to beginning --dry-run`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

_STATES: Final = {"Stable": GOOD, "Empty": QUIET, "Dead": BAD}
_ALL_STATES: Final = "stable, empty, assigning, reconciling, preparingrebalance, completingrebalance, notready, dead"
_WITHOUT_MEMBERS: Final = ("Empty", "Dead", "")
_ALL_TYPES: Final = "consumer, classic, share, streams"


def _state(state: str) -> Text:
    return Text(state.lower() or "?", _STATES.get(state, WARN))


def _lag(lag: int | None) -> Text:
    return Text("?" if lag is None else count_text(lag), GOOD if lag == 0 else WARN if lag else "")


# --- list -------------------------------------------------------------------------------------------------------------


@app.command("list")
def list_groups(
    patterns: GroupsOrAll = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only in this state, as stable; repeatable.")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only classic, consumer, …; may be repeated.")
    ] = None,
    by_lag: Annotated[bool, typer.Option("--by-lag", help="Those that are most behind first.")] = False,
    names_only: Annotated[bool, typer.Option("--names", help="Only the names, one a line.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List groups with their states and how far they are behind.

    Examples:

    - `headrace group list`
    - `headrace group list 'billing-*' --by-lag`
    - `headrace group list --state empty`
    """
    states, types = _some_of(state, _ALL_STATES, "--state"), _some_of(type_, _ALL_TYPES, "--type")

    async def work(client: Client) -> list[GroupView]:
        from headrace.cli.group_view import GroupView, group_views

        there = await _listed(client, states=states, types=types)
        if patterns:
            there = matching_groups(there, patterns)
        return [GroupView(listing) for listing in there.values()] if names_only else await group_views(client, there)

    shown = run(bootstrap, work, once=True)
    if by_lag:
        shown.sort(key=lambda view: view.lag or 0, reverse=True)
    if names_only:
        names = [view.listing.group_id for view in shown]
        print_json(names) if as_json else print("".join(f"{name}\n" for name in names), end="")
    elif as_json:
        print_json([_summary_json(view) for view in shown])
    elif shown:
        print_groups(shown)
    else:
        remark("There are no such groups." if patterns or state or type_ else "There are no groups yet.")


def _some_of(given: Sequence[str] | None, all_of_them: str, option: str) -> list[str]:
    texts = [text.lower() for text in given or ()]
    if wrong := next((text for text in texts if text not in all_of_them.split(", ")), None):
        raise Misused(f"{option} {wrong}: it is one of {all_of_them}")
    return texts


async def _listed(client: Client, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> dict[str, GroupListing]:
    """Whoever does not answer is named, and the others are shown."""
    failures: dict[int, HeadraceError] = {}
    found = await client.admin.list_groups(failures=failures)
    for broker, error in failures.items():
        remark(f"Broker {broker} does not tell its groups: {error}")
    return {
        name: one
        for name, one in found.items()
        if (not states or one.state.lower() in states) and (not types or one.type.lower() in types)
    }


def print_groups(shown: Sequence[GroupView]) -> None:
    columns = [Column("group", NAME), Column("state"), Column("type", "", 2), Column(">lag"), Column(">topics", "", 1)]
    columns.append(Column(">coordinator", "", 3))
    rows: list[list[Cell]] = [
        [
            view.listing.group_id,
            _state(view.listing.state),
            view.listing.type,
            _lag(view.lag),
            str(len({part.topic for part in view.partitions})),
            str(view.listing.coordinator_id),
        ]
        for view in shown
    ]
    print_table(columns, rows)


def _summary_json(view: GroupView) -> dict[str, Any]:
    return {
        "group": view.listing.group_id,
        "state": view.listing.state,
        "type": view.listing.type,
        "coordinator": view.listing.coordinator_id,
        "lag": view.lag,
        "topics": sorted({part.topic for part in view.partitions}),
        "error": view.failure,
    }


# --- describe, members, lag -------------------------------------------------------------------------------------------


async def _views(client: Client, names: Sequence[str], *, in_full: bool) -> list[GroupView]:
    from headrace.cli.group_view import group_views

    return await group_views(client, matching_groups(await _listed(client), names), in_full=in_full)


@app.command("describe")
def describe(groups: GroupNames, as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show groups in full: state, members, what each reads, and how far it is.

    Examples:

    - `headrace group describe billing`
    - `headrace group describe 'billing-*' --json`
    """
    shown = run(bootstrap, lambda client: _views(client, groups, in_full=True), once=True)
    if as_json:
        print_json([_group_json(view) for view in shown])
        return
    for number, view in enumerate(shown):
        if number:
            say("")
        _print_group(view)


def _print_group(view: GroupView) -> None:
    listing, detail = view.listing, view.detail
    say(Text(listing.group_id, f"bold {NAME}"))
    facts: list[tuple[str, Cell]] = [
        ("state", _state(detail.state if detail is not None else listing.state)),
        ("type", listing.type),
        ("coordinator", f"broker {listing.coordinator_id}"),
    ]
    if detail is not None:
        facts += [("assignor", detail.assignor or "-"), ("members", str(len(detail.members)))]
        if detail.epoch is not None:
            facts.append(("epoch", str(detail.epoch)))
    facts.append(("lag", _lag(view.lag)))
    print_facts(facts, indent="  ")
    if view.failure:
        say(Text(f"  {view.failure}", BAD))
    if detail is not None and detail.members:
        say("")
        _print_members(detail, indent="  ")
    if view.partitions:
        say("")
        print_table(_LAG_COLUMNS, [_lag_row(part) for part in view.partitions], indent="  ")


@app.command("members")
def members(groups: GroupNames, as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show who is in groups, from where, and which partitions each one has.

    Examples:

    - `headrace group members billing`
    """
    shown = run(bootstrap, lambda client: _views(client, groups, in_full=True), once=True)
    if as_json:
        print_json([{"group": view.listing.group_id, "members": _members_json(view.detail)} for view in shown])
        return
    for view in _titled(shown):
        if view.detail is None or not view.detail.members:
            say(f"Group {view.listing.group_id} has no members.")
        else:
            _print_members(view.detail)


def _print_members(detail: GroupDetail, indent: str = "") -> None:
    columns = [
        Column("member", NAME),
        Column("client"),
        Column("host", "", 1),
        Column("instance", "", 3),
        Column(">partitions"),
        Column("has"),
    ]
    rows: list[list[Cell]] = [
        [
            member.member_id,
            member.client_id,
            member.host,
            member.instance_id or "-",
            str(len(member.assigned)),
            _assigned(member.assigned, member.target),
        ]
        for member in sorted(detail.members, key=lambda member: (member.client_id, member.member_id))
    ]
    print_table(columns, rows, indent=indent)


def _assigned(assigned: Sequence[tuple[str, int]], target: Sequence[tuple[str, int]]) -> str:
    by_name: dict[str, list[int]] = {}
    for topic, index in assigned:
        by_name.setdefault(topic, []).append(index)
    has = ", ".join(f"{topic} {_runs(sorted(indexes))}" for topic, indexes in by_name.items()) or "-"
    coming = len(set(target) - set(assigned))
    return f"{has} ({plural(coming, 'partition')} to come)" if coming else has


def _runs(indexes: Sequence[int]) -> str:
    """0-3,7 for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


_LAG_COLUMNS: Final = [
    Column("topic", NAME),
    Column(">partition", NAME),
    Column(">committed", "", 2),
    Column(">end", "", 1),
    Column(">lag"),
    Column("member", "", 3),
    Column("host", "", 4),
]


_WATCHED_COLUMNS: Final = [
    Column("group", NAME, shrinks=True),
    Column("topic", NAME, shrinks=True),
    Column(">partition", NAME),
    Column(">committed", rank=2),
    Column(">end", rank=1),
    Column(">lag"),
    Column("member", rank=3),
]


def _lag_row(part: PartitionLag) -> list[Cell]:
    return [
        part.topic,
        str(part.partition),
        "-" if part.committed is None else str(part.committed),
        "?" if part.end is None else str(part.end),
        Text("-") if part.committed is None else _lag(part.lag),
        part.owner or "-",
        part.host or "-",
    ]


@app.command("lag")
def lag(
    groups: GroupNames,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        str, typer.Option("--interval", "-i", metavar="TIME", help="How often with --watch, as 500ms or 5s.")
    ] = "2s",
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show how far groups are behind, partition by partition.

    Examples:

    - `headrace group lag billing`
    - `headrace group lag billing --watch`
    - `headrace group lag '*' --json`
    """
    every_ms = duration_ms(interval)
    if every_ms is None or every_ms < 100:
        raise Misused(f"--interval {interval}: write a time such as 500ms or 5s, 100ms at least")
    if not watch:
        shown = run(bootstrap, lambda client: _views(client, groups, in_full=True), once=True)
        print_json([_group_json(view) for view in shown]) if as_json else _print_lag(shown)
        return
    is_interrupted = False

    async def work(client: Client) -> None:
        nonlocal is_interrupted
        try:
            await _watch(client, groups, every_ms / 1000, as_json=as_json)
        except asyncio.CancelledError:
            is_interrupted = True

    run(bootstrap, work, once=True)
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)


def _titled(shown: Sequence[GroupView]) -> Iterator[GroupView]:
    """Those that could be looked at, each below its name where there are several."""
    for number, view in enumerate(shown):
        if number:
            say("")
        if len(shown) > 1:
            say(Text(view.listing.group_id, f"bold {NAME}"))
        if view.failure:
            say(Text(view.failure, BAD))
        else:
            yield view


def _print_lag(shown: Sequence[GroupView]) -> None:
    for view in _titled(shown):
        if not view.partitions:
            say(f"Group {view.listing.group_id} has no offsets and no members.")
        else:
            print_table(_LAG_COLUMNS, [_lag_row(part) for part in view.partitions])
            rest = f", and {plural(view.uncommitted, 'partition')} without an offset" if view.uncommitted else ""
            state = view.listing.state.lower()
            say(Text.assemble(f"Group {view.listing.group_id} is {state}; lag ", _lag(view.lag), rest))


async def _watch(client: Client, groups: Sequence[str], every_s: float, *, as_json: bool) -> None:
    """A table that is drawn anew on a terminal; elsewhere one after the other, or a line of JSON each."""

    async def looks() -> AsyncIterator[Sequence[GroupView]]:
        while True:
            yield await _views(client, groups, in_full=True)
            await asyncio.sleep(every_s)

    if live.is_possible() and not as_json:
        await live.draw(looks(), lambda width, height, shown: drawn_lag(shown, width, height))
        return
    async for shown in looks():
        if as_json:
            print_json_line([_group_json(view) for view in shown])
        else:
            _print_lag(shown)
            sys.stdout.flush()


def drawn_lag(shown: Sequence[GroupView], width: int, height: int) -> list[Text]:
    """The partitions that are most behind, as many as there is room for, in their order."""
    total = sum(view.lag or 0 for view in shown)
    alone = shown[0].listing.group_id if len(shown) == 1 else ""
    lines = [Text.assemble((f"{alone}  " if alone else "", NAME), "lag ", _lag(total), ("   Ctrl-C ends", QUIET))]
    lines += [line for view in shown if view.failure for line in live.sentence(view.failure, BAD, width)]
    parts = [(view.listing.group_id, part) for view in shown for part in view.partitions]
    columns, rows = _WATCHED_COLUMNS, [[group, *_lag_row(part)[:6]] for group, part in parts]
    if alone:
        columns, rows = columns[1:], [row[1:] for row in rows]
    table, left_off = live.table(columns, rows, width)
    foot = live.sentence(left_off_text(left_off), QUIET, width) if left_off else []
    [count] = live.shared(height - len(lines) - 1 - len(foot), [len(parts)])
    behind = sorted(range(len(parts)), key=lambda number: -(parts[number][1].lag or 0))[:count]
    lines += [table[0], *(table[1 + number] for number in sorted(behind))]
    return [*lines, *live.more(len(parts), count, "partition"), *foot]


def _group_json(view: GroupView) -> dict[str, Any]:
    detail = view.detail
    return {
        **_summary_json(view),
        "epoch": None if detail is None else detail.epoch,
        "assignor": None if detail is None else detail.assignor or None,
        "members": _members_json(detail),
        "partitions": [
            {
                "topic": part.topic,
                "partition": part.partition,
                "committed_offset": part.committed,
                "end_offset": part.end,
                "lag": part.lag,
                "member": part.owner,
            }
            for part in view.partitions
        ],
    }


def _members_json(detail: GroupDetail | None) -> list[dict[str, Any]]:
    return [
        {
            "member": member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            "instance_id": member.instance_id,
            "rack": member.rack,
            "epoch": member.epoch,
            "subscribed": member.subscribed,
            "pattern": member.pattern,
            "assigned": [{"topic": topic, "partition": index} for topic, index in member.assigned],
            "target": [{"topic": topic, "partition": index} for topic, index in member.target],
        }
        for member in (() if detail is None else detail.members)
    ]


# --- delete -----------------------------------------------------------------------------------------------------------


@app.command("delete")
def delete(
    groups: GroupNames,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Only its offsets of this topic; may be repeated."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups that have no members, with what they have committed; or only what they committed of a topic.

    A terminal shows what would be lost and asks; elsewhere --yes is needed.

    Examples:

    - `headrace group delete billing`
    - `headrace group delete 'test-*' --dry-run`
    - `headrace group delete billing --topic orders --yes`
    """
    found = run(bootstrap, lambda client: _views(client, groups, in_full=False), once=True)
    names = [view.listing.group_id for view in found]
    parts = {
        view.listing.group_id: [
            (part.topic, part.partition)
            for part in view.partitions
            if part.committed is not None and (topic is None or part.topic in topic)
        ]
        for view in found
    }
    count = sum(map(len, parts.values()))
    busy = next((view.listing for view in found if view.listing.state not in _WITHOUT_MEMBERS), None)
    if topic is None and busy is not None:
        raise _has_members(busy.group_id, Error.NON_EMPTY_GROUP)
    if topic is not None and not count:
        raise HeadraceError(f"{_which(names)} has no offsets of {', '.join(topic)}.")
    what = _which(names) if topic is None else f"{plural(count, 'offset')} of {_which(names)}"
    if not dry_run:
        lost = f" with {plural(count, 'offset')}" if topic is None else ""
        sure(f"Delete {what}{lost}?", lambda: print_groups(found), yes=yes)

        async def work(client: Client) -> None:
            if topic is None:
                await client.admin.delete_groups(names)
                return
            for name, keys in parts.items():
                if keys:
                    await client.admin.delete_group_offsets(name, keys)

        try:
            run(bootstrap, work)
        except Refused as refused:
            raise _not_deleted(refused) from refused
    if as_json:
        print_json({"dry_run": dry_run, "groups": names, "offsets": count})
        return
    if dry_run:
        print_groups(found)
    say(f"{'Would delete' if dry_run else 'Deleted'} {what}.")


def _not_deleted(refused: Refused) -> Refused:
    name = str(refused).split(" ", 1)[0]
    if refused.error in (Error.NON_EMPTY_GROUP, Error.GROUP_SUBSCRIBED_TO_TOPIC):
        return _has_members(name, refused.error)
    return refused


def _has_members(name: str, error: Error) -> Refused:
    text = f"Group {name} has members: stop them first; `headrace group members {name}` shows who they are."
    return Refused(error, text)


def _which(names: Sequence[str]) -> str:
    return f"group {names[0]}" if len(names) == 1 else plural(len(names), "group")


app.command("reset")(reset)
