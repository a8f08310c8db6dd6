"""Times, durations and sizes as people write them: 2026-01-31T12:00, 15m, 7d, 512MiB."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from headrace.cli import Misused
from headrace.config.amounts import duration_ms, setting_value, size_bytes

__all__ = ["duration_ms", "moment_ms", "setting_value", "setting_words", "size_bytes"]

_WORDS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_SCALES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def moment_ms(text: str, now_ms: int) -> int:
    """A point in time, in milliseconds since 1970: `2026-01-31`, `2026-01-31T12:00Z`, `2h` (ago), `today`, `now`, or
    that number itself. A time without a zone is in UTC, as all times that commands print.
    """
    given = text.strip()
    if re.fullmatch(r"\d{5,}", given):
        return int(given)
    ago_ms = duration_ms(given.removesuffix("ago").strip())
    if ago_ms is not None:
        return now_ms - ago_ms
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    days: dict[str, date] = {"today": today, "yesterday": today - timedelta(days=1)}
    if given.lower() == "now":
        return now_ms
    if given.lower() in days:
        return _ms(datetime.combine(days[given.lower()], datetime.min.time()))
    try:
        return _ms(datetime.fromisoformat(given))
    except ValueError:
        raise Misused(
            f"'{text}' is no time; write 2026-01-31, 2026-01-31T12:00:00Z, or how long ago, as in 15m, 2h or 7d"
        ) from None


def _ms(moment: datetime) -> int:
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def setting_words(name: str, value: str | None) -> str:
    """What a number of a setting means to a person, as `7 days`; empty where the number says it all."""
    if value is None or not value.isdecimal() or not int(value):
        return ""
    number = int(value)
    if number >= 2**63 - 1:
        return "no limit"
    if name.endswith(".ms"):
        return next((f"{number // n:,} {word}{'s' * (number != n)}" for n, word in _WORDS if not number % n), "")
    if name.endswith((".bytes", ".size")):
        return next((f"{number // n:,} {unit}" for n, unit in _SCALES if not number % n), "")
    return ""
