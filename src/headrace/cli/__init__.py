"""The command `headrace`: finds the subcommand, loads that one and nothing else, and says in a sentence what failed.

A node must start in a fraction of a second, so this module imports neither Typer nor rich; a subcommand that wants them
does. Exit codes: 0 done, 1 failed, 2 used wrongly, 70 a defect of ours, 130 stopped by Ctrl-C, 141 the
pipe closed, 143 stopped by SIGTERM.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from headrace.cli import streams
from headrace.errors import HeadraceError

FAILED: Final = 1
USAGE: Final = 2
DEFECT: Final = 70
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
COMPLETE_VARIABLE: Final = "_HEADRACE_COMPLETE"
"""Set by a shell that asks what can come next."""


class Misused(HeadraceError):
    """The command line itself says something that can't be meant: exit code 2."""


class Command(NamedTuple):
    """A subcommand: where it is (a Typer app, or a function of the arguments), what it does, how it is used."""

    target: str
    summary: str
    example: str


COMMANDS: Final[dict[str, Command]] = {
    "serve": Command(
        "headrace.cli.serve:main",
        "Run a node: a whole cluster of one, which any Kafka client can use.",
        "headrace serve --data orders --listen 127.0.0.1:9092",
    ),
    "topic": Command(
        "headrace.cli.topic:app",
        "Create, look at, change, delete and trim topics, of any Kafka cluster.",
        "headrace topic create orders --partitions 6 --config retention.ms=7d",
    ),
    "produce": Command(
        "headrace.cli.produce:app",
        "Send records to a topic: lines of text or JSON, files, one value.",
        "headrace produce orders orders.jsonl --format json",
    ),
    "consume": Command(
        "headrace.cli.consume:app",
        "Print records of topics: filtered, as text, JSON or by a template.",
        "headrace consume orders --from 2h --filter 'value.total > 100'",
    ),
    "group": Command(
        "headrace.cli.group:app",
        "Look at groups of consumers and how far they are behind, set their offsets, delete them.",
        "headrace group lag billing --watch",
    ),
    "txn": Command(
        "headrace.cli.txn:app",
        "Look at transactions, end one by force, find those that hang.",
        "headrace txn list --state Ongoing --longer-than 1m",
    ),
    "config": Command(
        "headrace.cli.config:app",
        "Explain settings, and get and set those of a running cluster.",
        "headrace config explain retention.ms",
    ),
    "cluster": Command(
        "headrace.cli.cluster:app",
        "Look at a cluster: its brokers, its features, and what is wrong with it.",
        "headrace cluster describe --bootstrap 127.0.0.1:9092",
    ),
    "quorum": Command(
        "headrace.cli.quorum:app",
        "Look at the quorum that keeps a cluster's metadata.",
        "headrace quorum describe",
    ),
    "top": Command(
        "headrace.cli.top:app",
        "Watch a cluster: rates of topics, lag of groups, latency, disks.",
        "headrace top --interval 1s",
    ),
    "bench": Command(
        "headrace.cli.bench:app",
        "Measure how fast a cluster is: throughput, latency, a histogram, a plot.",
        "headrace bench produce --record-size 1KiB --compression lz4 --plot bench.html",
    ),
    "doctor": Command(
        "headrace.cli.doctor:app",
        "Check the machine, the settings and a running cluster, and say what to do.",
        "headrace doctor --data headrace-data --bootstrap 127.0.0.1:9092",
    ),
    "log": Command(
        "headrace.cli.log:app",
        "Look into the files of a log, ours or Kafka's: dump, verify, sum up.",
        "headrace log dump headrace-data/orders-0/00000000000000000000.log",
    ),
    "protocol": Command(
        "headrace.cli.protocol:app",
        "Show the shape of any Kafka message, and explain a captured frame field by field.",
        "headrace protocol show Fetch --version 13",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code. Nothing that goes wrong shows a traceback."""
    try:
        streams.mend()
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except Misused as error:
        sentence = str(error)
        return _say(sentence if sentence.endswith((".", "?")) else f"{sentence}.", USAGE)
    except HeadraceError as error:
        return _say(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except SystemExit as stop:  # rich's way to end when the pipe closes
        if isinstance(stop.__context__, BrokenPipeError):
            return _pipe_closed()
        raise
    except OSError as error:
        return _say(f"{error.filename or 'reading or writing failed'}: {error.strerror or error}.", FAILED)
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps what comes while a class is made
            from headrace.cli import interrupts

            return interrupts.exit_code()
        if os.environ.get("HEADRACE_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        return _say(
            f"this is a defect of headrace ({what}). Set HEADRACE_TRACEBACK=1 to see where, and report it.", DEFECT
        )


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if COMPLETE_VARIABLE in os.environ or name in ("--install-completion", "--show-completion"):
        from headrace.cli.completion import complete

        return complete(arguments)
    if name in ("--help", "-h", "help"):
        from headrace.cli.overview import print_overview

        print_overview(COMMANDS)
        return 0
    if name in ("--version", "-V"):
        from headrace import __version__

        print(f"headrace {__version__}")
        return 0
    command = COMMANDS.get(name)
    if command is None:
        return _say(_unknown(name), USAGE)
    # What is imported stays: looking for garbage among it every 700 objects is a tenth of a start, and of little use
    # to a node, which makes few cycles.
    gc.set_threshold(50_000, 20, 50)
    found = load(name, command)
    if hasattr(found, "registered_commands"):  # a Typer app; asking its class would import Typer
        return _run_typer(found, name, arguments[1:])
    return cast("Callable[[list[str]], int]", found)(arguments[1:])


def load(name: str, command: Command) -> Any:
    module, _, attribute = command.target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise HeadraceError(f"'headrace {name}' is not part of this version.") from None


def _run_typer(app: Any, name: str, arguments: list[str]) -> int:
    from headrace.cli import interrupts

    with interrupts.heard():
        try:
            code = _run_command(app, name, arguments)
        except KeyboardInterrupt:
            code = INTERRUPTED
        return interrupts.exit_code() if code == INTERRUPTED else code


def _run_command(app: Any, name: str, arguments: list[str]) -> int:
    import typer
    from typer.main import get_command

    from headrace.cli import texts

    try:
        command = texts.checked(get_command(app))
        with nullcontext() if arguments and "--help" not in arguments else _tidied(command):
            code = command.main(args=arguments, prog_name=f"headrace {name}", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        place = context.command_path if context is not None else f"headrace {name}"
        from headrace.cli.wrong_use import sentence_of

        message = sentence_of(error)
        if not message:  # no arguments at all: the help has been printed instead
            return USAGE
        sentence = message.removesuffix(".")
        return _say(f"{sentence}{'' if sentence.endswith('?') else '.'} See: {place} --help", error.exit_code)
    return code if isinstance(code, int) else 0


def _tidied(command: Any) -> AbstractContextManager[None]:
    from headrace.cli.overview import tidied

    return tidied(command)


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"Did you mean 'headrace {near[0]}'?" if near else "See: headrace --help"
    return f"there is no {'option' if name.startswith('-') else 'command'} '{name}'. {hint}"


def _say(sentence: str, code: int) -> int:
    print(f"headrace: {sentence}", file=sys.stderr)
    return code


def _pipe_closed() -> int:
    # Whoever read from us has gone (headrace ... | head). What is still buffered has nowhere to go; without this the
    # interpreter would complain about it at its end.
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())
    return PIPE_CLOSED
