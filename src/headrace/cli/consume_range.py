"""From where to where records are read: --from, --until and --last, and the offsets that they come to."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.cli import Misused
from headrace.cli.amounts import moment_ms
from headrace.cli.connection import all_topics, matching
from headrace.errors import Error, Refused

if TYPE_CHECKING:
    from headrace.client import Client

TopicPartition = tuple[str, int]
BEGINNING: Final = "beginning"
END: Final = "end"
_NEAR: Final = {"start": BEGINNING, "earliest": BEGINNING, "first": BEGINNING, "latest": END, "now": END}


@dataclass(slots=True)
class Point:
    """A place in a log, of each partition the same in words: an end of it, an offset, or a time."""

    end: str | None = None
    offset: int | None = None
    time_ms: int | None = None


def point(text: str, option: str) -> Point:
    """`beginning`, `end`, an offset as 1500, a time as 2h or 2026-01-31T12:00Z, or @1767268800000 in milliseconds."""
    given = text.strip().lower()
    given = _NEAR.get(given, given)
    if given in (BEGINNING, END):
        return Point(end=given)
    if re.fullmatch(r"\d+", given):
        return Point(offset=int(given))
    now_ms = time.time_ns() // 1_000_000
    if re.fullmatch(r"@\d+", given):
        return Point(time_ms=int(given[1:]))
    try:
        return Point(time_ms=moment_ms(text, now_ms))
    except Misused:
        raise Misused(
            f"{option} {text}: write beginning, end, an offset such as 1500, or a time such as 2h or 2026-01-31T12:00Z"
        ) from None


async def chosen(client: Client, topics: Sequence[str], partitions: Sequence[int] | None) -> list[TopicPartition]:
    """The partitions of these topics, by name or pattern; of each only those that are asked for."""
    infos = matching(await all_topics(client), topics)
    found: list[TopicPartition] = []
    for name, info in infos.items():
        for index in partitions or ():
            if index not in info.partitions:
                text = f"Topic {name} has no partition {index}; it has 0 to {len(info.partitions) - 1}."
                raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, text)
        found += [(name, index) for index in sorted(set(partitions or info.partitions))]
    return found


@dataclass(slots=True)
class Range:
    """Where to begin, and the offset before which to stop (None: never)."""

    start: int
    stop: int | None


async def ranges(
    client: Client,
    partitions: Sequence[TopicPartition],
    begin: Point,
    until: Point | None,
    last: int | None,
    isolation: str,
) -> dict[TopicPartition, Range]:
    """The offsets of each partition. An offset that the log does not have any more is its beginning."""
    starts, ends = (
        await _offsets(client, partitions, "earliest", isolation),
        await _offsets(client, partitions, "latest", isolation),
    )
    if last is not None:
        begins = {key: max(starts[key], ends[key] - last) for key in partitions}
    else:
        begins = await _resolve(client, partitions, begin, starts, ends, isolation, clip=True)
    stops: dict[TopicPartition, int] = {}
    if until is not None:
        if until.time_ms is not None and until.time_ms > time.time_ns() // 1_000_000:
            raise Misused("--until is a time that has not come yet; leave it out, and stop with Ctrl-C")
        stops = await _resolve(client, partitions, until, starts, ends, isolation, clip=False)
    return {key: Range(begins[key], stops.get(key)) for key in partitions}


async def _resolve(
    client: Client,
    partitions: Sequence[TopicPartition],
    at: Point,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    isolation: str,
    *,
    clip: bool,
) -> dict[TopicPartition, int]:
    if at.end == BEGINNING:
        return dict(starts)
    if at.end == END:
        return dict(ends)
    if at.offset is not None:
        wanted = at.offset
        return {key: min(max(wanted, starts[key]), ends[key]) if clip else wanted for key in partitions}
    assert at.time_ms is not None
    found = await client.admin.list_offsets(dict.fromkeys(partitions, at.time_ms), isolation_level=isolation)  # type: ignore[arg-type]
    return {key: ends[key] if found[key].offset < 0 else found[key].offset for key in partitions}


async def _offsets(
    client: Client, partitions: Sequence[TopicPartition], moment: str, isolation: str
) -> dict[TopicPartition, int]:
    found = await client.admin.list_offsets(dict.fromkeys(partitions, moment), isolation_level=isolation)  # type: ignore[arg-type]
    return {key: found[key].offset for key in partitions}
