"""`headrace produce`: records into a topic, from standard input, files or the command line."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli import INTERRUPTED, Misused, interrupts
from headrace.cli.amounts import duration_ms, moment_ms, size_bytes
from headrace.cli.columns import Column
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Json, Topic, all_topics, run, unknown_topic
from headrace.cli.input_lines import STANDARD_INPUT, read_lines, total_bytes
from headrace.cli.output import NAME, print_json, print_table, remark, say
from headrace.cli.progress import Bar, rate_text
from headrace.cli.quantities import count_text, plural, size_text
from headrace.cli.record_lines import BadLine, InputFormat, LineReader, NewRecord, at_line, headers_of
from headrace.cli.texts import as_bytes
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.client import Client, Produced, Producer

PAUSE_MIN_S: Final = 0.005
"""A rate is kept by pauses of at least this: shorter ones would cost more than they are worth."""
SENT_AT_ONCE_MAX: Final = 1000
PATIENCE_S: Final = 1.0
"""After this a person who pressed Ctrl-C is told what it waits for."""
PARTITIONS_SHOWN_MAX: Final = 30

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


class Acks(StrEnum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@app.command("produce")
def produce(
    topic: Topic,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Files of records; - or none is standard input.")
    ] = None,
    how: Annotated[
        InputFormat,
        typer.Option("--format", "-f", help="What a line is. With whole, each file is one record, as it is."),
    ] = InputFormat.TEXT,
    separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines have a key before this, as in a:b."),
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="A value or key of just this text is null.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", "-v", metavar="TEXT", help="One record of this, instead of input.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of records that have none of their own.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=TEXT",
            help="A header of every record; NAME alone has a null value. Repeatable.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="To this one; else by the key, or spread."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", "-t", metavar="TIME", help="Of every record, as 2026-01-31T12:00Z; else now."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", metavar="N", min=1, help="At most this many; with --value, that many of it."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", "-r", metavar="N", min=0.001, help="At most this many records a second.")
    ] = None,
    acks: Annotated[
        Acks,
        typer.Option("--acks", "-a", help="Who must have a record: all in-sync replicas, the leader, or nobody."),
    ] = Acks.ALL,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="How batches are compressed.")] = Codec.NONE,
    batch: Annotated[
        str, typer.Option("--batch", metavar="SIZE", help="The most of a batch, before compression.")
    ] = "64KiB",
    linger: Annotated[
        str, typer.Option("--linger", metavar="TIME", help="How long a batch waits for more records.")
    ] = "5ms",
    request: Annotated[
        str, typer.Option("--max-request", metavar="SIZE", help="The most of a request, and so of a record.")
    ] = "1MiB",
    create: Annotated[
        bool, typer.Option("--create", help="Make the topic if it is not there, as the cluster does by default.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing when all went well.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send records to a topic: lines of standard input or of files, or one value.

    It ends when everything is acknowledged, and tells what was. Ctrl-C stops reading, waits for what is under way, and
    tells how many. A line that is no record ends it, too: its number is told, and what came before it has been sent.

    A line of JSON is `{"key": "a", "value": "b", "headers": {"h": "x"}, "partition": 0, "timestamp": "2026-01-31"}`,
    where only the value is needed; one that is no text is sent as JSON. Bytes are given as `"value_base64"`. What
    `headrace consume --format json` prints is taken as it is.

    Examples:

    - `echo hello | headrace produce greetings`
    - `headrace produce orders orders.jsonl --format json`
    - `headrace produce users users.txt --key-separator :`
    - `headrace produce users --key 42 --value '' --null ''`
    - `headrace produce photos *.jpg --format whole -z none`
    - `headrace produce load --value x --count 100000 --rate 5000 --acks 1`
    """
    if value is not None and files:
        raise Misused("Give --value or files, not both")
    if value is not None and how in (InputFormat.JSON, InputFormat.WHOLE):
        raise Misused(f"--value goes with --format text, hex or base64, not {how.value}")
    if separator is not None and how is InputFormat.WHOLE:
        raise Misused("--key-separator is for lines; with --format whole the key is --key")
    now_ms = time.time_ns() // 1_000_000
    reader = LineReader(
        how,
        separator=separator,
        null=null,
        key=None if key is None else as_bytes(key),
        headers=headers_of(header or ()),
        partition=partition,
        timestamp_ms=None if timestamp is None else moment_ms(timestamp, now_ms),
    )
    settings: dict[str, Any] = {
        "acks": "all" if acks is Acks.ALL else int(acks.value),
        "compression": compression.value,
        "batch_bytes": _size(batch, "--batch"),
        "linger_ms": _duration_ms(linger, "--linger"),
        "request_bytes_max": _size(request, "--max-request"),
    }
    sources = [STANDARD_INPUT] if value is None and not files else list(files or ())
    if value is not None:
        try:
            record = reader.record(as_bytes(value))
        except BadLine as error:
            raise Misused(f"--value: {error}") from None
        given = _repeated(record, count or 1)
    else:
        given = _read(reader, sources, whole=how is InputFormat.WHOLE, count=count)
        if STANDARD_INPUT in sources and sys.stdin.isatty():
            remark("Type records, one a line; Ctrl-D ends.")
    is_typed = STANDARD_INPUT in sources and sys.stdin.isatty()
    total = None if rate is not None or count is not None else total_bytes(sources)
    bar = Bar(
        f"to {topic}",
        float(count) if count is not None else None if total is None or value is not None else float(total),
        wanted=not (quiet or is_typed),
    )
    tally = Tally(topic, by_count=count is not None)

    async def work(client: Client) -> None:
        await _check_topic(client, topic, partition, create=create)
        producer = client.producer(**settings)
        with bar:
            await tally.send(producer, given, rate, bar)

    try:
        run(bootstrap, work)
    except KeyboardInterrupt:  # the second one: what was under way has no answer
        tally.is_interrupted = True
    tally.tell(as_json=as_json, quiet=quiet)


def _size(text: str, option: str) -> int:
    found = int(text) if text.isdecimal() else size_bytes(text)
    if not found:
        raise Misused(f"{option} {text}: write a size such as 64KiB or 1MB")
    return found


def _duration_ms(text: str, option: str) -> int:
    found = int(text) if text.isdecimal() else duration_ms(text)
    if found is None:
        raise Misused(f"{option} {text}: write a time such as 5ms or 1s")
    return found


async def _check_topic(client: Client, topic: str, partition: int | None, *, create: bool) -> None:
    """The topic is there, and so is the partition; or else it is made, or the nearest name offered."""
    topics = await all_topics(client)
    if topic not in topics:
        if not create:
            raise unknown_topic(topic, topics)
        await client.admin.create_topics([topic])
        topics = await client.admin.describe_topics([topic])
    there = len(topics[topic].partitions)
    if partition is not None and partition >= there:
        text = f"Topic {topic} has no partition {partition}; it has 0 to {there - 1}."
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, text)


def _too_large(refused: Refused, where: str) -> Refused:
    if refused.error is not Error.MESSAGE_TOO_LARGE:
        return Refused(refused.error, f"{where}: {refused}")
    what = str(refused).partition(" is larger")[0].removeprefix("A ")
    return Refused(
        refused.error,
        f"{where}: a {what} is larger than a request may be: raise --max-request, and max.message.bytes of the topic "
        "if need be.",
    )


Given = AsyncIterator[tuple[str, NewRecord, int]]
"""Where a record stands, the record, and how much of the input it takes."""


async def _repeated(record: NewRecord, count: int) -> Given:
    for number in range(count):
        yield f"record {number + 1}", record, 0


async def _read(reader: LineReader, sources: list[str], *, whole: bool, count: int | None) -> Given:
    left = -1 if count is None else count
    async for block in read_lines(sources, whole=whole):
        number, size = block.first_number, block.size_bytes
        for line in block.lines:
            try:
                record = reader.record(line)
            except BadLine as error:
                raise at_line(block.where, number, line, error) from None
            yield f"{block.where}, line {number}", record, size
            size = 0
            number += 1
            left -= 1
            if not left:
                return


def _is_uncertain(error: BaseException | None) -> bool:
    from headrace.client import Uncertain

    return isinstance(error, Uncertain)


async def _tell_refusals(producer: Producer) -> None:
    """What a broker refuses for now is sent again, for two minutes: who waits is told why, once for each reason."""
    told: set[Error] = set()
    while True:
        await asyncio.sleep(PATIENCE_S)
        refused = producer.refused
        if refused is not None and refused.error not in told:
            told.add(refused.error)
            remark(f"Waiting: {refused} Records are sent again until their time-out; Ctrl-C gives them up.")


class Tally:
    """What was sent, what was acknowledged, what was not, and where it is."""

    __slots__ = (
        "_by_count",
        "_first_failure",
        "_started",
        "acknowledged",
        "failed",
        "input_bytes",
        "is_interrupted",
        "places",
        "sent",
        "sent_bytes",
        "stopped_by",
        "topic",
    )

    def __init__(self, topic: str, *, by_count: bool) -> None:
        self.topic = topic
        self._by_count = by_count
        self.sent = 0
        self.sent_bytes = 0
        self.input_bytes = 0
        self.acknowledged = 0
        self.failed = 0
        self.places: dict[int, list[int]] = {}
        """By partition: records, the first offset, the last."""
        self.is_interrupted = False
        self.stopped_by: HeadraceError | None = None
        """Why nothing more was read."""
        self._first_failure: HeadraceError | None = None
        self._started = time.monotonic()

    @property
    def unanswered(self) -> int:
        """Records that may or may not be there."""
        return self.sent - self.acknowledged - self.failed

    async def send(self, producer: Producer, given: Given, rate: float | None, bar: Bar) -> None:
        """All that is given, until something goes wrong or Ctrl-C; then waits for what is under way."""
        self._started = time.monotonic()
        telling = asyncio.ensure_future(_tell_refusals(producer))
        try:
            await self._send_all(producer, given, rate, bar)
        except asyncio.CancelledError:
            self.is_interrupted = True
        except HeadraceError as error:
            self.stopped_by = error
        try:
            flushing = asyncio.ensure_future(producer.flush())
            since, is_told = time.monotonic(), False
            while not flushing.done():
                await asyncio.wait([flushing], timeout=0.1)
                self._show(bar)
                if self.is_interrupted and not is_told and time.monotonic() - since >= PATIENCE_S:
                    is_told = True
                    remark(f"Waiting for {plural(self.unanswered, 'record')} under way; Ctrl-C again gives them up.")
            await flushing
        except asyncio.CancelledError:
            self.is_interrupted = True
            await producer.close(timeout_s=0)
        finally:
            telling.cancel()

    async def _send_all(self, producer: Producer, given: Given, rate: float | None, bar: Bar) -> None:
        from headrace.client import BufferFull

        async for where, record, size in given:
            while True:
                try:
                    future = producer.send_soon(
                        self.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
                    )
                    break
                except BufferFull as full:
                    self._show(bar)
                    await producer.room(full.size_bytes)
                except Refused as refused:
                    raise _too_large(refused, where) from refused
            self.sent += 1
            self.sent_bytes += record.size_bytes
            self.input_bytes += size
            future.add_done_callback(self._settled)
            if self._first_failure is not None:
                raise self._first_failure
            if rate is not None:
                ahead_s = self._started + self.sent / rate - time.monotonic()
                if ahead_s >= PAUSE_MIN_S:
                    self._show(bar)
                    await asyncio.sleep(ahead_s)
            if not self.sent % SENT_AT_ONCE_MAX:
                self._show(bar)
                await asyncio.sleep(0)

    def _settled(self, future: asyncio.Future[Produced]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is None and not future.cancelled():
            at = future.result()
            self.acknowledged += 1
            place = self.places.get(at.partition)
            if place is None:
                self.places[at.partition] = [1, at.offset, at.offset]
            else:
                place[0] += 1
                place[1], place[2] = min(place[1], at.offset), max(place[2], at.offset)
            return
        if not _is_uncertain(error):
            self.failed += 1
        if self._first_failure is None and isinstance(error, HeadraceError):
            self._first_failure = error

    def _show(self, bar: Bar) -> None:
        took_s = max(time.monotonic() - self._started, 0.001)
        told = f"{count_text(self.acknowledged)} acknowledged, {rate_text(self.acknowledged / took_s)} a second"
        bar.show(self.sent if self._by_count else self.input_bytes, told)

    # --- the end ------------------------------------------------------------------------------------------------------

    def tell(self, *, as_json: bool, quiet: bool) -> None:
        """What became of the records; ends the program when not all is well."""
        took_s = time.monotonic() - self._started
        failure = self.stopped_by or self._first_failure
        if as_json:
            print_json(self._as_json(took_s, failure))
        elif not quiet or failure is not None or self.is_interrupted:
            self._print(took_s)
        if self.is_interrupted:
            raise typer.Exit(INTERRUPTED)
        if failure is not None:
            raise failure

    def _print(self, took_s: float) -> None:
        if self.is_interrupted:
            remark(f"Stopped by {interrupts.cause()}.")
        if not self.sent:
            say("Nothing was sent.")
            return
        is_all = self.acknowledged == self.sent
        much = f"{plural(self.sent, 'record')} ({size_text(self.sent_bytes)})"
        if is_all and all(last >= 0 for _, _, last in self.places.values()):
            what = f"{much} to topic {self.topic}, {'' if self.sent == 1 else 'all '}acknowledged"
        elif is_all:
            what = f"{much} to topic {self.topic}, not acknowledged (acks=0)"
        else:
            what = f"{count_text(self.acknowledged)} of {much} acknowledged by topic {self.topic}"
        speed = f", {rate_text(self.acknowledged / took_s)} a second" if took_s >= 1 else ""
        say(f"{what}{speed}.")
        if self.unanswered:
            say(f"{plural(self.unanswered, 'record')} may or may not be there: nobody answered.")
        if 0 < len(self.places) <= PARTITIONS_SHOWN_MAX and all(last >= 0 for _, _, last in self.places.values()):
            columns = [Column(">partition", NAME), Column(">records"), Column("offsets")]
            rows = [
                [str(index), count_text(count), str(first) if first == last else f"{first} to {last}"]
                for index, (count, first, last) in sorted(self.places.items())
            ]
            print_table(columns, rows, indent="  ")

    def _as_json(self, took_s: float, failure: HeadraceError | None) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "uncertain": self.unanswered,
            "failed": self.failed,
            "bytes": self.sent_bytes,
            "seconds": round(took_s, 3),
            "interrupted": self.is_interrupted,
            "error": None if failure is None else str(failure),
            "partitions": [
                {"partition": index, "records": count, "first_offset": first, "last_offset": last}
                for index, (count, first, last) in sorted(self.places.items())
            ],
        }
