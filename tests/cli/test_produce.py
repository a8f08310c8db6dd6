"""`headrace produce`, as a user runs it."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.produce import Tally, _repeated
from headrace.cli.progress import Bar
from headrace.cli.record_lines import NewRecord
from headrace.errors import Error
from tests.cli.running import Cli
from tests.client.scripted import TOPIC, ScriptedBroker, running


def records(cli: Cli, topic: str) -> list[dict[str, Any]]:
    """All of a topic, in the order of partitions."""
    told = cli.done("consume", topic, "--until", "end", "--json")
    found = [json.loads(line) for line in told.out.splitlines()]
    return sorted(found, key=lambda record: (record["partition"], record["offset"]))


@pytest.fixture
def kept(cli: Cli, topic: str) -> str:
    """Three partitions; a record of any age stays there."""
    cli.done("config", "set", "--topic", topic, "retention.ms=-1")
    return topic


@pytest.fixture
def empty(cli: Cli, name: str) -> str:
    cli.done("topic", "create", name, "--partitions", "1", "-c", "retention.ms=-1")  # records here may be old
    return name


def test_lines_are_records(cli: Cli, empty: str) -> None:
    told = cli.given("one\ntwo\r\n\nfour", "produce", empty)
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines() == [
        f"4 records (10 B) to topic {empty}, all acknowledged.",
        "  partition  records  offsets",
        "          0        4  0 to 3",
    ]
    assert [record["value"] for record in records(cli, empty)] == ["one", "two", "", "four"]


def test_no_input_is_no_failure(cli: Cli, empty: str) -> None:
    told = cli.given("", "produce", empty)
    assert (told.code, told.out, told.err) == (0, "Nothing was sent.\n", "")


def test_one_value_from_the_command_line_with_all_that_a_record_has(cli: Cli, kept: str) -> None:
    topic = kept
    options = ["--key", "k", "-H", "a=1", "-H", "a=2=3", "-H", "none", "-p", "2", "-t", "2026-01-01", "-z", "zstd"]
    assert cli.done("produce", topic, "--value", "hellö", *options, "--quiet").out == ""
    assert records(cli, topic)[-1] == {
        "topic": topic,
        "partition": 2,
        "offset": 0,
        "timestamp_ms": 1_767_225_600_000,
        "key": "k",
        "value": "hellö",
        "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": "2=3"}, {"name": "none", "value": None}],
    }


def test_keys_before_a_separator_and_nulls(cli: Cli, empty: str) -> None:
    told = cli.given("a::1::2\nb::NULL\nNULL::c\n", "produce", empty, "-K", "::", "--null", "NULL")
    assert told.code == 0
    assert [(record["key"], record["value"]) for record in records(cli, empty)] == [
        ("a", "1::2"),
        ("b", None),
        (None, "c"),
    ]


def test_hex_base64_and_whole_files(cli: Cli, empty: str, tmp_path: Path) -> None:
    assert cli.given("00ff\n0A 0b\n", "produce", empty, "--format", "hex").code == 0
    assert cli.given("/w==\n", "produce", empty, "--format", "base64").code == 0
    picture = tmp_path / "picture"
    picture.write_bytes(b"\n\xff\n")
    cli.done("produce", empty, str(picture), "--format", "whole")
    data = [
        base64.b64decode(record["value_base64"]) if "value_base64" in record else record["value"].encode()
        for record in records(cli, empty)
    ]
    assert data == [b"\x00\xff", b"\n\x0b", b"\xff", b"\n\xff\n"]


def test_lines_of_json(cli: Cli, kept: str, tmp_path: Path) -> None:
    topic = kept
    lines = [
        {"key": {"id": 1}, "value": {"total": 1.5, "name": "ä"}, "partition": 1, "timestamp": "2026-01-01T00:00:01"},
        {"value": None, "key_base64": "/w==", "partition": 1, "timestamp_ms": 5},
        {"value": "text", "headers": {"a": "b", "n": None, "x": 1}, "partition": 1},
        {
            "value_base64": "/w==",
            "headers": [{"name": "a", "value": "1"}, {"name": "b", "value_base64": "/w=="}],
            "partition": 1,
        },
        {"value": True, "partition": 1},
    ]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = cli.done("produce", topic, str(file), "--format", "json", "--json")
    assert told.json["acknowledged"] == 5
    assert told.json["partitions"] == [{"partition": 1, "records": 5, "first_offset": 0, "last_offset": 4}]
    found = [record for record in records(cli, topic) if record["partition"] == 1]
    assert found[0]["key"] == '{"id":1}'
    assert found[0]["value"] == '{"total":1.5,"name":"ä"}'
    assert found[0]["timestamp_ms"] == 1_767_225_601_000
    assert (found[1]["value"], found[1]["key_base64"], found[1]["timestamp_ms"]) == (None, "/w==", 5)
    assert found[2]["headers"] == [
        {"name": "a", "value": "b"},
        {"name": "n", "value": None},
        {"name": "x", "value": "1"},
    ]
    assert found[3]["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value_base64": "/w=="}]
    assert found[4]["value"] == "true"


def test_what_consume_prints_can_be_produced_again(cli: Cli, topic: str, name: str) -> None:
    cli.done("produce", topic, "--value", "ff", "--format", "hex", "-H", "h=1", "-p", "2", "-q")
    printed = cli.done("consume", topic, "--until", "end", "--json").out
    copy = f"{name}-copy"
    told = cli.given(printed, "produce", copy, "--format", "json", "--create")
    assert told.code == 1, "the copy has one partition, and a record names another"
    cli.done("topic", "alter", copy, "--partitions", "3")
    assert cli.given(printed, "produce", copy, "--format", "json").code == 0
    before, after = records(cli, topic), records(cli, copy)
    for record in before + after:
        del record["topic"], record["offset"]
    assert [record for record in after if record in before] == after


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "it is no JSON (expecting value at character 1)"),
        ("[1]", "it must be an object"),
        ('{"value": NaN}', "NaN is no JSON"),
        ('{"value": [-Infinity]}', "-Infinity is no JSON"),
        ('{"value": 1e999}', "it has a number beyond 1.8e308"),
        ("{}", 'it has no "value"'),
        ('{"valu": 1}', "there is no field 'valu' in a record"),
        ('{"value": "a", "value_base64": "aa"}', 'it has a "value" and a "value_base64"'),
        ('{"value_base64": "?"}', '"value_base64" is no base64'),
        ('{"value_base64": 5}', '"value_base64" must be a text'),
        ('{"value": 1, "partition": -1}', '"partition" must be a whole number from 0 on, not -1'),
        ('{"value": 1, "partition": "1"}', '"partition" must be a whole number'),
        ('{"value": 1, "timestamp": "soon"}', "'soon' is no time"),
        ('{"value": 1, "timestamp": true}', '"timestamp" must be a whole number'),
        ('{"value": 1, "headers": 5}', '"headers" must be'),
        ('{"value": 1, "headers": [5]}', "a header in a list must be"),
        ('{"value": "\\ud800"}', "half a character"),
    ],
)
def test_a_line_that_is_no_record_is_told_with_its_number_and_what_came_before_is_sent(
    cli: Cli, empty: str, line: str, said: str
) -> None:
    told = cli.given(f'{{"value": "good"}}\n{line}\n{{"value": "never"}}\n', "produce", empty, "--format", "json")
    assert told.code == 1
    assert told.out.startswith(f"1 record (4 B) to topic {empty}, acknowledged.\n")
    assert told.err.startswith("headrace: standard input, line 2: ")
    assert said in told.err
    assert told.err.count("\n") == 1
    assert [record["value"] for record in records(cli, empty)] == ["good"]


def test_a_line_without_a_key_is_told_in_json_too(cli: Cli, empty: str) -> None:
    told = cli.given("a:1\nb\n", "produce", empty, "-K", ":", "--json")
    assert told.code == 1
    assert told.json["acknowledged"] == 1
    assert told.json["error"].startswith("standard input, line 2: it has no ':' between a key and a value.")


def test_a_record_that_is_too_large_is_refused_with_its_line(cli: Cli, empty: str) -> None:
    told = cli.given("small\n" + "x" * 1_100_000 + "\n", "produce", empty)
    assert told.code == 1
    assert told.err == (
        "headrace: standard input, line 2: a record of 1100021 bytes is larger than a request may be: raise "
        "--max-request, and max.message.bytes of the topic if need be.\n"
    )
    cli.done("config", "set", "--topic", empty, "max.message.bytes=2MiB")
    assert cli.given("x" * 1_100_000, "produce", empty, "--max-request", "2MiB").code == 0


def test_a_record_that_the_topic_refuses_ends_it(cli: Cli, empty: str) -> None:
    cli.done("config", "set", "--topic", empty, "max.message.bytes=200")
    told = cli.given("x" * 400 + "\n", "produce", empty)
    assert told.code == 1
    assert "0 of 1 record (400 B) acknowledged" in told.out
    assert "MESSAGE_TOO_LARGE" in told.err


def test_files_follow_each_other_and_count_and_rate_limit(cli: Cli, empty: str, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    cli.done("produce", empty, str(tmp_path / "a"), str(tmp_path / "b"), "--count", "3", "--rate", "1000", "-q")
    assert [record["value"] for record in records(cli, empty)] == ["a1", "a2", "b1"]
    assert cli.done("produce", empty, "--value", "v", "--count", "5", "--json").json["acknowledged"] == 5


def test_acks_0_says_that_nobody_acknowledged(cli: Cli, empty: str) -> None:
    assert cli.done("produce", empty, "-v", "x", "--acks", "0").out == (
        f"1 record (1 B) to topic {empty}, not acknowledged (acks=0).\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--loud"], "No such option: --loud"),
        (["--format", "xml"], "--format must be one of "),
        (["--acks", "2"], "--acks must be one of all, 1, 0, not '2'"),
        (["--rate", "fast"], "--rate must be a number, not 'fast'"),
        (["--batch", "big"], "--batch big: write a size such as 64KiB"),
        (["--linger", "long"], "--linger long: write a time such as 5ms"),
        (["--timestamp", "soon"], "'soon' is no time"),
        (["--header", "=x"], "--header =x: write NAME=TEXT"),
        (["--format", "json", "-K", ":"], "--key-separator is for lines of text"),
        (["--format", "json", "--null", ""], "--null is for lines of text"),
        (["-K", ""], "--key-separator can't be empty"),
        (["file", "--value", "x"], "Give --value or files, not both"),
        (["--value", "x", "--format", "json"], "--value goes with --format text, hex or base64"),
        (["--value", "zz", "--format", "hex"], "--value: it is no hex"),
        (["--format", "whole", "-K", ":"], "with --format whole the key is --key"),
    ],
)
def test_wrong_use(cli: Cli, empty: str, options: list[str], said: str) -> None:
    assert said in cli.failed("produce", empty, *options, code=2)


def test_what_is_not_there(cli: Cli, empty: str) -> None:
    assert cli.failed("produce", f"{empty}x", "-v", "x") == f"There is no topic '{empty}x'; did you mean {empty}?"
    assert cli.failed("produce", empty, "-v", "x", "-p", "9") == f"Topic {empty} has no partition 9; it has 0 to 0."
    told = cli("produce", empty, "/nowhere/file")
    assert (told.code, told.err) == (1, "headrace: /nowhere/file can't be read: No such file or directory.\n")


def test_a_topic_is_made_when_asked_for(cli: Cli, name: str) -> None:
    assert cli.done("produce", f"{name}-new", "-v", "x", "--create", "-q").out == ""
    assert len(records(cli, f"{name}-new")) == 1


def test_who_waits_for_records_that_are_refused_for_now_is_told_why_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        broker.faults = [lambda _: Error.KAFKA_STORAGE_ERROR] * 4
        async with running(broker) as client:
            tally = Tally(TOPIC, by_count=True)
            await tally.send(client.producer(), _repeated(NewRecord(value=b"v"), 1), None, Bar("", None, wanted=False))
            assert tally.acknowledged == 1

    monkeypatch.setattr("headrace.cli.produce.PATIENCE_S", 0.01)
    asyncio.run(scenario())
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"Waiting: {TOPIC}-0 refuses records (KAFKA_STORAGE_ERROR): ")
    assert told.endswith(" Ctrl-C gives them up.")
