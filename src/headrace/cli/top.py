"""`headrace top`: what goes on in a cluster, live: rates of topics, lag of groups, latency of requests, disks."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from headrace.cli import INTERRUPTED, Misused, live
from headrace.cli.amounts import duration_ms
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Json, run
from headrace.cli.output import print_json_line
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cli.top_sample import Picture
    from headrace.client import Client

INTERVAL_MIN_S: Final = 0.2

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
    rows: Annotated[int | None, typer.Option("--rows", metavar="N", min=1, help="At most so many in a table.")] = None,
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
    is_live = live.is_possible() and not as_json and not once
    wanted = 1 if once else count
    is_interrupted = False

    async def work(client: Client) -> None:
        nonlocal is_interrupted
        seen = pictures(client, every_ms / 1000, metrics, internal=internal, with_groups=not no_groups, is_live=is_live)
        try:
            if is_live:
                from headrace.cli.top_view import drawn

                await live.draw(seen, lambda width, height, shown: drawn(shown, width, height, rows), wanted)
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
    from headrace.cli.top_view import drawn

    left = -1 if wanted is None else wanted
    is_first = True
    async for shown in seen:
        if as_json:
            print_json_line(picture_json(shown))
        else:
            console = Console(highlight=False, emoji=False)
            if not is_first:
                print()
            for line in drawn(shown, console.width if console.is_terminal else None, None, rows):
                console.print(line, soft_wrap=True)
            sys.stdout.flush()
        is_first = False
        left -= 1
        if not left:
            return
