"""Durations and sizes as people write them: 15m, 7d, 512MiB."""

from __future__ import annotations

import re
from typing import Final

_DURATIONS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_SIZES_BYTES: Final = {
    "b": 1,
    **{f"{letter}{ending}": 1024**power for power, letter in enumerate("kmgtp", 1) for ending in ("", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", 1)},
}
_AMOUNT: Final = r"(\d+(?:\.\d+)?)\s*([a-z]+)"


def duration_ms(text: str) -> int | None:
    """The milliseconds of `90s` or `7d`; None when the text is no duration."""
    return _amount(text, _DURATIONS_MS)


def size_bytes(text: str) -> int | None:
    """The bytes of `64KiB`, `64k` (both of 1024) or `64kB` (of 1000); None when the text is no size."""
    return _amount(text, _SIZES_BYTES)


def _amount(text: str, units: dict[str, int]) -> int | None:
    found = re.fullmatch(_AMOUNT, text.strip(), re.IGNORECASE)
    scale = units.get(found[2].lower()) if found else None
    return round(float(found[1]) * scale) if found and scale is not None else None


def setting_value(name: str, value: str) -> str:
    """The value as a broker takes it: `7d` of a setting in ms and `1GiB` of one in bytes become numbers."""
    amount = None
    if name.endswith(".ms"):
        amount = duration_ms(value)
    elif name.endswith((".bytes", ".size", ".second")):
        amount = size_bytes(value)
    return value if amount is None else str(amount)
