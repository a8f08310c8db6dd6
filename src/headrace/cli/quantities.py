"""Sizes, times and counts as a person reads them. JSON has them as plain numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from rich.cells import cell_len

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 999.95 or unit == _UNITS[-1]:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes any size")


def time_text(timestamp_ms: int, *, in_seconds: bool = False) -> str:
    """In UTC. A record may have any number as its timestamp, or none (-1)."""
    if timestamp_ms < 0:
        return "-" if timestamp_ms == -1 else f"{timestamp_ms} ms"
    try:
        time = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    fraction = "" if in_seconds else f".{timestamp_ms % 1000:03d}"
    return f"{time:%Y-%m-%d %H:%M:%S}{fraction}"


def count_text(count: int) -> str:
    return f"{count:,}"


def plural(count: int, noun: str) -> str:
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def share_text(part: int, whole: int) -> str:
    """In percent; a little is never nothing, and nearly all is not all."""
    if not part or not whole:
        return "-"
    percent = 100 * part / whole
    if percent < 1:
        return "<1%"
    return f"{min(percent, 99):.0f}%" if part < whole else "100%"


def wrapped(text: str, width: int, indent: str) -> str:
    """Words over several lines of a terminal, each with an indent; a word, or a `command`, is never cut."""
    lines: list[str] = []
    line = ""
    for word in re.findall(r"`[^`]*`\S*|\S+", text):
        if line and cell_len(indent) + cell_len(line) + 1 + cell_len(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, indent + line])
