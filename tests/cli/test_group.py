"""`headrace group`, as a user runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.cli.group import drawn_lag
from headrace.cli.group_view import GroupView, PartitionLag
from headrace.client import Client
from headrace.client.admin import GroupListing
from tests.cli.running import Cli
from tests.cli.terminal import TIMEOUT_S, Terminal, lines_of, started

NOON_MS = 1_767_268_800_000  # 2026-01-01 12:00 UTC


@pytest.fixture
def group(cli: Cli, topic: str) -> str:
    """It has read 4 of the 10 records of the topic's first partition; the others are empty."""
    name = f"{topic}-group"
    cli.done("consume", topic, "--group", name, "--count", "4")
    return name


@contextmanager
def member(cli: Cli, topic: str, group: str, protocol: str = "consumer") -> Iterator[None]:
    """Somebody who is in the group and has read all."""
    options = ("--group", group, "--group-protocol", protocol, "--bootstrap", cli.bootstrap)
    with started("consume", topic, *options) as process:
        assert process.stdout is not None
        left = 10 - (offset(cli, topic, group) or 0)
        for _ in range(left):
            process.stdout.readline()
        yield
        process.terminate()
        process.wait(TIMEOUT_S)


def offset(cli: Cli, topic: str, group: str) -> int | None:
    told = cli("group", "describe", group, "--json")
    if told.code:
        return None
    parts = {
        part["partition"]: part["committed_offset"] for part in told.json[0]["partitions"] if part["topic"] == topic
    }
    found: int | None = parts.get(0)
    return found


def test_groups_are_listed_with_their_lag(cli: Cli, topic: str, group: str) -> None:
    rows = cli.done("group", "list", f"{group[:-1]}*").rows
    assert rows == [
        ["group", "state", "type", "lag", "topics", "coordinator"],
        [group, "empty", "consumer", "6", "1", "1"],
    ]
    told = cli.done("group", "list", group, "--json").json
    assert told == [
        {
            "group": group,
            "state": "Empty",
            "type": "consumer",
            "coordinator": 1,
            "lag": 6,
            "topics": [topic],
            "error": None,
        }
    ]
    assert group in cli.done("group", "list", "--names", "--state", "empty", "--type", "Consumer").out.split()
    assert group not in cli.done("group", "list", "--names", "--type", "classic").out.split()
    assert cli.done("group", "list", "--by-lag", "--json").json[0]["lag"] >= 6


def test_lag_is_told_by_partition(cli: Cli, topic: str, group: str) -> None:
    shown = cli.done("group", "lag", group)
    rows = shown.rows
    assert rows[0] == ["topic", "partition", "committed", "end", "lag", "member", "host"]
    assert [topic, "0", "4", "10", "6", "-", "-"] in rows
    assert [topic, "1", "-", "0", "-", "-", "-"] in rows
    assert f"Group {group} is empty; lag 6, and 2 partitions without an offset\n" in shown.out


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_and_what_they_have(cli: Cli, topic: str, name: str, protocol: str) -> None:
    group = f"{name}-{protocol}"
    with member(cli, topic, group, protocol):
        (told,) = cli.done("group", "describe", group, "--json").json
        assert (told["state"], told["type"]) == ("Stable", protocol)
        (one,) = told["members"]
        assert one["assigned"] == [{"topic": topic, "partition": index} for index in range(3)]
        assert one["subscribed"] == [topic]
        assert one["client_id"] == "headrace-cli"
        assert {part["member"] for part in told["partitions"]} == {one["member"]}
        shown = cli.done("group", "members", group).out
        assert f"{topic} 0-2" in shown
        assert one["member"] in shown
        assert "stable" in cli.done("group", "describe", group).out
        said = cli.failed("group", "reset", group, "--to", "earliest", "--topic", topic, "--yes")
        assert said.startswith(f"Group {group} has members, who would go on from where they are: stop them first")
        for sure in ("--yes", "--dry-run"):  # and before anybody is asked
            assert cli.failed("group", "delete", group, sure).startswith(f"Group {group} has members: stop them first")
        assert cli.failed("group", "delete", group).startswith(f"Group {group} has members: stop them first")


def test_nobody_is_in_an_empty_group(cli: Cli, group: str) -> None:
    assert cli.done("group", "members", group).out == f"Group {group} has no members.\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to", "earliest"], 0),
        (["--to", "latest"], 10),
        (["--to", "7"], 7),
        (["--to", "99"], 10),
        (["--to", "2026-01-01"], 0),
        (["--by", "3"], 7),
        (["--by", "-1"], 3),
        (["--by", "-99"], 0),
    ],
)
def test_offsets_are_set_and_shown_before(cli: Cli, topic: str, group: str, options: list[str], expected: int) -> None:
    shown = cli.done("group", "reset", group, *options, "--dry-run")
    assert shown.rows[0] == ["topic", "partition", "start", "end", "was", "new", "lag"]
    assert [topic, "0", "0", "10", "4", str(expected), str(10 - expected)] in shown.rows
    assert shown.rows[-1][:2] == ["Would", "set"]
    assert offset(cli, topic, group) == 4
    said = cli.failed("group", "reset", group, *options, code=2)
    assert "There is no terminal to ask at: say --yes" in said
    told = cli.done("group", "reset", group, *options, "--yes", "--json").json
    assert {
        "topic": topic,
        "partition": 0,
        "before": 4,
        "offset": expected,
        "lag_before": 6,
        "lag": 10 - expected,
    } in told["offsets"]
    assert offset(cli, topic, group) == expected
    assert cli.done("group", "reset", group, "--to", str(expected), "--topic", f"{topic}:0", "--yes").out == (
        f"The offsets of group {group} are there already; nothing was changed.\n"
    )


def test_a_file_says_where_to(cli: Cli, topic: str, group: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"topic,partition,offset\n{topic},0,2\n")
    assert "Set 1 offset" in cli.done("group", "reset", group, "--from-file", str(file), "--yes").out
    assert offset(cli, topic, group) == 2
    before = tmp_path / "before.json"
    before.write_text(cli.done("group", "reset", group, "--to", "5", "--topic", f"{topic}:0", "-n", "--json").out)
    cli.done("group", "reset", group, "--from-file", str(before), "--yes")
    assert offset(cli, topic, group) == 5
    for text, said in [
        ("nonsense\n", "line 1: write topic,partition,offset, not 'nonsense'"),
        ("", "has no offsets in it"),
        ("{}", "is no JSON of offsets"),
        ("gone,0,1\n", "There is no topic 'gone'"),
        (f"{topic},9,1\n", "has no partition 9; it has 0 to 2"),
    ]:
        file.write_text(text)
        assert said in cli.failed("group", "reset", group, "--from-file", str(file), "--yes")
    assert "can't be read" in cli.failed("group", "reset", group, "--from-file", str(tmp_path / "nowhere"))


def test_a_group_is_made_when_asked_for(cli: Cli, topic: str, name: str) -> None:
    group = f"{name}-made"
    cli.done("group", "reset", group, "--topic", topic, "--to", "3", "--create", "--yes")
    assert offset(cli, topic, group) == 3


def test_groups_and_offsets_are_deleted(cli: Cli, topic: str, group: str) -> None:
    assert cli.done("group", "delete", group, "--dry-run").rows[-1] == ["Would", "delete", "group", f"{group}."]
    assert "say --yes" in cli.failed("group", "delete", group, code=2)
    assert cli.failed("group", "delete", group, "--topic", "other", "-y") == f"group {group} has no offsets of other."
    assert "offset" in cli.done("group", "delete", group, "--topic", topic, "--yes").out
    assert offset(cli, topic, group) is None


def test_a_state_that_there_is_not_is_told(cli: Cli, group: str) -> None:
    assert "--state sleepy: it is one of stable, empty, " in cli.failed("group", "list", "--state", "sleepy", code=2)
    assert "--type old: it is one of consumer, classic" in cli.failed("group", "list", "--type", "old", code=2)
    assert group in cli.done("group", "list", "--names", "--state", "Empty").out.split()


def test_a_whole_group_is_deleted(cli: Cli, group: str) -> None:
    assert cli.done("group", "delete", f"{group}*", "--yes").out == f"Deleted group {group}.\n"
    assert group not in cli.done("group", "list", "--names").out.split()


def test_a_terminal_is_asked_and_lag_is_watched(cli: Cli, topic: str, group: str) -> None:
    asked = Terminal("group", "reset", group, "--to", "latest", "--bootstrap", cli.bootstrap)
    assert f"Set 1 offset of group {group}?" in asked.until("[y/N]")
    asked.type("y\n")
    assert asked.end() == 0
    assert offset(cli, topic, group) == 10
    watched = Terminal("group", "lag", group, "--watch", "--interval", "100ms", "--bootstrap", cli.bootstrap)
    watched.until("Ctrl-C ends")
    cli.produce(topic, 5)
    watched.until("lag \x1b[33m5")
    pictures = watched.shown.split("Ctrl-C ends")[1:-1]
    assert pictures
    for picture in pictures:  # the next one goes in its place
        assert picture.count("\n") == picture.count("\x1b[1A"), picture
    assert watched.interrupted() == 130
    assert "Traceback" not in watched.shown


def test_lag_is_watched_on_a_dumb_terminal(cli: Cli, group: str) -> None:
    options = ("--interval", "100ms", "--bootstrap", cli.bootstrap)
    watched = Terminal("group", "lag", group, "--watch", *options, TERM="dumb")
    watched.until("partition")
    assert watched.process.poll() is None
    assert watched.interrupted() == 130


def test_figures_are_whole_when_lag_is_watched_on_a_narrow_terminal() -> None:
    part = PartitionLag("a-topic-with-a-long-name", 77, 123_456_789, 123_987_654, "consumer-1-0c7b5a62", "/10.0.0.7")
    others = [PartitionLag("orders", number, 5, 5, None, None) for number in range(40)]
    listing = GroupListing("a-group-with-a-long-name", "Stable", "consumer", "consumer", 1)
    view = GroupView(listing, None, [*others, part], None)
    for count, width, height in ((1, 60, 23), (2, 60, 23), (1, 80, 23), (2, 160, 50)):
        lines = [line.plain for line in drawn_lag([view] * count, width, height)]
        assert len(lines) <= height
        assert [line for line in lines if len(line) > width] == []
        row = next(line.split() for line in lines if " 77 " in line)
        told = " ".join(lines[-2:])
        if count == 1:
            assert row[1:5] == ["77", "123456789", "123987654", "530,865"]
            assert "(left off: member;" in told
        elif width == 60:
            assert row[2:] == ["77", "123987654", "530,865"]
            assert "(left off: committed, member;" in told
        assert any(line.endswith(" partitions more") for line in lines)


@pytest.mark.parametrize("width", [40, 30])
def test_names_give_way_to_the_lag_on_a_very_narrow_terminal(width: int) -> None:
    part = PartitionLag("a-topic-with-a-long-name", 77, 123_456_789, 123_987_654, None, None)
    listing = GroupListing("a-group-with-a-long-name", "Stable", "consumer", "consumer", 1)
    lines = [line.plain for line in drawn_lag([GroupView(listing, None, [part], None)] * 2, width, 23)]
    assert [line for line in lines if len(line) > width] == []
    assert [line.split()[2:] for line in lines if " 77 " in line] == [["77", "530,865"]] * 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reset", "g"], "Say where to, once"),
        (["reset", "g", "--to", "1", "--by", "1"], "Say where to, once"),
        (["reset", "g", "--to", "sometime"], "--to sometime: write beginning, end"),
        (["lag", "g", "--interval", "often"], "--interval often: write a time"),
        (["list", "--loud"], "No such option: --loud"),
        (["lst"], "No such command 'lst'. Did you mean 'list'?"),
    ],
)
def test_wrong_use(cli: Cli, arguments: list[str], said: str) -> None:
    assert said in cli.failed("group", *arguments, code=2)


@pytest.mark.parametrize("command", [["describe"], ["lag"], ["members"], ["delete", "-y"], ["reset", "--to", "1"]])
def test_a_group_that_is_not_there_is_told_with_the_nearest(cli: Cli, group: str, command: list[str]) -> None:
    said = cli.failed("group", command[0], f"{group}x", *command[1:])
    assert said == f"There is no group '{group}x'; did you mean {group}?"


def test_our_client_takes_a_member_out_of_a_classic_group(cli: Cli, topic: str, name: str) -> None:
    async def work() -> list[int]:
        async with Client(cli.bootstrap) as client:
            consumer = client.group_consumer(name, protocol="classic", auto_offset_reset="earliest")
            consumer.subscribe([topic])
            await consumer.poll(1)
            detail = (await client.admin.describe_groups({name: "classic"}))[name]
            counts = [len(detail.members)]
            await client.admin.remove_members(name, [(one.member_id, None) for one in detail.members])
            detail = (await client.admin.describe_groups({name: "classic"}))[name]
            return [*counts, len(detail.members)]

    assert asyncio.run(work()) in ([1, 0], [1, 1])  # it may be back already


def test_a_narrow_terminal_is_told_which_columns_of_lag_are_left_off(cli: Cli, topic: str, group: str) -> None:
    terminal = Terminal("group", "lag", group, "--bootstrap", cli.bootstrap, COLUMNS="40")
    assert terminal.end() == 0
    lines = lines_of(terminal)
    assert lines[0].split()[:4] == ["topic", "partition", "end", "lag"]
    assert lines[1].split()[:4] == [topic, "0", "10", "6"]
    assert [line for line in lines if len(line) > 40] == []
    assert any(line.startswith("(left off: committed, member") for line in lines)
