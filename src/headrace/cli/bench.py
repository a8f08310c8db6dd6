"""`headrace bench`: how fast a cluster is, any that speaks the Kafka protocol; with percentiles and a histogram."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli import INTERRUPTED, Misused, interrupts
from headrace.cli.amounts import duration_ms, size_bytes
from headrace.cli.bench_plot import check_plot, write_plot
from headrace.cli.bench_result import Result, print_result
from headrace.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Json, all_topics, complete_topics, run, unknown_topic
from headrace.cli.output import print_json, remark
from headrace.cli.produce import Acks, Codec
from headrace.cli.progress import Bar, rate_text
from headrace.cli.quantities import plural, size_text
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.cli.bench_load import Load
    from headrace.client import Client, TopicInfo

app = typer.Typer(
    help="Measure how fast a cluster is: any that speaks the Kafka protocol.\n\n"
    "Without --topic a topic is made for it, and deleted afterwards. What is measured is the cluster and the client "
    "together, on this machine: compare figures of the same client, and see that it is not the limit.\n\n"
    "Examples:\n\n"
    "- `headrace bench produce --record-size 1KiB --compression lz4`\n"
    "- `headrace bench consume --records 1000000`\n"
    "- `headrace bench latency --rate 1000 --plot latency.html`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


LARGE_RECORD_BYTES: Final = 500_000
"""From here on a topic that is made allows more than it does by default."""


class ClientKind(StrEnum):
    HEADRACE = "headrace"
    LIBRDKAFKA = "librdkafka"


TopicName = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="A topic that is there; else one is made.",
        autocompletion=complete_topics,
    ),
]
Partitions = Annotated[
    int, typer.Option("--partitions", "-p", metavar="N", min=1, max=10_000, help="Of the topic that is made.")
]
Replication = Annotated[
    int | None, typer.Option("--replication", metavar="N", min=1, help="Copies of each; else the cluster decides.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Don't delete the topic that was made.")]
RecordSize = Annotated[str, typer.Option("--record-size", "-s", metavar="SIZE", help="Of a value, as 100 or 10KiB.")]
BatchSize = Annotated[str, typer.Option("--batch", metavar="SIZE", help="The most of a batch, before compression.")]
Linger = Annotated[str, typer.Option("--linger", metavar="TIME", help="How long a batch waits for more records.")]
AcksOption = Annotated[Acks, typer.Option("--acks", "-a", help="Who must have a record: all in-sync, leader, nobody.")]
Compression = Annotated[Codec, typer.Option("--compression", "-z", help="How batches are compressed.")]
Duration = Annotated[str, typer.Option("--duration", "-d", metavar="TIME", help="How long to measure, as 30s or 5m.")]
Warmup = Annotated[str, typer.Option("--warmup", metavar="TIME", help="How long to run before that.")]
Kind = Annotated[ClientKind, typer.Option("--client", help="librdkafka needs confluent-kafka to be installed.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: a page FILE.html, or FILE.png by matplotlib.")
]


@app.command("produce")
def produce(
    topic: TopicName = None,
    record_size: RecordSize = "100",
    duration: Duration = "10s",
    records: Annotated[
        int | None, typer.Option("--records", "-n", metavar="N", min=1, help="Stop after so many, if that is sooner.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", "-r", metavar="N", min=0.1, help="Records a second; else as many as go.")
    ] = None,
    acks: AcksOption = Acks.ALL,
    compression: Compression = Codec.NONE,
    batch: BatchSize = "64KiB",
    linger: Linger = "5ms",
    warmup: Warmup = "1s",
    partitions: Partitions = 3,
    replication: Replication = None,
    keep: Keep = False,
    kind: Kind = ClientKind.HEADRACE,
    plot: Plot = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """How many records a second go in, and how long each waits for its acknowledgement.

    As fast as it goes, records wait in the client, and latency tells how full its buffer of 4 MiB is; with --rate it
    tells how quick the cluster is, counted from when a record was due.

    Examples:

    - `headrace bench produce`
    - `headrace bench produce --record-size 1KiB --acks 1 -z lz4 -d 30s`
    - `headrace bench produce --rate 1000 --plot produce.html`
    - `headrace bench produce --client librdkafka --json`
    """
    load = _load(record_size, batch, linger, acks, compression, duration, records, rate, warmup)
    _measure("produce", load, bootstrap, topic, partitions, replication, kind, plot, keep=keep, as_json=as_json)


@app.command("consume")
def consume(
    topic: TopicName = None,
    records: Annotated[
        int | None,
        typer.Option("--records", "-n", metavar="N", min=1, help="How many to read. 200,000 where a topic is made."),
    ] = None,
    record_size: RecordSize = "100",
    compression: Compression = Codec.NONE,
    batch: BatchSize = "64KiB",
    duration: Annotated[str, typer.Option("--duration", "-d", metavar="TIME", help="The longest it may take.")] = "5m",
    partitions: Partitions = 3,
    replication: Replication = None,
    keep: Keep = False,
    kind: Kind = ClientKind.HEADRACE,
    plot: Plot = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """How many records a second come out, from the beginning of a topic.

    Where no topic is named, one is made and filled first with records of this size, batches and compression.

    Examples:

    - `headrace bench consume`
    - `headrace bench consume --topic orders --records 1000000`
    - `headrace bench consume --record-size 1KiB -z zstd --client librdkafka`
    """
    if topic is None and records is None:
        records = 200_000
    load = _load(record_size, batch, "5ms", Acks.ALL, compression, duration, records, None, "0s")
    _measure("consume", load, bootstrap, topic, partitions, replication, kind, plot, keep=keep, as_json=as_json)


@app.command("latency")
def latency(
    topic: TopicName = None,
    rate: Annotated[float, typer.Option("--rate", "-r", metavar="N", min=0.1, help="Records a second.")] = 100.0,
    record_size: RecordSize = "100",
    duration: Duration = "10s",
    acks: AcksOption = Acks.ALL,
    compression: Compression = Codec.NONE,
    linger: Linger = "0ms",
    warmup: Warmup = "1s",
    partitions: Partitions = 1,
    replication: Replication = None,
    keep: Keep = False,
    kind: Kind = ClientKind.HEADRACE,
    plot: Plot = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """How long a record takes at a steady rate: until it is acknowledged, and until a consumer has it.

    Times count from when a record was due, so that a stall is seen in all records that it held up.

    Examples:

    - `headrace bench latency`
    - `headrace bench latency --rate 2000 --acks 1 -d 1m --plot latency.html`
    """
    load = _load(record_size, "64KiB", linger, acks, compression, duration, None, rate, warmup)
    if load.record_bytes < 8:
        raise Misused("--record-size is at least 8 here: a record carries the time at which it was due")
    _measure("latency", load, bootstrap, topic, partitions, replication, kind, plot, keep=keep, as_json=as_json)


def _load(
    record_size: str,
    batch: str,
    linger: str,
    acks: Acks,
    compression: Codec,
    duration: str,
    records: int | None,
    rate: float | None,
    warmup: str,
) -> Load:
    from headrace.cli.bench_load import Load

    size = _size(record_size, "--record-size")
    if size > 64 << 20:
        raise Misused("--record-size is at most 64 MiB")
    return Load(
        "",
        size,
        _size(batch, "--batch"),
        _ms(linger, "--linger"),
        acks.value,
        compression.value,
        _ms(duration, "--duration", least=1) / 1000,
        records,
        rate,
        _ms(warmup, "--warmup") / 1000,
    )


def _size(text: str, option: str) -> int:
    found = int(text) if text.isdecimal() else size_bytes(text)
    if not found:
        raise Misused(f"{option} {text}: write a size such as 100 or 64KiB")
    return found


def _ms(text: str, option: str, *, least: int = 0) -> int:
    found = 0 if text == "0" else duration_ms(text)
    if found is None or found < least:
        raise Misused(f"{option} {text}: write a time such as 500ms, 10s or 5m")
    return found


def _measure(
    what: str,
    load: Load,
    bootstrap: str,
    topic: str | None,
    partitions: int,
    replication: int | None,
    kind: ClientKind,
    plot: Path | None,
    *,
    keep: bool,
    as_json: bool,
) -> None:
    """Makes the topic, measures, deletes it, tells."""
    from headrace.cli import bench_librdkafka, bench_load

    check_plot(plot)
    with_rdkafka = kind is ClientKind.LIBRDKAFKA
    client_text = (
        bench_librdkafka.version() if with_rdkafka else "headrace's own, in Python: its limits are in the figures"
    )
    result = Result(what, {})

    async def prepare(client: Client) -> None:
        load.topic = topic or f"headrace-bench-{os.urandom(4).hex()}"  # known before it is there, so that it is deleted
        info = await _topic(client, load, partitions, replication, is_made=topic is None)
        result.conditions |= await _conditions(client, what, load, info, client_text, is_made=topic is None)
        result.settings |= {"client": kind.value, "partitions": len(info.partitions), **asdict(load)}
        if what == "consume" and topic is None:
            with Bar("bench consume", 100.0) as bar:
                await bench_load.fill(client, load, load.records or 0, bar)

    async def measure(client: Client) -> None:
        ways = {"produce": bench_load.produce, "consume": bench_load.consume, "latency": bench_load.there_and_back}
        with Bar(f"bench {what}", 100.0) as bar:
            await ways[what](client, load, result, bar)

    def measure_rdkafka() -> None:
        by = bench_librdkafka
        ways = {"produce": by.produce, "consume": by.consume, "latency": by.there_and_back}
        with Bar(f"bench {what}", 100.0) as bar:
            ways[what](bootstrap, load, result, bar)

    try:
        run(bootstrap, prepare)
        measure_rdkafka() if with_rdkafka else run(bootstrap, measure)
    finally:
        if topic is None and load.topic and not keep:
            run(bootstrap, lambda client: _delete(client, load.topic))
    _tell(result, plot, as_json=as_json)


def _tell(result: Result, plot: Path | None, *, as_json: bool) -> None:
    print_json(result.as_json()) if as_json else print_result(result)
    if plot is not None:
        write_plot(plot, result)
        remark(f"Drawn in {plot}.")
    if result.is_interrupted:
        remark(f"Stopped by {interrupts.cause()}; what was measured until then is above.")
        raise typer.Exit(INTERRUPTED)
    if result.failed:
        raise HeadraceError(f"{plural(result.failed, 'record')} could not be sent: {result.first_failure}")


async def _topic(client: Client, load: Load, partitions: int, replication: int | None, *, is_made: bool) -> TopicInfo:
    from headrace.client import NewTopic

    if not is_made:
        topics = await all_topics(client)
        if load.topic not in topics:
            raise unknown_topic(load.topic, topics)
        info = topics[load.topic]
        if all(partition.leader_id < 0 for partition in info.partitions.values()):
            text = f"No partition of {load.topic} has a leader; `headrace cluster describe` tells what is wrong."
            raise Refused(Error.LEADER_NOT_AVAILABLE, text)
        return info
    configs = {"max.message.bytes": str(2 * load.record_bytes)} if load.record_bytes >= LARGE_RECORD_BYTES else {}
    copies = -1 if replication is None else replication
    await client.admin.create_topics([NewTopic(load.topic, partitions, copies, configs)])
    return (await client.admin.describe_topics([load.topic]))[load.topic]


async def _delete(client: Client, topic: str) -> None:
    """The topic that was made; one that never was is gone, too."""
    try:
        await client.admin.delete_topics([topic])
    except Refused as refused:
        if refused.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
            raise


async def _conditions(
    client: Client, what: str, load: Load, info: TopicInfo, client_text: str, *, is_made: bool
) -> dict[str, Any]:
    cluster = await client.admin.describe_cluster()
    replicas = max((len(partition.replicas) for partition in info.partitions.values()), default=0)
    told: dict[str, Any] = {
        "cluster": f"{cluster.cluster_id}, {plural(len(cluster.nodes), 'broker')}",
        "topic": f"{info.name}, {plural(len(info.partitions), 'partition')}, {plural(replicas, 'replica')} each",
    }
    if what != "consume":
        told["acks"] = load.acks
    if what != "consume" or is_made:
        told["records"] = f"{size_text(load.record_bytes)} of random hex digits, no key"
        told["batches"] = f"up to {size_text(load.batch_bytes)}, compression {load.compression}"
    if what != "consume":
        told["batches"] += f", linger {load.linger_ms:g} ms"
        told["rate"] = "as fast as it goes" if load.rate is None else f"{rate_text(load.rate)} records/s"
        told["warm_up"] = f"{load.warmup_s:g} s, not counted"
    told["client"] = client_text
    return told
