"""`headrace serve` as its user meets it: what it prints, how it stops, and the one sentence when it can't run."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.logs import HumanFormatter
from headrace.errors import HeadraceError
from headrace.protocol import messages as m
from headrace.storage.identity import MetaProperties
from headrace.testing.disk import Faults, FaultyDisk
from tests.broker.nodes import run, running
from tests.compat.process import Process
from tests.compat.wire import Wire

ANY_PORT = ("--listen", "127.0.0.1:0")
TIMEOUT_S = 60


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "serve", *arguments]


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """For what ends by itself."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
    )


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one thing that it said to a person; the rest of what it said is its log."""
    assert done.returncode in (1, 2), done.stderr
    assert done.stdout == ""
    (said,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert said.startswith("headrace: ")
    return said


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "data")
    process.start()
    yield process
    if process.is_running:
        assert process.stop() == 0, process.said


def test_help_teaches() -> None:
    done = serve("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for taught in ("./headrace-data", "127.0.0.1:9092", "--set num.partitions=4", "SIGTERM", "headrace config explain"):
        assert taught in done.stdout


def test_it_says_where_it_listens_and_which_cluster_it_is(node: Process) -> None:
    assert node.port > 0
    (ready,) = [line for line in node.lines if line.startswith("headrace is ready")]
    assert re.fullmatch(rf"headrace is ready on 127.0.0.1:{node.port} \(node 1, cluster [\w-]{{22}}\)\n", ready)
    assert node.data.joinpath("meta.properties").exists()


def test_the_data_is_in_a_folder_of_its_own_under_the_current_one(tmp_path: Path) -> None:
    with subprocess.Popen(command(*ANY_PORT), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith(b"headrace is ready on 127.0.0.1:")
        child.terminate()
    assert child.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["headrace-data"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        command(*ANY_PORT, "--data", str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the tests may run with nohup themselves
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("headrace is ready")
        child.send_signal(number)
        _, errors = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode == 0, errors
    assert "Traceback" not in errors
    assert list(tmp_path.glob(".kafka_cleanshutdown")), "the next start need not look for damage"


def test_with_nohup_it_outlives_its_terminal(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["nohup", *command(*ANY_PORT, "--data", str(tmp_path))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        bootstrap = child.stdout.readline().split("ready on ")[1].split()[0]
        child.send_signal(signal.SIGHUP)
        with Wire(bootstrap) as wire:
            assert wire.ask(m.MetadataRequest(topics=[]), 8).brokers
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode == 0, errors


def test_what_clients_send_neither_forges_a_line_of_the_log_nor_is_obeyed_by_a_terminal() -> None:
    group = "g\n22:09:20.457 error   broker.node  made up\x1b[31m\x9b\u2028"
    record = logging.LogRecord("headrace.net", logging.INFO, "", 0, "%s has come", (group,), None)
    line = HumanFormatter(coloured=False).format(record)
    assert line.endswith(r"g\n22:09:20.457 error   broker.node  made up\x1b[31m\x9b\u2028 has come")
    assert line.isprintable()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_the_start_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """After some shares of what the way there takes, from when the command has begun."""
    script = (
        "import sys, signal; from headrace.cli import serve; noted = signal.signal\n"
        "def note(number, handler):\n"
        "    before = noted(number, handler)\n"
        "    if number == signal.SIGINT: print('go', flush=True)\n"
        "    return before\n"
        "signal.signal = note\n"
        "sys.exit(serve.main(sys.argv[1:]))"
    )
    for pause_s in (0.0, 0.02, 0.05, 0.1, 0.15, 0.2):
        with subprocess.Popen(
            [sys.executable, "-c", script, *ANY_PORT, "--data", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "go\n"
            time.sleep(pause_s)
            child.send_signal(number)
            _, errors = child.communicate(timeout=TIMEOUT_S)
        assert child.returncode == 0, errors
        assert "Traceback" not in errors


def test_a_folder_in_use(node: Process) -> None:
    said = sentence(serve(*ANY_PORT, "--data", str(node.data)))
    assert said == f"headrace: {node.data} is in use by another process; stop that one or choose another folder."


def test_a_port_in_use(node: Process, tmp_path: Path) -> None:
    said = sentence(serve("--listen", node.bootstrap, "--data", str(tmp_path / "other")))
    assert said == f"headrace: {node.bootstrap} is in use by another process. Stop it, or choose another port."
    assert not (tmp_path / "other").exists(), "nothing was touched"


def test_a_folder_of_another_cluster_or_node(tmp_path: Path) -> None:
    for name, cluster in (("a", "AAAAAAAAAAAAAAAAAAAAAA"), ("b", "BBBBBBBBBBBBBBBBBBBBBB")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_bytes(
            MetaProperties(cluster, 1, bytes(15) + name.encode()).encode()
        )
    said = sentence(serve(*ANY_PORT, "--data", f"{tmp_path}/a,{tmp_path}/b"))
    assert "b belongs to cluster BBBBBBBBBBBBBBBBBBBBBB" in said
    assert "choose another folder" in said
    said = sentence(serve(*ANY_PORT, "--data", f"{tmp_path}/a", "--set", "node.id=2"))
    assert said.endswith("choose another folder or set node.id=1.")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--listen", "nonsense"), "write --listen HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "the highest port is 65535"),
        (("--listen", "::1:9092"), "an IPv6 address stands in brackets"),
        (("--set", "num.partition=3"), "did you mean num.partitions?"),
        (("--set", "num.partitions=many"), "must be a whole number, at least 1, not 'many'"),
        (("--set", "num.partitions"), "write --set NAME=VALUE"),
        (("--set", "advertised.listeners=PLAINTEXT://0.0.0.0:9092"), "no client can connect to that"),
        (("--set", "listeners=SSL://127.0.0.1:0"), "PLAINTEXT is all that is served"),
        (("--set", "listeners=A://:0"), "add A:PLAINTEXT to it"),
        (("--set", "listener.security.protocol.map=PLAINTEXT:SSL"), "PLAINTEXT is all that is served"),
        (("--set", "listener.security.protocol.map=PLAINTEXT:TLS"), "it knows PLAINTEXT, SSL"),
        (("--set", "broker.session.timeout.ms=1"), "must be less than broker.session.timeout.ms, 1"),
        (
            (
                "--set",
                "listeners=PLAINTEXT://127.0.0.1:1,B://127.0.0.1:1",
                "--set",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            ),
            "which share port 1; give each a port of its own.",
        ),
        (("--listen", "127.0.0.1:0", "--set", "listeners=PLAINTEXT://127.0.0.1:0"), "leave out one of the two"),
        (("--log-level", "net=loud"), "is no log level. Use one of debug, info, warning, error"),
        (("--log-level", "nett=debug"), "There is no module 'nett' to log; did you mean net?"),
        (("--log-level", "broker.nodes=debug"), "There is no module 'broker.nodes' to log; did you mean broker.node?"),
        (("--log-level", "xyz=debug"), "There is no module 'xyz' to log; the log names them, as in net"),
        (("--loud",), "See: headrace serve --help"),
        (("--lissten", "127.0.0.1:0"), "did you mean --listen?"),
        (("",), "unrecognized arguments"),
        (("--data", "folder-\udcff"), "log.dirs is no UTF-8, as every setting must be."),
        (("--set", "broker.rack=\udcff"), "broker.rack is no UTF-8, as every setting must be."),
        (("--data", ""), "--data is empty; a node needs a folder, as in headrace-data."),
        (("--data", "a,./a"), "--data names one folder twice, as a and as ./a; leave out one."),
    ],
)
def test_flags_that_can_not_be_meant_are_wrong_use(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    done = refused(arguments, tmp_path)
    assert expected in sentence(done)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--listen", "192.0.2.1:0"), "this machine has no address 192.0.2.1"),
        (("--listen", "no.such.host.invalid:0"), "Use an address of this machine"),
        (("--data", "/proc/no/such/folder"), "can't be a log directory (No such file or directory); choose a folder"),
        (("--data", "/dev/null"), "/dev/null can't be a log directory (it is no folder); choose a folder"),
    ],
)
def test_what_it_can_not_run_with_is_one_sentence(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    done = refused(arguments, tmp_path)
    assert expected in sentence(done)
    assert done.returncode == 1
    assert done.stderr.endswith(".\n")


def refused(arguments: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    given = arguments if "--data" in arguments else (*arguments, "--data", str(folder))
    given = given if any("listen" in argument for argument in arguments) else (*ANY_PORT, *given)
    return serve(*given)


def test_a_log_level_of_the_environment_is_no_wrong_use(tmp_path: Path) -> None:
    done = serve(*ANY_PORT, "--data", str(tmp_path), HEADRACE_LOG_LEVEL="loud")
    assert sentence(done).startswith("headrace: HEADRACE_LOG_LEVEL: 'loud' is no log level.")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (Faults(read_only=True), "read-only; mount it for writing or choose another folder"),
        (Faults(forbidden=("",)), "give the user that runs the node read and write access"),
        (Faults(capacity_bytes=0), "full"),
    ],
)
def test_a_disk_that_takes_nothing_is_one_sentence(faults: Faults, expected: str) -> None:
    """Root may write everywhere, so this is asked of a disk that says no to all."""

    async def check() -> None:
        with pytest.raises(HeadraceError, match=expected) as raised:
            async with running(FaultyDisk(faults=faults)):
                pass
        assert "\n" not in str(raised.value)

    run(check())


def test_without_a_terminal_its_log_is_json(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(*ANY_PORT, "--data", str(tmp_path), "--log-level", "warning", "--log-level", "broker=info"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.terminate()
        _, errors = child.communicate(timeout=TIMEOUT_S)
    entries = [json.loads(line) for line in errors.splitlines()]
    assert {"broker.listeners", "broker.node"} <= {entry["module"] for entry in entries}
    assert all(entry["module"].startswith("broker.") for entry in entries), "the others speak of warnings only"
    assert set(entries[0]) == {"time", "level", "module", "message"}


def test_on_a_terminal_its_log_is_for_people(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*ANY_PORT, "--data", str(tmp_path)), stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as child:
        os.close(theirs)
        assert child.stdout is not None
        child.stdout.readline()
        said = os.read(ours, 1 << 16).decode()
        child.terminate()
        child.wait(TIMEOUT_S)
    os.close(ours)
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3} \x1b\[36minfo   \x1b\[0m ", said)
    assert '{"time"' not in said


def test_a_defect_is_a_sentence_and_a_traceback_when_asked(tmp_path: Path) -> None:
    script = (
        "import sys; from headrace.broker import node; from headrace.cli import main\n"
        "def broken(*given): raise ValueError('planted')\n"
        "node.Node.__init__ = broken\n"
        f"sys.exit(main(['serve', '--data', {str(tmp_path)!r}]))"
    )
    for asked, code in (("", 70), ("1", 1)):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HEADRACE_TRACEBACK": asked},
        )
        assert done.returncode == code
        assert ("Traceback" in done.stderr) == bool(asked)
        assert "planted" in done.stderr
