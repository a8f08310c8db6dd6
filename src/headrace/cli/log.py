"""`headrace log`: a look into the files of a log, ours or Kafka's. Nothing here writes, and a node may be running."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text

from headrace.cli.columns import Columns
from headrace.cli.log_report import print_reports, print_statistics, reports_json, statistics_json
from headrace.cli.log_values import NO_TOPIC, STATE_TOPICS, Format
from headrace.cli.output import tell_left_off
from headrace.cli.sheet import Sheet, Wishes
from headrace.cli.sheet_files import open_sheet
from headrace.errors import HeadraceError
from headrace.storage.inventory import Inventory, is_log_directory, take_inventory
from headrace.storage.local_disk import LocalDisk
from headrace.storage.partition_folder import is_partition_folder
from headrace.storage.statistics import Statistics, statistics
from headrace.storage.verify import verify

app = typer.Typer(
    help="Look into the files of a log, ours or Kafka's: dump, verify, sum up.\n\n"
    "Nothing here writes, and no node needs to be stopped.\n\n"
    "Examples:\n\n"
    "- `headrace log stat headrace-data --top 10 --sort size`\n"
    "- `headrace log verify headrace-data`\n"
    "- `headrace log dump --records headrace-data/orders-0/*.log`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

BYTES_SHOWN_MAX = 256
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A log directory, or the folder of one partition.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


class Order(StrEnum):
    NAME = "name"
    SIZE = "size"
    RECORDS = "records"
    BATCHES = "batches"
    SEGMENTS = "segments"
    LAST_TIME = "last-time"


# --- dump -------------------------------------------------------------------------------------------------------------


@app.command("dump")
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Segments, indexes, snapshots, checkpoints.")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Show the records in the batches too.")] = False,
    format: Annotated[
        Format, typer.Option("--format", "-f", help="How keys, values and header values are shown.")
    ] = Format.TEXT,
    offset: Annotated[int, typer.Option("--offset", "-o", min=0, help="Begin at this offset.")] = 0,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="Show at most so many batches, records or entries a file."),
    ] = None,
    state_topic: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="TOPIC",
            help=f"Decode records as those of {', '.join(STATE_TOPICS)} or {NO_TOPIC}. By default the folder tells.",
        ),
    ] = None,
    past_damage: Annotated[
        bool, typer.Option("--past-damage", help="Go on behind bytes that are no sound batch.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for programs.")] = False,
) -> None:
    """Show what is in files: batches, records, index entries, producers, checkpoints.

    Files marked .deleted, .cleaned or .swap are shown as well. A terminal shows the first 256 bytes of a key or value,
    a pipe and JSON all of them.

    Examples:

    - `headrace log dump orders-0/00000000000000000000.log`
    - `headrace log dump --records --offset 1000 --count 10 orders-0/*.log`
    - `headrace log dump --records __cluster_metadata-0/00000000000000000000.log`
    """
    wishes = Wishes(
        records=records,
        format=format,
        start_offset=offset,
        count=count,
        state_topic=state_topic,
        past_damage=past_damage,
        bytes_max=BYTES_SHOWN_MAX if sys.stdout.isatty() else None,
    )
    errors: list[HeadraceError] = []
    for number, path in enumerate(files):
        if len(files) > 1 and not as_json:
            Console(highlight=False).print(Text(f"\n{path}" if number else str(path), "bold"), soft_wrap=True)
        try:
            sheet = open_sheet(path, wishes)
            if as_json:
                _print_json(sheet, path)
            else:
                _print_columns(sheet)
        except HeadraceError as error:
            if len(files) == 1:
                raise
            errors.append(error)
    for told in errors:
        print(f"headrace: {told}", file=sys.stderr)
    if errors:
        raise typer.Exit(1)


def _print_json(sheet: Sheet[Any], path: Path) -> None:
    for thing in sheet.things:
        print(json.dumps({"file": str(path), **sheet.as_json(thing)}))


def _print_columns(sheet: Sheet[Any]) -> None:
    with Columns(sheet.columns) as columns:
        for thing in sheet.things:
            shown = sheet.as_cells(thing)
            if isinstance(shown, str):
                columns.line(shown)
            else:
                columns.row(shown)
    tell_left_off(columns.left_off)


# --- verify -----------------------------------------------------------------------------------------------------------


@app.command("verify")
def verify_command(
    folder: Folder,
    deep: Annotated[bool, typer.Option("--deep", help="Decompress every batch and read every record, too.")] = False,
    as_json: Json = False,
) -> None:
    """Check every batch of every segment, and everything else in the folder against them.

    Checksums, lengths, offsets, leader epochs, indexes, aborted transactions, producers' snapshots, checkpoints.
    Nothing is changed, and a node may be running. The exit code is 1 when something is damaged; the torn tail that an
    unclean stop leaves is a note, because the next start mends it.

    Examples:

    - `headrace log verify headrace-data`
    - `headrace log verify headrace-data/orders-0 --deep`
    """
    inventory = _open(folder)
    with _progress("verifying", inventory.walk_bytes) as advanced:
        reports = list(verify(inventory, deep=deep, advanced=advanced))
    if as_json:
        print(json.dumps(reports_json(inventory, reports), indent=2))
    else:
        tell_left_off(print_reports(inventory, reports))
    if not all(report.is_sound for report in reports):
        raise typer.Exit(1)


# --- stat -------------------------------------------------------------------------------------------------------------


@app.command("stat")
def stat(
    folder: Folder,
    deep: Annotated[bool, typer.Option("--deep", help="Decompress, so that the compression ratio is known.")] = False,
    sort: Annotated[Order, typer.Option("--sort", "-s", help="By what; the largest first.")] = Order.NAME,
    top: Annotated[int | None, typer.Option("--top", "-t", min=1, help="Show only so many partitions.")] = None,
    as_json: Json = False,
) -> None:
    """Sum up partitions: segments, sizes, offsets, times, codecs, producers.

    The ratio is how many bytes a stored byte of compressed records stands for; it takes `--deep`. Totals are of all
    partitions, those not shown too.

    Examples:

    - `headrace log stat headrace-data --top 10 --sort size`
    - `headrace log stat headrace-data/orders-0 --deep`
    """
    inventory = _open(folder)
    with _progress("reading", inventory.size_bytes) as advanced:
        found = list(statistics(inventory, deep=deep, advanced=advanced))
    total = Statistics("total")
    for one in found:
        total.add(one)
    shown = _sorted(found, sort)[:top]
    if as_json:
        print(json.dumps(statistics_json(inventory, shown, total), indent=2))
    else:
        tell_left_off(print_statistics(folder, shown, total, len(found)))


def _sorted(found: list[Statistics], order: Order) -> list[Statistics]:
    keys: dict[Order, Callable[[Statistics], int]] = {
        Order.SIZE: lambda one: one.size_bytes,
        Order.RECORDS: lambda one: one.records,
        Order.BATCHES: lambda one: one.batches,
        Order.SEGMENTS: lambda one: one.segments,
        Order.LAST_TIME: lambda one: one.last_timestamp,
    }
    return found if order is Order.NAME else sorted(found, key=keys[order], reverse=True)


# --- what they share --------------------------------------------------------------------------------------------------


def _open(folder: Path) -> Inventory:
    if not folder.exists():
        raise HeadraceError(f"{folder} does not exist.")
    if not folder.is_dir():
        raise HeadraceError(f"{folder} is a file: see what is in it with headrace log dump {folder}")
    path = folder.absolute()
    disk = LocalDisk(str(path))
    found = disk.scan()
    if is_partition_folder(found):
        return take_inventory(LocalDisk(str(path.resolve().parent)), path.resolve().name)
    if not is_log_directory(disk, found):
        raise HeadraceError(
            f"{folder} is neither a log directory nor a partition's folder: it has no folders like orders-0 with "
            "files like 00000000000000000000.log."
        )
    return take_inventory(disk)


@contextmanager
def _progress(what: str, size_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; nothing in a pipe."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn(what),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (console.is_terminal and sys.stdout.isatty()),
    )
    with bar:
        task = bar.add_task(what, total=size_bytes)
        yield lambda advanced: bar.advance(task, advanced)
