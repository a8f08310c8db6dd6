"""`headrace txn`: transactions that are open, what they hold up, and an end to those that hang."""

from __future__ import annotations

import time
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import translate
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from headrace.cli import Misused
from headrace.cli.amounts import duration_ms
from headrace.cli.columns import Cell, Column
from headrace.cli.connection import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    DryRun,
    Json,
    Yes,
    all_topics,
    complete_topics,
    matching,
    run,
)
from headrace.cli.latencies import time_short
from headrace.cli.output import BAD, GOOD, NAME, QUIET, WARN, print_facts, print_json, print_table, remark, say, sure
from headrace.cli.quantities import plural, time_text
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.client.admin import ProducerInfo, TransactionDetail, TransactionListing

app = typer.Typer(
    help="Look at transactions, end one by force, find those that hang.\n\n"
    "Where the cluster is: --bootstrap HOST:PORT, or the variable HEADRACE_BOOTSTRAP.\n\n"
    "Examples:\n\n"
    "- `headrace txn list --state Ongoing --longer-than 1m`\n"
    "- `headrace txn describe billing-1`\n"
    "- `headrace txn find-hanging`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

_STATES: Final = {"Ongoing": WARN, "CompleteCommit": GOOD, "CompleteAbort": GOOD, "Empty": QUIET, "Dead": BAD}
_UNDER_WAY: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
TopicOption = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic.", autocompletion=complete_topics)
]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _state(state: str) -> Text:
    return Text(state, _STATES.get(state, WARN))


def _age(since_ms: int, now_ms: int) -> str:
    return "-" if since_ms < 0 else time_short(max(now_ms - since_ms, 1) / 1000)


# --- list and describe ------------------------------------------------------------------------------------------------


@app.command("list")
def list_transactions(
    pattern: Annotated[
        str | None, typer.Argument(metavar="PATTERN", help="Only transactional ids such as 'billing-*'.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only in this state, as Ongoing; repeatable.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="N", min=0, help="Only of this producer; repeatable.")
    ] = None,
    longer: Annotated[
        str | None, typer.Option("--longer-than", metavar="TIME", help="Only those that run for as long, as 5m.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List transactional ids, the state of each, and how long its transaction is under way.

    Examples:

    - `headrace txn list`
    - `headrace txn list --state Ongoing --longer-than 1m`
    - `headrace txn list 'billing-*'`
    """
    running_ms = -1 if longer is None else _duration(longer)

    async def work(client: Client) -> list[tuple[TransactionListing, TransactionDetail | None]]:
        failures: dict[int, HeadraceError] = {}
        found = await client.admin.list_transactions(
            states=_states(state or ()), producer_ids=producer_id or (), running_ms=running_ms, failures=failures
        )
        for broker, error in failures.items():
            remark(f"Broker {broker} does not tell its transactions: {error}")
        if pattern is not None:
            import re

            wanted = re.compile(translate(pattern))
            found = {name: one for name, one in found.items() if wanted.match(name)}
        open_ = [name for name, one in found.items() if one.state in _UNDER_WAY]
        details: dict[str, TransactionDetail] = {}
        for name in open_:
            try:
                details |= await client.admin.describe_transactions([name])
            except Refused:
                continue  # it has ended meanwhile
        return [(one, details.get(name)) for name, one in found.items()]

    shown, now_ms = run(bootstrap, work, once=True), _now_ms()
    if as_json:
        print_json([_listing_json(listing, detail) for listing, detail in shown])
        return
    if not shown:
        remark("There are no such transactions.")
        return
    columns = [Column("transactional id", NAME), Column("state"), Column(">runs for"), Column(">partitions", "", 1)]
    columns += [Column(">producer id", "", 2), Column(">coordinator", "", 3)]
    rows: list[list[Cell]] = [
        [
            listing.transactional_id,
            _state(listing.state),
            "-" if detail is None else _age(detail.started_ms, now_ms),
            "-" if detail is None else str(len(detail.partitions)),
            str(listing.producer_id),
            str(listing.coordinator_id),
        ]
        for listing, detail in shown
    ]
    print_table(columns, rows)


def _states(given: Sequence[str]) -> list[str]:
    known = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]
    known += ["PrepareEpochFence"]
    found = []
    for text in given:
        match = next((name for name in known if name.lower() == text.lower()), None)
        if match is None:
            near = get_close_matches(text.capitalize(), known, n=1)
            hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(known)}"
            raise Misused(f"--state {text}: there is no such state; {hint}")
        found.append(match)
    return found


def _duration(text: str) -> int:
    found = duration_ms(text)
    if found is None:
        raise Misused(f"{text} is no time; write one such as 30s, 5m or 2h")
    return found


def _listing_json(listing: TransactionListing, detail: TransactionDetail | None) -> dict[str, Any]:
    return {
        "transactional_id": listing.transactional_id,
        "state": listing.state,
        "producer_id": listing.producer_id,
        "coordinator": listing.coordinator_id,
        "started_ms": None if detail is None or detail.started_ms < 0 else detail.started_ms,
        "partitions": None if detail is None else _partitions_json(detail.partitions),
    }


def _partitions_json(partitions: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]


@app.command("describe")
def describe(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Transactional ids.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show transactions in full: state, producer, time-out, and the partitions that they have written to.

    Examples:

    - `headrace txn describe billing-1`
    """

    async def work(client: Client) -> dict[str, TransactionDetail]:
        return {name: await _described(client, name) for name in ids}

    shown, now_ms = run(bootstrap, work), _now_ms()
    if as_json:
        print_json([_detail_json(one) for one in shown.values()])
        return
    for number, one in enumerate(shown.values()):
        if number:
            say("")
        say(Text(one.transactional_id, f"bold {NAME}"))
        facts: list[tuple[str, Cell]] = [
            ("state", _state(one.state)),
            ("producer id", f"{one.producer_id}, epoch {one.producer_epoch}"),
            ("time-out", time_short(one.timeout_ms / 1000)),
        ]
        if one.started_ms >= 0:
            facts.append(("started", f"{time_text(one.started_ms)} UTC, {_age(one.started_ms, now_ms)} ago"))
        facts.append(("partitions", ", ".join(f"{topic}-{index}" for topic, index in one.partitions) or "-"))
        print_facts(facts, indent="  ")


async def _described(client: Client, name: str) -> TransactionDetail:
    try:
        return (await client.admin.describe_transactions([name]))[name]
    except Refused as refused:
        if refused.error is not Error.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        near = get_close_matches(name, list(await client.admin.list_transactions(failures={})), n=1)
        hint = f"did you mean {near[0]}?" if near else "see what is there with `headrace txn list`."
        raise Refused(refused.error, f"There is no transactional id '{name}'; {hint}") from refused


def _detail_json(one: TransactionDetail) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started_ms": one.started_ms if one.started_ms >= 0 else None,
        "partitions": _partitions_json(one.partitions),
    }


# --- abort ------------------------------------------------------------------------------------------------------------


@app.command("abort")
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="A transactional id: its producer is fenced.")
    ] = None,
    topic: TopicOption = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Where a transaction hangs.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", min=0, help="Whose, if several are open there.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """End a transaction by force: its records are never seen by whoever reads committed ones.

    By its transactional id, its coordinator aborts it, and the producer that has it is fenced: its next step fails.
    By a topic and partition, a marker is written into the log, past the coordinator: that is for a transaction of which
    no coordinator knows any more, as `headrace txn find-hanging` finds them.

    Examples:

    - `headrace txn abort billing-1`
    - `headrace txn abort --topic orders --partition 0 --producer-id 1000`
    """
    if (transactional_id is None) == (topic is None) or (topic is None) != (partition is None):
        raise Misused("Say which transaction: its ID, or --topic TOPIC --partition N")
    if transactional_id is not None:
        if producer_id is not None:
            raise Misused("--producer-id goes with --topic and --partition")
        _abort_by_id(transactional_id, bootstrap, yes=yes, dry_run=dry_run, as_json=as_json)
    else:
        assert topic is not None
        assert partition is not None
        _abort_at(topic, partition, producer_id, bootstrap, yes=yes, dry_run=dry_run, as_json=as_json)


def _abort_by_id(name: str, bootstrap: str, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    detail = run(bootstrap, lambda client: _described(client, name))
    is_open = detail.state in _UNDER_WAY
    if is_open and not dry_run:
        where = plural(len(detail.partitions), "partition")
        sure(f"Abort the transaction of {name} in {where}, and fence its producer?", lambda: None, yes=yes)
        run(bootstrap, lambda client: client.admin.fence_producer(name))
    if as_json:
        print_json({"transactional_id": name, "dry_run": dry_run, "aborted": is_open and not dry_run})
    elif not is_open:
        say(f"{name} has no transaction under way ({detail.state}); nothing was done.")
    else:
        say(f"{'Would abort' if dry_run else 'Aborted'} the transaction of {name}.")


def _abort_at(
    topic: str, partition: int, producer_id: int | None, bootstrap: str, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    async def find(client: Client) -> ProducerInfo:
        info = matching(await all_topics(client), [topic])[topic]
        if partition not in info.partitions:
            text = f"Topic {topic} has no partition {partition}; it has 0 to {len(info.partitions) - 1}."
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, text)
        known = (await client.admin.describe_producers([(topic, partition)]))[topic, partition]
        open_ = [one for one in known if one.transaction_start_offset >= 0]
        chosen = [one for one in open_ if producer_id is None or one.producer_id == producer_id]
        if not chosen:
            whose = "" if producer_id is None else f" of producer {producer_id}"
            raise HeadraceError(f"There is no open transaction{whose} in {topic}-{partition}.")
        if len(chosen) > 1:
            ids = ", ".join(str(one.producer_id) for one in chosen)
            raise Misused(f"Several transactions are open in {topic}-{partition}; say --producer-id, one of {ids}")
        return chosen[0]

    found = run(bootstrap, find)
    what = (
        f"the transaction of producer {found.producer_id} in {topic}-{partition}, open since offset "
        f"{found.transaction_start_offset}"
    )
    if not dry_run:
        sure(f"Abort {what}, past its coordinator?", lambda: None, yes=yes)
        given = (topic, partition, found.producer_id, found.producer_epoch, found.coordinator_epoch)
        run(bootstrap, lambda client: client.admin.abort_transaction(*given))
    if as_json:
        told = {"topic": topic, "partition": partition, "producer_id": found.producer_id}
        print_json({**told, "dry_run": dry_run, "aborted": not dry_run})
    else:
        say(f"{'Would abort' if dry_run else 'Aborted'} {what}.")


# --- find-hanging -----------------------------------------------------------------------------------------------------


@app.command("find-hanging")
def find_hanging(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Only these, or patterns.", autocompletion=complete_topics),
    ] = None,
    older: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Open for longer than this: transaction.max.timeout.ms.")
    ] = "15m",
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Find transactions that are open in a log and that no coordinator will ever end.

    Such a one holds up whoever reads committed records, and compaction. The exit code is 1 when one is found. What is
    open in a log for longer than any transaction may be is looked up at the coordinators: one that is under way there,
    with that partition, is not hanging.

    Examples:

    - `headrace txn find-hanging`
    - `headrace txn find-hanging orders --older-than 1h --json`
    """
    older_ms = _duration(older)

    async def work(client: Client) -> list[tuple[str, int, ProducerInfo, str | None]]:
        there = await all_topics(client)
        chosen = matching(there, topics, internal=True) if topics else there
        keys = [(name, index) for name, info in chosen.items() for index in info.partitions]
        producers = await client.admin.describe_producers(keys)
        before_ms = _now_ms() - older_ms
        open_ = [
            (topic, index, one)
            for (topic, index), its in producers.items()
            for one in its
            if one.transaction_start_offset >= 0 and one.last_timestamp_ms <= before_ms
        ]
        return await _not_known(client, open_)

    hanging, now_ms = run(bootstrap, work), _now_ms()
    if as_json:
        print_json([_hanging_json(*one) for one in hanging])
    elif not hanging:
        say(f"No transaction hangs: none is open for longer than {older} without a coordinator that knows of it.")
    else:
        columns = [Column("topic", NAME), Column(">partition", NAME), Column(">producer id"), Column(">since offset")]
        columns += [Column(">wrote last"), Column("transactional id", "", 1)]
        rows: list[list[Cell]] = [
            [
                topic,
                str(index),
                str(one.producer_id),
                str(one.transaction_start_offset),
                f"{_age(one.last_timestamp_ms, now_ms)} ago",
                name or "-",
            ]
            for topic, index, one, name in hanging
        ]
        print_table(columns, rows)
        topic, index, one, _ = hanging[0]
        say(f"End one with: headrace txn abort --topic {topic} --partition {index} --producer-id {one.producer_id}")
    if hanging:
        raise typer.Exit(1)


async def _not_known(
    client: Client, open_: Sequence[tuple[str, int, ProducerInfo]]
) -> list[tuple[str, int, ProducerInfo, str | None]]:
    """Those that no coordinator has under way, with the transactional id of the producer where there is one."""
    if not open_:
        return []
    ids = sorted({one.producer_id for _, _, one in open_})
    listed = await client.admin.list_transactions(producer_ids=ids)
    names = {one.producer_id: name for name, one in listed.items()}
    details: dict[str, TransactionDetail] = {}
    for name in names.values():
        try:
            details |= await client.admin.describe_transactions([name])
        except Refused:
            continue
    found = []
    for topic, index, one in open_:
        detail = details.get(names.get(one.producer_id, ""))
        is_known = detail is not None and detail.state in _UNDER_WAY and (topic, index) in detail.partitions
        if not is_known:
            found.append((topic, index, one, names.get(one.producer_id)))
    return found


def _hanging_json(topic: str, index: int, one: ProducerInfo, name: str | None) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": index,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "start_offset": one.transaction_start_offset,
        "last_timestamp_ms": one.last_timestamp_ms,
        "transactional_id": name,
    }
