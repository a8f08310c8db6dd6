"""What `headrace top` shows of a cluster on terminals of all sizes."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import live
from headrace.cli.top_sample import ApiRate, DiskUse, GroupRate, Picture, TopicRate
from headrace.cli.top_view import drawn

LONG = "a-topic-with-a-rather-long-name-of-the-kind-that-teams-make"
ENDS = ("…", "(", "no metrics", "what goes out", "topic ", "group ", "request ", "disk ")
TITLES = {"topic": "topic ", "group": "group ", "API": "request ", "disk": "disk "}


def picture(
    *, topics: int = 4, groups: int = 4, apis: int = 7, disks: int = 1, has_metrics: bool = True, notes: int = 0
) -> Picture:
    return Picture(
        2.0,
        "Vt4oXqV5SbC3fBz0T5uJ8w",
        disks,
        1,
        [TopicRate(f"{LONG}-{n}", 3, 10**7, 10**9, 12_345.0, 8e5, 12_345.0, 8e5) for n in range(topics)],
        [
            GroupRate(f"group-of-the-billing-team-{n}", "Stable", "consumer", 5_582, 1_901.0, 90.0)
            for n in range(groups)
        ],
        [ApiRate(f"ConsumerGroupHeartbeat{n}", 169.0, 4.14e-3, 56e-3) for n in range(apis)] if has_metrics else [],
        [DiskUse(n, f"/srv/headrace/{n}", 10**9, 10**9 * n, 10**11) for n in range(disks)],
        has_metrics,
        ["no metrics from 127.0.0.1:9192: Connection refused, and this is a long sentence"] * notes,
    )


def shown(picture: Picture, width: int, height: int | None, rows: int | None = None) -> list[str]:
    return [line.plain for line in drawn(picture, width, height, rows)]


pictures = st.builds(
    picture,
    topics=st.integers(0, 30),
    groups=st.integers(0, 30),
    apis=st.integers(0, 30),
    disks=st.integers(0, 12),
    has_metrics=st.booleans(),
    notes=st.integers(0, 2),
)


@given(pictures, st.integers(60, 200), st.integers(23, 80), st.none() | st.integers(1, 9))
def test_every_table_has_its_titles_and_rows_and_says_what_is_missing(
    one: Picture, width: int, height: int, rows: int | None
) -> None:
    lines = shown(one, width, height, rows)
    assert len(lines) <= height
    assert [line for line in lines if len(line) > width] == []
    for noun, there in (("topic", one.topics), ("group", one.groups), ("API", one.apis), ("disk", one.disks)):
        if not there:
            continue
        at = next((n for n, line in enumerate(lines) if line.startswith(TITLES[noun])), None)
        if at is None:  # long sentences take the room
            assert one.notes
            assert f"{noun}s" in " ".join(lines).partition("(no room for ")[2]
            continue
        rest = (n for n, line in enumerate(lines[at + 1 :]) if not line or line.startswith(ENDS))
        count = next(rest, len(lines) - at - 1)
        assert count >= 1
        more = next((line for line in lines if re.fullmatch(rf"… and \d+ {noun}s? more", line)), "… and 0")
        assert count + int(more.split()[2]) == len(there)
        assert rows is None or count <= rows


def test_disks_are_seen_on_a_usual_terminal() -> None:
    """24 lines, one of which is the cursor's."""
    for width in (60, 80, 100):
        lines = shown(picture(), width, 23)
        assert any("broker 0 /srv" in line for line in lines)
        assert any(line.endswith("APIs more") for line in lines)


def test_figures_are_never_cut_and_columns_that_are_left_off_are_told() -> None:
    lines = shown(picture(), 60, 23)
    [titles] = [line for line in lines if line.startswith("topic ")]
    assert titles.split("  ")[-3:] == ["records/s in", "bytes/s in", "bytes/s out"]
    [row] = [line for line in lines if line.startswith("a-topic-w") and "12,345" in line][:1]
    assert re.fullmatch(r"a-topic-wi…ams-make-0\s+12,345\s+781\.2 KiB\s+781\.2 KiB", row)
    told = " ".join(lines[-3:])
    assert "(left off: records/s out, size, partitions of topics;" in told
    assert "left off" not in " ".join(shown(picture(), 200, 60))


def test_a_very_low_terminal_says_which_tables_have_no_room() -> None:
    lines = shown(picture(), 100, 13)
    assert len(lines) <= 13
    assert "(no room for APIs; a higher terminal, --once and --json have them)" in lines
    assert any(line.startswith("disk ") for line in lines)
    assert "(no room for APIs, disks; a higher terminal, --once and --json have them)" in shown(picture(), 100, 11)


def test_all_is_there_where_nothing_limits_it() -> None:
    lines = [line.plain for line in drawn(picture(topics=70, apis=30), None, None, None)]
    assert sum(LONG in line for line in lines) == 70
    assert sum("Heartbeat" in line for line in lines) == 30
    assert not any("more" in line for line in lines)


def test_the_fullest_disks_come_first() -> None:
    lines = shown(picture(disks=12), 100, 23)
    assert next(line for line in lines if line.startswith("broker ")).startswith("broker 0 ")
    assert any(line.endswith("disks more") for line in lines)


@given(st.lists(st.integers(0, 40), max_size=5), st.integers(0, 100))
def test_rows_are_shared_fairly(there: list[int], room: int) -> None:
    rows = live.shared(room, there)

    def lines(rows: list[int]) -> int:
        return sum(shown + (shown < count) for shown, count in zip(rows, there, strict=True))

    least = lines([min(count, 1) for count in there])
    assert all(min(count, 1) <= shown <= count for shown, count in zip(rows, there, strict=True))
    assert lines(rows) <= max(room, least)
    cut = [shown for shown, count in zip(rows, there, strict=True) if shown < count]
    if cut and room >= least:
        assert room - lines(rows) == 0
        assert max(cut) - min(cut) <= 1
        assert all(shown <= max(cut) + 2 for shown in rows)
