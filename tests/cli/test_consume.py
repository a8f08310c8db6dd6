"""`headrace consume`, as a user runs it."""

from __future__ import annotations

import asyncio
import json

import pytest

from headrace.client import Client
from tests.cli.running import Cli

NOON_MS = 1_767_268_800_000  # 2026-01-01 12:00 UTC


@pytest.fixture
def orders(cli: Cli, name: str) -> str:
    """Two partitions of orders, one a minute from noon on, in turn."""
    name = f"{name}-orders"
    cli.done("topic", "create", name, "--partitions", "2", "-c", "retention.ms=-1")  # they are older than a week
    lines = [
        {
            "key": f"k{number}",
            "value": {"number": number, "total": number * 10},
            "partition": number % 2,
            "timestamp": NOON_MS + number * 60_000,
            "headers": {"region": "eu" if number < 3 else "us"},
        }
        for number in range(6)
    ]
    cli.given("".join(json.dumps(line) + "\n" for line in lines), "produce", name, "--format", "json", "--quiet")
    return name


def numbers(out: str) -> list[int]:
    return [json.loads(line)["number"] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--until", "end"], [0, 1, 2, 3, 4, 5]),
        (["--from", "beginning", "--until", "end", "--partition", "1"], [1, 3, 5]),
        (["--from", "2", "--until", "end"], [4, 5]),
        (["--from", "1", "--until", "2"], [2, 3]),
        (["--from", "2026-01-01T12:03", "--until", "end"], [3, 4, 5]),
        (["--from", "2026-01-01T12:01", "--until", "2026-01-01T12:04"], [1, 2, 3]),
        (["--from", f"@{NOON_MS + 240_000}", "--until", "end"], [4, 5]),
        (["--from", "end", "--until", "end"], []),
        (["--from", "99", "--until", "end"], []),
        (["--from", "1h", "--until", "end"], []),
        (["--from", "beginning", "--idle", "100ms"], [0, 1, 2, 3, 4, 5]),
        (["--until", "end", "--filter", "value.total >= 30 and offset < 2"], [3]),
        (["--until", "end", "--filter", "headers.region == 'eu'"], [0, 1, 2]),
        (["--until", "end", "--filter", "key == 'nobody'"], []),
        (["--until", "end", "--read-committed"], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_from_where_to_where(cli: Cli, orders: str, options: list[str], expected: list[int]) -> None:
    assert sorted(numbers(cli.done("consume", orders, *options).out)) == expected


def test_the_last_of_all_partitions_come_oldest_first(cli: Cli, orders: str) -> None:
    assert numbers(cli.done("consume", orders, "--last", "3", "--until", "end").out) == [3, 4, 5]
    assert numbers(cli.done("consume", orders, "--last", "99", "--until", "end").out) == [0, 1, 2, 3, 4, 5]
    assert numbers(cli.done("consume", orders, "--last", "3", "--count", "2").out) == [3, 4]


def test_a_count_stops_it(cli: Cli, orders: str) -> None:
    assert len(numbers(cli.done("consume", orders, "--from", "beginning", "--count", "4").out)) == 4
    told = cli.done("consume", orders, "--from", "beginning", "--count", "2", "--filter", "value.number > 2")
    assert len(numbers(told.out)) == 2


def test_several_topics_and_patterns(cli: Cli, orders: str, topic: str) -> None:
    out = cli.done("consume", orders, f"{topic[:-1]}?", "--until", "end", "--template", "{topic}").out
    assert sorted(set(out.split())) == sorted([orders, topic])


def test_formats(cli: Cli, name: str) -> None:
    cli.done("topic", "create", name, "--partitions", "1", "-c", "retention.ms=-1")
    for given in (["--value", "68690a", "--key", "k", "-H", "a=1"], ["--value", "ff"], ["--value", "", "--null", ""]):
        cli.done("produce", name, *given, "--format", "hex", "--timestamp", "2026-01-01", "--quiet")

    def printed(*options: str) -> list[str]:
        return cli.done("consume", name, "--until", "end", *options).out.splitlines()

    assert printed() == ["hi", "", "\\xff", "null"]
    assert printed("--null", "-", "-K", "=") == ["k=hi", "", "-=\\xff", "-=-"]
    assert printed("--format", "hex") == ["68690a", "ff", "null"]
    assert printed("--format", "base64", "-K", ":") == ["aw==:aGkK", "null:/w==", "null:null"]
    assert printed("--format", "full") == [
        f"{name}-0 @0  2026-01-01 00:00:00.000  key k  a=1",
        "  hi",
        "  ",
        f"{name}-0 @1  2026-01-01 00:00:00.000  no key",
        "  \\xff",
        f"{name}-0 @2  2026-01-01 00:00:00.000  no key",
        "  null",
    ]
    assert printed("--format", "raw") == ["hi", "\\xff"]
    template = r"{{{offset}}}\t{key} {headers.a} {timestamp} {len(value)}\\"
    assert printed("--template", template) == [
        "{0}\tk 1 1767225600000 3\\",
        "{1}\t  1767225600000 4\\",
        "{2}\t  1767225600000 \\",
    ]


def test_json_with_values_that_are_json(cli: Cli, orders: str) -> None:
    told = cli.done("consume", orders, "--last", "1", "--until", "end", "--json", "--parse")
    assert json.loads(told.out) == {
        "topic": orders,
        "partition": 1,
        "offset": 2,
        "timestamp_ms": NOON_MS + 300_000,
        "key": "k5",
        "value": {"number": 5, "total": 50},
        "headers": [{"name": "region", "value": "us"}],
    }


def test_read_committed_leaves_out_what_was_aborted(cli: Cli, name: str) -> None:
    cli.done("topic", "create", name, "--partitions", "1")

    async def write() -> None:
        async with Client(cli.bootstrap) as client:
            producer = client.transactional_producer(name)
            for number, is_kept in enumerate((True, False, True)):
                await producer.begin()
                await producer.send(name, b"%d" % number)
                await (producer.commit() if is_kept else producer.abort())

    asyncio.run(write())
    assert cli.done("consume", name, "--until", "end").out.split() == ["0", "1", "2"]
    assert cli.done("consume", name, "--until", "end", "--read-committed").out.split() == ["0", "2"]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_remembers_how_far_it_is(cli: Cli, orders: str, protocol: str) -> None:
    options = ["--group", f"{orders}-{protocol}", "--group-protocol", protocol]
    first = numbers(cli.done("consume", orders, *options, "--count", "2").out)
    not_kept = numbers(cli.done("consume", orders, *options, "--until", "end", "--no-commit").out)
    rest = numbers(cli.done("consume", orders, *options, "--until", "end").out)
    assert sorted(not_kept) == sorted(rest)
    assert sorted(first + rest) == [0, 1, 2, 3, 4, 5]
    assert cli.done("consume", orders, *options, "--until", "end").out == ""
    new = ["--group", f"{orders}-{protocol}-new", "--group-protocol", protocol, "--from", "end", "--idle", "300ms"]
    assert cli.done("consume", orders, *new).out == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "sometime"], "--from sometime: write beginning, end, an offset such as 1500, or a time"),
        (["--until", "tomorrow"], "--until tomorrow: write beginning, end"),
        (["--until", "2099-01-01"], "has not come yet"),
        (["--until", "beginning"], "would print nothing"),
        (["--filter", "key = 'a'"], "where == should be"),
        (["--template", "{key"], "has a single '{'"),
        (["--template", "{nothing}"], "asks for 'nothing'"),
        (["--template", "x", "--format", "hex"], "leave out --format"),
        (["--json", "--format", "hex"], "leave the other one out"),
        (["--format", "xml"], "--format must be one of "),
        (["--parse"], "--parse is for --format json"),
        (["--format", "json", "-K", ":"], "has keys of its own"),
        (["--last", "5", "--from", "end"], "leave out --from"),
        (["--last", "0"], "must be at least 1, not"),
        (["--idle", "long"], "--idle long: write a time such as"),
        (["--no-commit"], "goes with --group"),
        (["--group", "g", "--partition", "1"], "shares out the partitions itself"),
        (["--group", "g", "--from", "2h"], "--from is beginning or end"),
        (["--group", "g", "--until", "5"], "--until can only be end"),
        (["--loud"], "No such option: --loud"),
    ],
)
def test_wrong_use(cli: Cli, orders: str, options: list[str], said: str) -> None:
    assert said in cli.failed("consume", orders, *options, code=2)


def test_what_is_not_there(cli: Cli, orders: str) -> None:
    assert cli.failed("consume", f"{orders}x") == f"There is no topic '{orders}x'; did you mean {orders}?"
    assert "No topic matches 'nothing-*'" in cli.failed("consume", "nothing-*")
    assert cli.failed("consume", orders, "-p", "9") == f"Topic {orders} has no partition 9; it has 0 to 1."
