"""`produce` and `consume` as processes: Ctrl-C and SIGTERM, terminals, pipes that close."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.cli.running import Cli
from tests.cli.terminal import HEADRACE, TIMEOUT_S, Terminal, started

STOPS = pytest.mark.parametrize(
    ("number", "code", "cause"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")]
)


@STOPS
def test_a_signal_sends_what_was_read_and_says_how_many(
    cli: Cli, topic: str, number: signal.Signals, code: int, cause: str
) -> None:
    with started("produce", topic, "-p", "1", "--bootstrap", cli.bootstrap) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        while cli("topic", "describe", topic, "--json").json[0]["partitions"][1]["end_offset"] < 2:
            pass
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()
        assert process.wait(TIMEOUT_S) == code
    assert out.decode().startswith(f"2 records (6 B) to topic {topic}, all acknowledged")
    assert err.decode() == f"Stopped by {cause}.\n"


@STOPS
def test_a_signal_ends_reading_cleanly_with_a_group_that_remembers(
    cli: Cli, topic: str, number: signal.Signals, code: int, cause: str
) -> None:
    with started("consume", topic, "--group", topic, "--bootstrap", cli.bootstrap) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(10)] == [b"value\n"] * 10
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (code, b"", b"")
    assert cli.done("group", "describe", topic, "--json").json[0]["members"] == []
    assert cli.done("consume", topic, "--group", topic, "--until", "end").out == ""


def test_a_terminal_is_not_obeyed_by_what_is_in_a_record_and_a_pipe_gets_the_bytes(cli: Cli, topic: str) -> None:
    cli.done("produce", topic, "-v", "1b5b33316d726564ff", "-f", "hex", "-p", "2", "-q")
    terminal = Terminal("consume", topic, "-p", "2", "--until", "end", "--bootstrap", cli.bootstrap)
    assert terminal.end() == 0
    assert "\\x1b[31mred\\xff\r\n" in terminal.shown
    assert "(1 record)" in terminal.shown
    command = [*HEADRACE, "consume", topic, "-p", "2", "--until", "end", "--bootstrap", cli.bootstrap]
    piped = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S)
    assert (piped.stdout, piped.stderr) == (b"\x1b[31mred\xff\n", b"")


def test_a_person_who_waits_is_told_and_colour_can_be_turned_off(cli: Cli, topic: str) -> None:
    terminal = Terminal("consume", topic, "--bootstrap", cli.bootstrap)
    assert "Waiting for new records; Ctrl-C ends." in terminal.until("beginning.")
    assert terminal.interrupted() == 130
    assert "Traceback" not in terminal.shown
    options = ("--last", "1", "--until", "end", "--format", "full", "--bootstrap", cli.bootstrap)
    coloured = Terminal("consume", topic, *options)
    assert coloured.end() == 0
    assert f"\x1b[36m{topic}-0 @9" in coloured.shown
    plain = Terminal("consume", topic, *options, NO_COLOR="1")
    assert plain.end() == 0
    assert f"{topic}-0 @9  " in plain.shown
    assert "\x1b[36m" not in plain.shown


def test_records_can_be_typed_and_files_show_a_bar(cli: Cli, topic: str) -> None:
    terminal = Terminal("produce", topic, "-p", "1", "--bootstrap", cli.bootstrap)
    assert "Type records, one a line; Ctrl-D ends." in terminal.until("ends.")
    terminal.type("typed\n\x04")
    assert terminal.end() == 0
    assert "1 record (5 B)" in terminal.shown
    bar = Terminal("produce", topic, "-v", "x", "--count", "2000", "--bootstrap", cli.bootstrap)
    assert bar.end() == 0
    assert f"to {topic}" in bar.shown
    assert "100%" in bar.shown
    assert "2,000 records" in bar.shown


def test_a_reader_that_goes_away_ends_it_quietly(cli: Cli, topic: str) -> None:
    with started("consume", topic, "--from", "beginning", "--until", "end", "--bootstrap", cli.bootstrap) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT_S) == 141
