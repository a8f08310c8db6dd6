"""`headrace` as a process of its own: terminals, pipes, Ctrl-C, colour, shells that complete."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from headrace.cli.connection import VARIABLE
from tests.cli.running import Cli
from tests.cli.terminal import HEADRACE, TIMEOUT_S, Terminal, headrace


def test_a_cluster_that_is_not_there_is_told_with_how_to_start_one() -> None:
    with socket.socket() as bound:  # bound, and nobody listens
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        done = headrace("topic", "list", "--bootstrap", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"headrace: No broker answers at {address} (Connection refused). Start one with `headrace serve`, or say where "
        "the cluster is with --bootstrap HOST:PORT or HEADRACE_BOOTSTRAP.\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["produce", "orders", "--value", "x"],
        ["consume", "orders"],
        ["consume", "orders", "--group", "g"],
        ["bench", "produce"],
        ["bench", "consume", "--client", "librdkafka"],
        ["top", "--once"],
        ["group", "list"],
        ["group", "lag", "g", "--watch"],
        ["group", "reset", "g", "--to", "latest"],
        ["txn", "list"],
        ["txn", "find-hanging"],
    ],
)
def test_every_command_that_talks_to_a_cluster_says_when_none_is_there(cli: Cli, command: list[str]) -> None:
    assert cli.failed(*command, "--bootstrap", "127.0.0.1:1").startswith("No broker answers at 127.0.0.1:1 (")


def test_an_address_that_is_none_is_wrong_use(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "write host:port" in cli.failed("topic", "list", "--bootstrap", "nonsense:x", code=2)
    said = cli.failed("doctor", "--bootstrap", "kafka..example.net", code=2)
    assert said == "--bootstrap kafka..example.net: 'kafka..example.net' is no name of a host."
    monkeypatch.setenv(VARIABLE, "kafka..net")
    assert cli.failed("cluster", "describe") == "HEADRACE_BOOTSTRAP is kafka..net: 'kafka..net' is no name of a host."


def test_a_command_or_option_that_is_not_there_is_told_with_the_nearest(cli: Cli) -> None:
    said = cli.failed("topic", "lst", code=2)
    assert said == "No such command 'lst'. Did you mean 'list'? See: headrace topic --help"
    assert "(Possible options: --names)" in cli.failed("topic", "list", "--name", code=2)


def test_a_terminal_gets_colour_and_is_asked(cli: Cli, topic: str) -> None:
    environment = {VARIABLE: cli.bootstrap}
    terminal = Terminal("topic", "delete", topic, **environment)
    shown = terminal.until("[y/N]")
    assert f"\x1b[36m{topic}" in shown
    assert f"Delete topic {topic} with 10 records" in shown
    terminal.type("n\n")
    assert terminal.end() == 1
    assert "Nothing was changed." in terminal.shown

    stopped = Terminal("topic", "delete", topic, **environment)
    stopped.until("[y/N]")
    assert stopped.interrupted() == 130
    assert "Traceback" not in stopped.shown

    agreed = Terminal("topic", "delete", topic, NO_COLOR="1", **environment)
    plain = agreed.until("[y/N]")
    assert "\x1b[36m" not in plain
    assert topic in plain
    agreed.type("y\n")
    assert agreed.end() == 0
    assert f"Deleted topic {topic}." in agreed.shown


def test_ctrl_c_while_it_waits_for_a_broker_ends_it_at_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [*HEADRACE, "topic", "list", "--bootstrap", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT_S)
            connection.close()
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_goes_away_ends_it_quietly(cli: Cli, topic: str) -> None:
    with subprocess.Popen(
        [*HEADRACE, "topic", "describe", topic, "--bootstrap", cli.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


# --- completion -------------------------------------------------------------------------------------------------------


def test_a_shell_completes_commands_options_and_names_of_topics(
    cli: Cli, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_HEADRACE_COMPLETE", "complete_bash")

    def completed(words: str) -> list[str]:
        """What bash would offer for the last word."""
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        told = cli()
        assert (told.code, told.err) == (0, "")
        return told.out.split()

    assert "topic" in completed("headrace ")
    assert completed("headrace clu") == ["cluster"]
    assert completed("headrace topic de") == ["describe", "delete"]
    assert "--partitions" in completed("headrace topic create --p")
    assert "--listen" in completed("headrace serve --l")
    assert topic in completed(f"headrace topic describe {topic[:8]}")
    assert topic in completed(f"headrace config get --topic {topic[:8]}")
    assert topic in completed(f"headrace consume {topic[:8]}")
    group = f"{topic}-group"
    completing = os.environ.pop("_HEADRACE_COMPLETE")
    cli.done("group", "reset", group, "--create", "--topic", topic, "--to", "latest", "--yes")
    monkeypatch.setenv("_HEADRACE_COMPLETE", completing)
    assert completed(f"headrace group lag {topic[:8]}") == [group]
    monkeypatch.setenv(VARIABLE, "127.0.0.1:1")
    assert completed("headrace topic describe ") == [], "a cluster that is not there completes nothing"


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_completion_is_shown_and_installed(tmp_path: Path, shell: str, file: str) -> None:
    assert headrace("--show-completion", "tcsh").returncode == 2
    shown = headrace("--show-completion", shell)
    assert shown.returncode == 0
    assert "_HEADRACE_COMPLETE=complete_" in shown.stdout
    done = headrace("--install-completion", shell, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Completion for {shell} is installed in ")
    assert (tmp_path / file).exists()
