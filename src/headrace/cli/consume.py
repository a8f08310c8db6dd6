"""`headrace consume`: records of topics, from anywhere to anywhere, filtered and in any form."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli import INTERRUPTED, Misused
from headrace.cli.amounts import duration_ms
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Topics, run
from headrace.cli.consume_range import BEGINNING, END, Point, Range, TopicPartition, chosen, point, ranges
from headrace.cli.expression import Expression
from headrace.cli.output import remark
from headrace.cli.quantities import plural
from headrace.cli.record_format import Format, OutputFormat, Printer, formatter, template

if TYPE_CHECKING:
    from headrace.client import Client, ConsumedRecord, Consumer, GroupConsumer

POLL_RECORDS: Final = 500
POLL_S: Final = 0.25
LAST_MAX: Final = 1_000_000
COMMIT_EVERY_S: Final = 5.0

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


class GroupProtocol(StrEnum):
    CONSUMER = "consumer"
    CLASSIC = "classic"


@app.command("consume")
def consume(
    topics: Topics,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", "-f", metavar="WHERE", help="beginning, end, an offset, or a time as 2h or 2026-01-31T12:00Z."
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", "-l", metavar="N", min=1, max=LAST_MAX, help="Begin with the N newest.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", "-u", metavar="WHERE", help="end, an offset, or a time: stop there. Else for ever."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after printing this many.")
    ] = None,
    idle: Annotated[
        str | None, typer.Option("--idle", metavar="TIME", help="Stop when nothing has come for as long, as 10s.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this one; may be repeated."),
    ] = None,
    filtered: Annotated[
        str | None,
        typer.Option("--filter", "-w", metavar="EXPRESSION", help="Only those for which it holds; see above."),
    ] = None,
    how: Annotated[OutputFormat, typer.Option("--format", "-o", help="How a record is printed.")] = OutputFormat.TEXT,
    template_: Annotated[
        str | None,
        typer.Option("--template", "-t", metavar="TEXT", help="Print this, with {offset}, {key}, {value.field} in it."),
    ] = None,
    separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Print the key and this before a value.")
    ] = None,
    null: Annotated[str, typer.Option("--null", metavar="TEXT", help="What is printed for null.")] = "null",
    parse: Annotated[bool, typer.Option("--parse", help="In JSON, keys and values that are JSON as that.")] = False,
    committed: Annotated[
        bool, typer.Option("--read-committed", help="No records of transactions that are open or were aborted.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="NAME", help="As a member of this group, which remembers how far it is."),
    ] = None,
    protocol: Annotated[
        GroupProtocol, typer.Option("--group-protocol", help="classic for brokers before Kafka 4.0.")
    ] = GroupProtocol.CONSUMER,
    no_commit: Annotated[
        bool, typer.Option("--no-commit", help="Don't let the group remember what was printed.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only records, nothing beside them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: a line for each record.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print records of topics: those that are there, those that come, or both.

    Without --from it begins with --until at the beginning, and else with what comes from now on. Without --until,
    --count or --idle it goes on until Ctrl-C. Numbers are offsets; a time in milliseconds is written @1767268800000.

    An expression asks for `topic`, `partition`, `offset`, `timestamp`, `size`, `key`, `value`, `headers.name`, and for
    fields of keys and values that are JSON, as in `value.items[0].price`; with `== != < <= > >=`, `=~ '^regex'`, `in`,
    `and`, `or`, `not`, `+ - * / %`, and `len() lower() upper() number() text()`. A template has them in braces.

    Examples:

    - `headrace consume orders`
    - `headrace consume orders --from beginning --until end`
    - `headrace consume orders --last 10 --until end --format full`
    - `headrace consume orders --from 2h --filter "headers.region == 'eu'"`
    - `headrace consume 'orders-*' -t '{topic} {offset} {key}: {value.total}'`
    - `headrace consume a -f beginning -u end --json | headrace produce b -f json`
    - `headrace consume orders --group billing --json | jq .value`
    """
    if as_json:
        if how not in (OutputFormat.TEXT, OutputFormat.JSON) or template_ is not None:
            raise Misused("--json is --format json; leave the other one out")
        how = OutputFormat.JSON
    wish = _Wish(
        topics,
        partition,
        None if begin is None else point(begin, "--from"),
        last,
        None if until is None else point(until, "--until"),
        count,
        None if idle is None else _seconds(idle),
        None if filtered is None else Expression(filtered),
        "read_committed" if committed else "read_uncommitted",
    )
    if last is not None and begin is not None:
        raise Misused("--last says where to begin; leave out --from")
    if wish.until is not None and wish.until.end == BEGINNING:
        raise Misused("--until beginning would print nothing; write --until end")
    is_terminal = sys.stdout.isatty()
    if template_ is not None:
        if how is not OutputFormat.TEXT or separator is not None:
            raise Misused("--template says how a record is printed; leave out --format and --key-separator")
        format_: Format = template(template_, is_terminal=is_terminal)
    else:
        format_ = formatter(how, separator=separator, null=null, nested=parse, is_terminal=is_terminal)
    reading = Reading(wish, Printer(format_), quiet=quiet)
    if group is None:
        if no_commit:
            raise Misused("--no-commit goes with --group; without a group nothing is remembered anyway")
        run(bootstrap, reading.alone)
    else:
        if partition or last is not None:
            raise Misused(
                "A group shares out the partitions itself, from where it was; leave out --partition and --last"
            )
        if wish.begin is not None and wish.begin.end is None:
            raise Misused("With --group, --from is beginning or end: where to begin in what the group has not read yet")
        if wish.until is not None and wish.until.end != END:
            raise Misused("With --group, --until can only be end")
        run(bootstrap, lambda client: reading.in_group(client, group, protocol.value, is_committing=not no_commit))
    if reading.is_interrupted:
        raise typer.Exit(INTERRUPTED)


def _seconds(text: str) -> float:
    found = duration_ms(text)
    if not found:
        raise Misused(f"--idle {text}: write a time such as 500ms, 10s or 1m")
    return found / 1000


class _Wish:
    """What to read, as the options say."""

    __slots__ = ("begin", "count", "filter", "idle_s", "isolation", "last", "partitions", "topics", "until")

    def __init__(
        self,
        topics: Sequence[str],
        partitions: Sequence[int] | None,
        begin: Point | None,
        last: int | None,
        until: Point | None,
        count: int | None,
        idle_s: float | None,
        filter_: Expression | None,
        isolation: str,
    ) -> None:
        self.topics = topics
        self.partitions = partitions
        self.begin = begin
        self.last = last
        self.until = until
        self.count = count
        self.idle_s = idle_s
        self.filter = filter_
        self.isolation = isolation


class Reading:
    """Reads and prints until what was wished for is there."""

    __slots__ = ("_printer", "_quiet", "_wish", "is_interrupted", "seen")

    def __init__(self, wish: _Wish, printer: Printer, *, quiet: bool) -> None:
        self._wish = wish
        self._printer = printer
        self._quiet = quiet
        self.seen = 0
        self.is_interrupted = False

    async def alone(self, client: Client) -> None:
        wish = self._wish
        partitions = await chosen(client, wish.topics, wish.partitions)
        begin = wish.begin or Point(end=BEGINNING if wish.until is not None else END)
        wanted = await ranges(client, partitions, begin, wish.until, wish.last, wish.isolation)
        consumer = client.consumer(auto_offset_reset="earliest", isolation_level=wish.isolation)
        consumer.assign(partitions)
        for (topic, index), span in wanted.items():
            consumer.seek(topic, index, span.start)
        try:
            if wish.last is not None:
                await self._print_last(consumer, wanted, wish.last)
            else:
                await self._print_range(consumer, wanted)
        except asyncio.CancelledError:
            self.is_interrupted = True
        finally:
            self._printer.flush()
        self._tell()

    # --- by assignment ------------------------------------------------------------------------------------------------

    async def _print_range(self, consumer: Consumer, wanted: dict[TopicPartition, Range]) -> None:
        """Each partition from its start up to its stop; those that are through are given up."""
        open_ = {key: span for key, span in wanted.items() if span.stop is None or span.start < span.stop}
        if len(open_) != len(wanted):
            consumer.assign(list(open_))
        if open_ and all(span.stop is None for span in open_.values()):
            self._tell_waiting()
        heard = time.monotonic()
        has_stops = any(span.stop is not None for span in open_.values())
        while open_:
            records = await consumer.poll(POLL_RECORDS, timeout_s=self._patience(has_stops))
            for record in records:
                stop = open_[record.topic, record.partition].stop
                if (stop is None or record.offset < stop) and self._is_enough_with(record):
                    return
            self._printer.flush()
            if records:
                heard = time.monotonic()
            elif self._is_idle(heard):
                return
            if has_stops and (through := await _through(consumer, open_)):
                for key in through:
                    del open_[key]
                consumer.assign(list(open_))

    async def _print_last(self, consumer: Consumer, wanted: dict[TopicPartition, Range], count: int) -> None:
        """The newest by their times, of all partitions together, oldest first; then what comes after them."""
        ends = await consumer.end_offsets(list(wanted))
        starts = {key: span.start for key, span in wanted.items()}
        open_ = {key: Range(starts[key], ends[key]) for key in wanted if starts[key] < ends[key]}
        newest: list[ConsumedRecord] = []
        consumer.assign(list(open_))
        for topic, index in open_:
            consumer.seek(topic, index, starts[topic, index])
        while open_:
            records = await consumer.poll(POLL_RECORDS, timeout_s=POLL_S)
            newest += [record for record in records if record.offset < ends[record.topic, record.partition]]
            if len(newest) > 2 * count:
                newest = _newest(newest, count)
            if through := await _through(consumer, open_):
                for key in through:
                    del open_[key]
                consumer.assign(list(open_))
        for record in _newest(newest, count):
            if self._is_enough_with(record):
                return
        self._printer.flush()
        after = {key: Range(ends[key], wanted[key].stop) for key in wanted}
        consumer.assign(list(after))
        for (topic, index), span in after.items():
            consumer.seek(topic, index, span.start)
        await self._print_range(consumer, after)

    # --- in a group ---------------------------------------------------------------------------------------------------

    async def in_group(self, client: Client, group: str, protocol: str, *, is_committing: bool) -> None:
        wish = self._wish
        partitions = await chosen(client, wish.topics, None)
        ends = await client.consumer(isolation_level=wish.isolation).end_offsets(partitions)
        done: dict[TopicPartition, int] = {}

        async def commit(only: Sequence[TopicPartition] | None = None) -> None:
            offsets = {key: done.pop(key) for key in list(done) if only is None or key in only}
            if offsets and is_committing:
                await consumer.commit(offsets)

        at_end = wish.begin is not None and wish.begin.end == END
        consumer = client.group_consumer(
            group,
            protocol=protocol,
            auto_offset_reset="latest" if at_end else "earliest",
            isolation_level=wish.isolation,
            auto_commit_s=None,
            revoked=commit,
        )
        consumer.subscribe(list(dict.fromkeys(topic for topic, _ in partitions)))
        if wish.until is None:
            self._tell_waiting()
        try:
            await self._print_shared(consumer, ends, done, commit)
        except asyncio.CancelledError:
            self.is_interrupted = True
        finally:
            self._printer.flush()
            await commit()
        await consumer.close()
        self._tell()

    async def _print_shared(
        self, consumer: GroupConsumer, ends: dict[TopicPartition, int], done: dict[TopicPartition, int], commit: Any
    ) -> None:
        heard = committed = time.monotonic()
        while True:
            records = await consumer.poll(POLL_RECORDS, timeout_s=POLL_S)
            for record in records:
                is_enough = self._is_enough_with(record)
                done[record.topic, record.partition] = record.offset + 1
                if is_enough:
                    return
            self._printer.flush()
            now = time.monotonic()
            if now - committed >= COMMIT_EVERY_S:
                committed = now
                await commit()
            if records:
                heard = now
            elif self._is_idle(heard):
                return
            elif self._wish.until is not None and (mine := consumer.assignment):
                stops = {key: Range(0, ends.get(key, 0)) for key in mine}
                if len(await _through(consumer, stops)) == len(mine):
                    return

    # --- when it is enough --------------------------------------------------------------------------------------------

    def _is_enough_with(self, record: ConsumedRecord) -> bool:
        """Prints the record, if it is wanted. Whether that was the last one."""
        self.seen += 1
        wish = self._wish
        if wish.filter is not None and not wish.filter.holds(record):
            return False
        self._printer.add(record)
        return wish.count is not None and self._printer.printed >= wish.count

    def _patience(self, has_stops: bool) -> float | None:
        """How long to wait before looking around; for ever when there is nothing to look for."""
        return POLL_S if has_stops or self._wish.idle_s is not None else None

    def _is_idle(self, heard: float) -> bool:
        return self._wish.idle_s is not None and time.monotonic() - heard >= self._wish.idle_s

    def _tell_waiting(self) -> None:
        """A person who sees nothing is told that this is as it should be."""
        if not self._quiet and sys.stderr.isatty() and self._wish.begin is None and self._wish.last is None:
            remark("Waiting for new records; Ctrl-C ends. What is there already: --from beginning.")

    def _tell(self) -> None:
        if self._quiet or not sys.stderr.isatty():
            return
        left_out = f" of {plural(self.seen, 'record')} read" if self._wish.filter is not None else ""
        remark(f"({plural(self._printer.printed, 'record')}{left_out})")


def _newest(records: list[ConsumedRecord], count: int) -> list[ConsumedRecord]:
    records.sort(key=lambda record: (record.timestamp_ms, record.topic, record.partition, record.offset))
    return records[-count:]


async def _through(consumer: Consumer, open_: dict[TopicPartition, Range]) -> list[TopicPartition]:
    """The partitions whose stop was reached, also by what is no record: markers of transactions, compacted offsets."""
    return [key for key, span in open_.items() if span.stop is not None and await consumer.position(*key) >= span.stop]
