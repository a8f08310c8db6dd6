"""Names that are empty and arguments that are no UTF-8: taken as bytes where bytes are meant, else one sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from headrace.cli import COMMANDS, load
from headrace.cli.texts import NAMES
from tests.cli.running import Cli
from tests.cli.terminal import HEADRACE, TIMEOUT_S

KINDS = {"NAME=VALUE", "HOST:PORT", "TIME", "SIZE", "WHERE", "EXPRESSION", "STATE", "TYPE"}
NO_UTF8 = "\udcff"
"""The byte 0xff, as it stands in an argument."""


def parameters() -> Iterator[tuple[str, Any]]:
    """Every parameter that is a text, of every command, with the words of the command."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        for name, one in getattr(command, "commands", {}).items():
            yield from below(f"{words} {name}", one)
        if not hasattr(command, "commands"):
            yield from ((words, one) for one in command.params if "str" in str(one.type_descriptor.annotation))

    for name, command in COMMANDS.items():
        found = load(name, command)
        if hasattr(found, "registered_commands"):
            yield from below(name, get_command(found))


def given(words: str, parameter: Any, text: str) -> list[str]:
    option = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
    return [*words.split(), *option, text]


NAMED = [
    pytest.param(words, parameter, id=f"{words} {parameter.opts[0]}")
    for words, parameter in parameters()
    if parameter.metavar in NAMES
]
WRITTEN = [
    pytest.param(words, parameter, id=f"{words} {parameter.opts[0]}")
    for words, parameter in parameters()
    if parameter.metavar in NAMES | KINDS
]


@pytest.mark.parametrize(("words", "parameter"), NAMED)
def test_no_name_is_empty(words: str, parameter: Any) -> None:
    what = parameter.metavar if parameter.param_type_name == "argument" else max(parameter.opts, key=len)
    assert Cli("").failed(*given(words, parameter, ""), code=2) == f"{what} is empty; it needs a name."


@pytest.mark.parametrize(("words", "parameter"), WRITTEN)
def test_what_goes_into_requests_is_utf8(words: str, parameter: Any) -> None:
    what = parameter.metavar if parameter.param_type_name == "argument" else max(parameter.opts, key=len)
    said = Cli("").failed(*given(words, parameter, f"a{NO_UTF8}"), code=2)
    assert said == f"{what} is 'a\\xff', which is no UTF-8, as every name and setting must be."


def test_every_kind_of_text_is_known() -> None:
    """Who adds one says in cli/texts.py if it is taken as it is."""
    known = NAMES | KINDS | {"TEXT", "NAME=TEXT", "FILE", None}
    assert {parameter.metavar for _, parameter in parameters()} <= known


def test_what_becomes_bytes_may_be_any_bytes(cli: Cli, topic: str) -> None:
    command = [*HEADRACE, "produce", topic, "-p", "1", "-q", "--bootstrap", cli.bootstrap]
    for arguments in (
        [b"--value", b"v\xff", b"--key", b"k\xff", b"-H", b"h=\xff"],
        [b"--value", b"\xff", b"--null", b"\xff"],
        [b"--value", b"a\xffb", b"--key-separator", b"\xff"],
    ):
        subprocess.run([*command, *arguments], check=True, timeout=TIMEOUT_S)

    def consumed(*arguments: bytes) -> bytes:
        reading = [*HEADRACE, "consume", topic, "-p", "1", "--until", "end", "--bootstrap", cli.bootstrap]
        return subprocess.run([*reading, *arguments], check=True, timeout=TIMEOUT_S, capture_output=True).stdout

    assert consumed(b"-K", b"\xfe", b"--null", b"\xfd") == b"k\xff\xfev\xff\n\xfd\xfe\xfd\na\xfeb\n"
    assert consumed(b"-t", b"\xff{offset}") == b"\xff0\n\xff1\n\xff2\n"
    read = cli.done("consume", topic, "-p", "1", "--until", "end", "--json", "-n", "1").out
    assert '"headers": [{"name": "h", "value_base64": "/w=="}]' in read


@pytest.mark.parametrize(
    "arguments",
    [["produce", "t", "--value", "x", "-H", f"{NO_UTF8}=x"], ["consume", "t", "-t", f"{{key == '{NO_UTF8}'}}"]],
)
def test_what_is_text_within_bytes_is_utf8(cli: Cli, arguments: list[str]) -> None:
    assert "which is no UTF-8" in cli.failed(*arguments, code=2)


def test_a_separator_of_any_bytes_is_told_where_a_line_lacks_it(cli: Cli, topic: str) -> None:
    told = cli.given("ab\n", "produce", topic, "--key-separator", NO_UTF8)
    assert "line 1: it has no '\\xff' between a key and a value" in told.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "t", "--value", "x", "--batch", "²"],
        ["produce", "t", "--value", "x", "--linger", "²"],
        ["bench", "produce", "--record-size", "²"],
        ["bench", "produce", "--duration", "²s"],
        ["consume", "t", "--from", "²"],
        ["top", "--interval", "²s"],
        ["topic", "list", "--bootstrap", "127.0.0.1:²"],
        ["serve", "--listen", "127.0.0.1:²"],
    ],
)
def test_a_digit_that_is_no_number_is_wrong_use(arguments: list[str]) -> None:
    """Python calls a raised 2 a digit, and can't read it."""
    assert "²" in Cli("").failed(*arguments, code=2)
