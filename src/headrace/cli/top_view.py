"""How `headrace top` looks: what the terminal has room for, and what it has no room for told."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.text import Text

from headrace.cli import live
from headrace.cli.columns import Cell, Column
from headrace.cli.latencies import bar, time_short
from headrace.cli.output import BAD, GOOD, NAME, QUIET, WARN
from headrace.cli.progress import rate_text
from headrace.cli.quantities import count_text, plural, share_text, size_text
from headrace.cli.top_sample import ApiRate, DiskUse, GroupRate, Picture, TopicRate

WIDE: Final = 76
DISK_WARN, DISK_BAD = 0.85, 0.95
DAY_S: Final = 86_400


class Part(NamedTuple):
    """A table of the picture."""

    noun: str
    lines: list[Text]
    """The titles, and a line for each row."""
    left_off: list[str]

    @property
    def rows(self) -> int:
        return len(self.lines) - 1


class Layout(NamedTuple):
    parts: Sequence[Part]
    foot: list[Text]
    gap: int
    """Lines between tables."""

    def room(self, height: int) -> int:
        """Lines for rows, and for saying how many more there are."""
        return height - len(self.foot) - len(self.parts) * (self.gap + 1)

    @property
    def least(self) -> int:
        return sum(min(part.rows, 2) for part in self.parts)


def drawn(shown: Picture, width: int | None, height: int | None, rows: int | None) -> list[Text]:
    """Its lines. Without a width nothing is cut or left off; without a height all rows, or as many as wanted."""
    head = _head(shown, width)
    parts = _parts(shown, width)
    if height is None:
        layout = next(_layouts(shown, parts, width))
        counts = [part.rows if rows is None else min(part.rows, rows) for part in parts]
    else:
        for layout in _layouts(shown, parts, width):
            room = layout.room(height - len(head))
            if layout.least <= room:
                break
        counts = live.shared(room, [part.rows for part in layout.parts], rows)
    lines = head
    for part, count in zip(layout.parts, counts, strict=True):
        lines += [Text()] * layout.gap
        lines += [*part.lines[: count + 1], *live.more(part.rows, count, part.noun)]
    return lines + layout.foot


def _layouts(shown: Picture, parts: Sequence[Part], width: int | None) -> Iterator[Layout]:
    """The best first; what a very low terminal has no room for is left off, table by table, and said."""
    yield Layout(parts, _foot(shown, parts, [], width), 1)
    yield Layout(parts, _foot(shown, parts, [], width), 0)
    kept, absent = list(parts), list[Part]()
    for noun in ("API", "disk", "group"):
        absent += [part for part in kept if part.noun == noun]
        kept = [part for part in kept if part.noun != noun]
        yield Layout(kept, _foot(shown, kept, absent, width), 0)


def _head(shown: Picture, width: int | None) -> list[Text]:
    where = Text.assemble(
        ("headrace top", "bold"),
        f"  {time.strftime('%H:%M:%S', time.gmtime())} UTC  cluster ",
        (shown.cluster_id, NAME),
    )
    size = f"{plural(shown.brokers, 'broker')}, {plural(len(shown.topics), 'topic')}"
    is_short = width is None or where.cell_len + 2 + len(size) <= width
    records_in = sum(one.records_in or 0 for one in shown.topics)
    bytes_in = sum(one.bytes_in or 0 for one in shown.topics)
    rates = f"in {rate_text(records_in)} records/s, {size_text(round(bytes_in))}/s"
    if shown.has_metrics:
        rates += f"  out {size_text(round(sum(one.bytes_out or 0 for one in shown.topics)))}/s"
    lines = [where.append(f"  {size}")] if is_short else [where, Text(size)]
    lines.append(Text(rates, "bold"))
    return lines if shown.topics else [*lines, Text(), Text("There are no topics yet.", QUIET)]


def _foot(shown: Picture, parts: Sequence[Part], absent: Sequence[Part], width: int | None) -> list[Text]:
    lines = [line for note in shown.notes for line in live.sentence(note, WARN, width)]
    titles = [f"{', '.join(part.left_off)} of {part.noun}s" for part in parts if part.left_off]
    if titles:
        lines += live.sentence(f"(left off: {'; '.join(titles)}; a wider terminal has them)", QUIET, width)
    if absent:
        nouns = ", ".join(f"{part.noun}s" for part in absent)
        lines += live.sentence(f"(no room for {nouns}; a higher terminal, --once and --json have them)", QUIET, width)
    if not shown.has_metrics:
        told = "what goes out and latencies are told by the /metrics of headrace nodes only"
        lines += live.sentence(told, QUIET, width)
    return lines


def _parts(shown: Picture, width: int | None) -> list[Part]:
    wanted: list[tuple[str, list[Column], list[list[Cell]]]] = [
        ("topic", _topic_columns(shown.has_metrics), [_topic_cells(one, shown.has_metrics) for one in shown.topics]),
        ("group", _GROUP_COLUMNS, [_group_cells(one) for one in shown.groups]),
        ("API", _API_COLUMNS, [_api_cells(one) for one in shown.apis]),
        ("disk", _DISK_COLUMNS, [_disk_cells(one, width) for one in sorted(shown.disks, key=_fullest)]),
    ]
    return [Part(noun, *live.table(columns, rows, width)) for noun, columns, rows in wanted if rows]


# --- tables -----------------------------------------------------------------------------------------------------------


def _topic_columns(has_metrics: bool) -> list[Column]:
    out = [Column(">records/s out", rank=4), Column(">bytes/s out", rank=2)] if has_metrics else []
    return [
        Column("topic", NAME, shrinks=True),
        Column(">records/s in"),
        Column(">bytes/s in", rank=1),
        *out,
        Column(">size", rank=3),
        Column(">partitions", rank=5),
    ]


def _topic_cells(one: TopicRate, has_metrics: bool) -> list[Cell]:
    return [
        one.name,
        _rate(one.records_in),
        _bytes_rate(one.bytes_in),
        *([_rate(one.records_out), _bytes_rate(one.bytes_out)] if has_metrics else []),
        "?" if one.size_bytes is None else size_text(one.size_bytes),
        str(one.partitions),
    ]


_GROUP_COLUMNS: Final = [
    Column("group", NAME, shrinks=True),
    Column(">lag"),
    Column(">reads/s", rank=1),
    Column("catches up", rank=3),
    Column("state", rank=2),
    Column("type", rank=4),
]


def _group_cells(one: GroupRate) -> list[Cell]:
    lag = Text("?" if one.lag is None else count_text(one.lag), GOOD if one.lag == 0 else WARN if one.lag else "")
    if one.lag == 0:
        soon = ""
    elif one.catches_up_s is not None:
        soon = f"in {time_short(one.catches_up_s)}" if one.catches_up_s < DAY_S else "in days"
    else:
        soon = "" if one.lag is None else "-"
    return [one.name, lag, _rate(one.reads), soon, one.state, one.kind]


_API_COLUMNS: Final = [
    Column("request", NAME, shrinks=True),
    Column(">requests/s"),
    Column(">p50", rank=2),
    Column(">p99", rank=1),
]


def _api_cells(one: ApiRate) -> list[Cell]:
    times = ("-" if seconds is None else time_short(seconds) for seconds in (one.p50_s, one.p99_s))
    return [one.name, rate_text(one.requests), *times]


_DISK_COLUMNS: Final = [
    Column("disk", NAME, shrinks=True),
    Column(">logs", rank=2),
    Column("", rank=3),
    Column(">in use"),
    Column(">free", rank=1),
]


def _disk_cells(one: DiskUse, width: int | None) -> list[Cell]:
    name = f"broker {one.broker} {one.path}"
    if one.free_bytes is None or one.total_bytes is None:
        return [name, size_text(one.size_bytes), "", "?", "?"]
    used = _used(one)
    style = BAD if used >= DISK_BAD else WARN if used >= DISK_WARN else GOOD
    blocks_max = 20 if width is None or width >= WIDE else 6
    blocks = Text(bar(used, blocks_max).ljust(blocks_max, "·"), style)
    share = share_text(one.total_bytes - one.free_bytes, one.total_bytes)
    return [name, size_text(one.size_bytes), blocks, share, size_text(one.free_bytes)]


def _used(one: DiskUse) -> float:
    return 1 - one.free_bytes / one.total_bytes if one.free_bytes is not None and one.total_bytes else 0.0


def _fullest(one: DiskUse) -> tuple[int, int, str]:
    """By whole percents, so that two that are about as full don't change places all the time."""
    return -round(_used(one) * 100), one.broker, one.path


def _rate(rate: float | None) -> Text:
    return Text("?" if rate is None else rate_text(rate), "" if rate else QUIET)


def _bytes_rate(rate: float | None) -> Text:
    return Text("?" if rate is None else size_text(round(rate)), "" if rate else QUIET)
