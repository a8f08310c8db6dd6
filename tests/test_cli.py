"""The command line as its users meet it: what it prints, where, with which exit code, and what it never shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from headrace import cli
from headrace.cli import COMMANDS, Command, main
from headrace.errors import Error, HeadraceError, Refused

Capture = pytest.CaptureFixture[str]


def headrace(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], int]], None]:
    """Puts a function in the place of a subcommand `planted`."""

    def plant(function: Callable[[list[str]], int]) -> None:
        module = ModuleType("planted_command")
        setattr(module, "run", function)  # noqa: B010
        monkeypatch.setitem(sys.modules, "planted_command", module)
        monkeypatch.setitem(cli.COMMANDS, "planted", Command("planted_command:run", "Does what a test says.", ""))

    return plant


def raising(error: BaseException) -> Callable[[list[str]], int]:
    def run(arguments: list[str]) -> int:
        raise error

    return run


def test_help_lists_every_command_with_an_example() -> None:
    done = headrace("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name, command in COMMANDS.items():
        assert f"\n  {name} " in done.stdout
        assert command.example in done.stdout
        assert command.example.startswith(f"headrace {name} ")


@pytest.mark.parametrize("arguments", [(), ("-h",), ("help",)])
def test_no_command_is_help(arguments: tuple[str, ...], capsys: Capture) -> None:
    assert main(arguments) == 0
    assert "Usage: headrace COMMAND" in capsys.readouterr().out


def test_version_is_that_of_the_package() -> None:
    from headrace import __version__

    assert headrace("--version").stdout == f"headrace {__version__}\n"


def test_an_unknown_command_offers_the_nearest(capsys: Capture) -> None:
    assert main(["confg"]) == 2
    assert capsys.readouterr() == ("", "headrace: there is no command 'confg'. Did you mean 'headrace config'?\n")
    assert main(["--loud"]) == 2
    assert capsys.readouterr() == ("", "headrace: there is no option '--loud'. See: headrace --help\n")


@pytest.mark.parametrize("arguments", [["config", "list", "--loud"], ["config", "explain"], ["config", "frobnicate"]])
def test_wrong_use_is_one_sentence_and_exit_code_2(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("headrace: ")
    assert "--help" in shown.err
    assert shown.err.count("\n") == 1


def test_every_group_explains_itself(capsys: Capture) -> None:
    assert main(["config", "--help"]) == 0
    assert "headrace config" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (HeadraceError("The folder is in use."), 1, "headrace: The folder is in use.\n"),
        (Refused(Error.INVALID_CONFIG, "x must be 1."), 1, "headrace: x must be 1.\n"),
        (
            FileNotFoundError(2, "No such file or directory", "a.log"),
            1,
            "headrace: a.log: No such file or directory.\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    error: BaseException, code: int, sentence: str, planted: Callable[..., None], capsys: Capture
) -> None:
    planted(raising(error))
    assert main(["planted"]) == code
    assert capsys.readouterr() == ("", sentence)


def test_a_defect_is_called_one_and_shows_its_traceback_only_when_asked(
    planted: Callable[..., None], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(raising(ValueError("two\nlines")))
    monkeypatch.delenv("HEADRACE_TRACEBACK", raising=False)
    assert main(["planted"]) == 70
    shown = capsys.readouterr().err
    assert shown.startswith("headrace: this is a defect of headrace (ValueError: two lines).")
    assert shown.count("\n") == 1
    monkeypatch.setenv("HEADRACE_TRACEBACK", "1")
    with pytest.raises(ValueError, match="two"):
        main(["planted"])


def test_a_plain_function_gets_its_arguments_and_gives_the_exit_code(planted: Callable[..., None]) -> None:
    given: list[str] = []

    def run(arguments: list[str]) -> int:
        given.extend(arguments)
        return 3

    planted(run)
    assert main(["planted", "--listen", "127.0.0.1:0"]) == 3
    assert given == ["--listen", "127.0.0.1:0"]


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", "config", "list", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_command_loads_nothing_that_it_does_not_use() -> None:
    """A node must start in a fraction of a second: what people like to look at is not loaded for it."""
    script = "import sys; from headrace.cli import main; main(['--version']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typer", "rich", "asyncio", "headrace.config", "headrace.protocol"} & set(loaded)


def test_config_explain_says_what_a_setting_does(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["config", "explain", "retention.ms"]) == 0
    shown = capsys.readouterr().out
    assert "retention.ms, set on a topic" in shown
    assert "604800000 (7 days)" in shown
    assert "log.retention.ms, then log.retention.minutes, then log.retention.hours" in shown


def test_config_explain_shows_both_settings_of_one_name(capsys: Capture) -> None:
    assert main(["config", "explain", "compression.type", "--json"]) == 0
    assert [setting["scope"] for setting in json.loads(capsys.readouterr().out)] == ["topic", "broker"]


def test_config_explain_offers_the_nearest_name(capsys: Capture) -> None:
    assert main(["config", "explain", "retention.mss"]) == 1
    assert capsys.readouterr().err == "headrace: There is no setting 'retention.mss'; did you mean retention.ms?\n"


@pytest.mark.parametrize("columns", ["80", "140"])
def test_config_list_has_a_line_for_each_setting(
    columns: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["config", "list", "--scope", "topic"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["config", "list", "--scope", "topic", "--json"]) == 0
    names = [setting["name"] for setting in json.loads(capsys.readouterr().out)]
    assert [line.split()[1] for line in lines[1:]] == names


def test_output_without_a_terminal_has_no_colour() -> None:
    assert "\x1b" not in headrace("config", "list").stdout
