"""`headrace top`: what goes on in a cluster, live: rates of topics, lag of groups, latency of requests, disks."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from headrace.cli import INTERRUPTED, Misused, live
from headrace.cli.amounts import duration_ms
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Json, run
from headrace.cli.latencies import bar, time_short
from headrace.cli.output import BAD, GOOD, NAME, QUIET, WARN, print_json_line
from headrace.cli.progress import rate_text
from headrace.cli.quantities import count_text, plural, share_text, size_text
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cli.top_sample import DiskUse, GroupRate, Picture
    from headrace.client import Client

INTERVAL_MIN_S: Final = 0.2
PIPE_WIDTH: Final = 120
ROWS_MIN: Final = 3
APIS_MAX: Final = 6
WIDE, NARROW = 90, 76
DISK_WARN, DISK_BAD = 0.85, 0.95

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("top")
def top(
    interval: Annotated[
        str, typer.Option("--interval", "-i", metavar="TIME", help="How long between two looks, as 500ms or 5s.")
    ] = "2s",
    once: Annotated[
        bool, typer.Option("--once", "-1", help="Look twice, print what came in between, and end.")
    ] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", metavar="N", min=1, help="End after so many.")] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", min=1, help="Of a table; else what the terminal has room for.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics, too.")] = False,
    no_groups: Annotated[
        bool, typer.Option("--no-groups", help="Don't ask for groups, of which there may be many.")
    ] = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Where /metrics of a node is; else the nodes are asked."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show what goes on in a cluster, until Ctrl-C: the busiest topics, the groups that are behind, requests, disks.

    Any Kafka shows records and bytes in, lag and disks. Nodes of headrace also show what goes out, and how long
    requests take, from their /metrics, when that can be reached from here. With --json there is a line for each look.

    Examples:

    - `headrace top`
    - `headrace top --interval 500ms`
    - `headrace top --once`
    - `headrace top --json --count 10 > top.jsonl`
    """
    every_ms = duration_ms(interval)
    if every_ms is None or every_ms < INTERVAL_MIN_S * 1000:
        raise Misused(
            f"--interval {interval}: write a time such as 500ms or 5s, {INTERVAL_MIN_S * 1000:.0f}ms at least"
        )
    is_live = sys.stdout.isatty() and not as_json and not once
    wanted = 1 if once else count
    is_interrupted = False

    async def work(client: Client) -> None:
        nonlocal is_interrupted
        seen = pictures(client, every_ms / 1000, metrics, internal=internal, with_groups=not no_groups, is_live=is_live)
        try:
            if is_live:
                await live.draw(
                    seen,
                    lambda console, shown: drawn(shown, console.width, rows or _room(console, shown)),
                    wanted,
                )
            else:
                await _print_each(seen, wanted, rows, as_json=as_json)
        except asyncio.CancelledError:
            is_interrupted = True

    run(bootstrap, work, operation_timeout_s=2.0)
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)


async def pictures(
    client: Client, every_s: float, metrics: list[str] | None, *, internal: bool, with_groups: bool, is_live: bool
) -> AsyncIterator[Picture]:
    """What came in between two looks, again and again, whatever a look takes. Where a person looks on, a cluster that
    does not answer is noted beside what was seen last, and looked at again.
    """
    from headrace.cli.top_sample import look, metrics_addresses, picture

    addresses = await metrics_addresses(client, metrics)
    before = await look(client, addresses, internal=internal, with_groups=with_groups)
    due = time.monotonic()
    while True:
        due = max(due + every_s, time.monotonic())
        await asyncio.sleep(max(due - time.monotonic(), every_s / 10))
        try:
            after = await look(client, addresses, internal=internal, with_groups=with_groups)
        except HeadraceError as error:
            if not is_live:
                raise
            silent = picture(before, before)
            silent.notes = [f"The cluster does not answer; this is what it was: {error}"]
            yield silent
            continue
        yield picture(before, after)
        before = after


async def _print_each(seen: AsyncIterator[Picture], wanted: int | None, rows: int | None, *, as_json: bool) -> None:
    from headrace.cli.top_sample import picture_json

    left = -1 if wanted is None else wanted
    is_first = True
    async for shown in seen:
        if as_json:
            print_json_line(picture_json(shown))
        else:
            console = Console(highlight=False, emoji=False)
            if not console.is_terminal:
                console = Console(highlight=False, emoji=False, width=PIPE_WIDTH)
            if not is_first:
                print()
            console.print(drawn(shown, console.width, rows))
            sys.stdout.flush()
        is_first = False
        left -= 1
        if not left:
            return


def _room(console: Console, shown: Picture) -> int:
    """How many topics, and how many groups, there is room for beside the rest."""
    others = 9 + min(len(shown.apis), APIS_MAX) + len(shown.disks) + len(shown.notes)
    return max((console.height - others) // 2, ROWS_MIN)


# --- how it looks -----------------------------------------------------------------------------------------------------


def drawn(shown: Picture, width: int, rows: int | None) -> Group:
    parts: list[Text | Table] = [_head(shown)]
    parts += _topic_part(shown, width, rows)
    if shown.groups:
        parts += [Text(), _group_table(shown.groups[:rows], width), *_more(len(shown.groups), rows, "group")]
    if shown.apis:
        parts += [Text(), _api_table(shown)]
    if shown.disks:
        parts += [Text(), _disk_table(shown.disks, width)]
    parts += [Text(note, WARN) for note in shown.notes]
    if not shown.has_metrics:
        parts.append(Text("what goes out and latencies are told by the /metrics of headrace nodes only", QUIET))
    return Group(*parts)


def _head(shown: Picture) -> Text:
    records_in = sum(one.records_in or 0 for one in shown.topics)
    bytes_in = sum(one.bytes_in or 0 for one in shown.topics)
    head = Text.assemble(
        ("headrace top", "bold"),
        f"  {time.strftime('%H:%M:%S', time.gmtime())} UTC  cluster ",
        (shown.cluster_id, NAME),
        f"  {plural(shown.brokers, 'broker')}, {plural(len(shown.topics), 'topic')}\n",
        (f"in {rate_text(records_in)} records/s, {size_text(round(bytes_in))}/s", "bold"),
    )
    if shown.has_metrics:
        out = sum(one.bytes_out or 0 for one in shown.topics)
        head.append(f"  out {size_text(round(out))}/s", "bold")
    head.append("\n")
    return head


def _topic_part(shown: Picture, width: int, rows: int | None) -> list[Text | Table]:
    if not shown.topics:
        return [Text("There are no topics yet.", QUIET)]
    is_wide, is_narrow = width >= WIDE, width < NARROW
    titles = ["topic", ">records/s in", ">bytes/s in"]
    if shown.has_metrics:
        titles += [">bytes/s out"] if is_narrow else [">records/s out", ">bytes/s out"]
    titles += [] if is_narrow else [">size", ">partitions"] if is_wide else [">size"]
    table = live.table(*titles)
    for one in shown.topics[:rows]:
        size = "?" if one.size_bytes is None else size_text(one.size_bytes)
        cells: dict[str, str | Text] = {
            "topic": one.name,
            ">records/s in": _rate(one.records_in),
            ">bytes/s in": _bytes_rate(one.bytes_in),
            ">records/s out": _rate(one.records_out),
            ">bytes/s out": _bytes_rate(one.bytes_out),
            ">size": size,
            ">partitions": str(one.partitions),
        }
        table.add_row(*(cells[title] for title in titles))
    return [table, *_more(len(shown.topics), rows, "topic")]


def _group_table(groups: list[GroupRate], width: int) -> Table:
    is_wide = width >= WIDE
    table = live.table("group", ">lag", ">reads/s", "catches up", "state", *(["type"] if is_wide else []))
    for one in groups:
        lag = Text("?" if one.lag is None else count_text(one.lag), GOOD if one.lag == 0 else WARN if one.lag else "")
        if one.lag == 0:
            soon = ""
        elif one.catches_up_s is not None:
            soon = f"in {time_short(one.catches_up_s)}" if one.catches_up_s < 86_400 else "in days"
        else:
            soon = "" if one.lag is None else "-"
        table.add_row(one.name, lag, _rate(one.reads), soon, one.state, *([one.kind] if is_wide else []))
    return table


def _api_table(shown: Picture) -> Table:
    table = live.table("request", ">requests/s", ">p50", ">p99")
    for one in shown.apis[:APIS_MAX]:
        table.add_row(
            one.name,
            rate_text(one.requests),
            *("-" if seconds is None else time_short(seconds) for seconds in (one.p50_s, one.p99_s)),
        )
    return table


def _disk_table(disks: list[DiskUse], width: int) -> Table:
    blocks_max = 20 if width >= NARROW else 6
    table = live.table("disk", ">logs", "in use", ">", ">free")
    for one in disks:
        name = f"broker {one.broker} {one.path}" if width >= NARROW else f"broker {one.broker}"
        if one.free_bytes is None or one.total_bytes is None:
            table.add_row(name, size_text(one.size_bytes), "?", "", "?")
            continue
        used = 1 - one.free_bytes / one.total_bytes
        style = BAD if used >= DISK_BAD else WARN if used >= DISK_WARN else GOOD
        blocks = Text(bar(used, blocks_max).ljust(blocks_max, "·"), style)
        share = share_text(one.total_bytes - one.free_bytes, one.total_bytes)
        table.add_row(name, size_text(one.size_bytes), blocks, share, size_text(one.free_bytes))
    return table


def _more(there: int, rows: int | None, noun: str) -> list[Text | Table]:
    if rows is None or there <= rows:
        return []
    return [Text(f"… and {plural(there - rows, noun)} more", QUIET)]


def _rate(rate: float | None) -> Text:
    return Text("?" if rate is None else rate_text(rate), "" if rate else QUIET)


def _bytes_rate(rate: float | None) -> Text:
    return Text("?" if rate is None else size_text(round(rate)), "" if rate else QUIET)
