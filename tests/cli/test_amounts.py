"""Times, durations and sizes as people write them."""

from __future__ import annotations

import pytest

from headrace.cli import Misused
from headrace.cli.amounts import duration_ms, moment_ms, setting_value, setting_words, size_bytes

NOON_MS = 1_769_860_800_000  # 2026-01-31 12:00 UTC
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90_000), ("15m", 900_000), ("1.5h", 5_400_000), ("7d", 7 * DAY_MS), ("2w", 14 * DAY_MS), ("5 ms", 5)],
)
def test_durations_have_units(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64KiB", 65536), ("64k", 65536), ("64kB", 64000), ("1G", 1 << 30), ("1GiB", 1 << 30), ("12b", 12)],
)
def test_sizes_have_units(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "7", "d", "7 parsecs", "-1d", "1d1h"])
def test_what_is_no_amount_is_told_apart(text: str) -> None:
    assert duration_ms(text) is None
    assert size_bytes(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOON_MS),
        ("2h", NOON_MS - 7_200_000),
        ("2h ago", NOON_MS - 7_200_000),
        ("today", NOON_MS - DAY_MS // 2),
        ("Yesterday", NOON_MS - DAY_MS // 2 - DAY_MS),
        ("2026-01-31", NOON_MS - DAY_MS // 2),
        ("2026-01-31T12:00", NOON_MS),
        ("2026-01-31 12:00:00Z", NOON_MS),
        ("2026-01-31T13:00+01:00", NOON_MS),
        (str(NOON_MS), NOON_MS),
    ],
)
def test_a_moment_is_a_date_a_time_or_how_long_ago(text: str, expected: int) -> None:
    assert moment_ms(text, NOON_MS) == expected


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "12", "31.1.2026"])
def test_what_is_no_moment_is_told_with_an_example(text: str) -> None:
    with pytest.raises(Misused, match="write 2026-01-31"):
        moment_ms(text, NOON_MS)


def test_values_of_settings_take_the_units_that_their_names_end_in() -> None:
    assert setting_value("retention.ms", "7d") == str(7 * DAY_MS)
    assert setting_value("segment.bytes", "1GiB") == str(1 << 30)
    assert setting_value("retention.ms", "-1") == "-1"
    assert setting_value("cleanup.policy", "7d") == "7d"
    assert setting_words("retention.ms", str(7 * DAY_MS)) == "7 days"
    assert setting_words("segment.bytes", str(1 << 30)) == "1 GiB"
    assert setting_words("flush.messages", str(2**63 - 1)) == "no limit"
    assert setting_words("retention.ms", "1") == ""
