"""How a command reaches its cluster: the option that says where it is, the client, the sentence when nobody is there.

The client is loaded when it is needed, so that `--help` and completion of options stay quick.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from headrace.cli import Misused, interrupts
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.client import Client, TopicInfo

VARIABLE: Final = "HEADRACE_BOOTSTRAP"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
CONNECT_TIMEOUT_S: Final = 5.0
OPERATION_TIMEOUT_S: Final = 30.0
COMPLETION_TIMEOUT_S: Final = 1.5
NAMES_COMPLETED_MAX: Final = 500

Found = TypeVar("Found")


def run(bootstrap: str, work: Callable[[Client], Awaitable[Found]], *, once: bool = False, **settings: Any) -> Found:
    """Does the work with a client of the cluster, in a loop of its own. Says what to do when no broker answers.

    Who only looks asks `once`: a broker that is down is a thing to show, and not to wait for.
    """
    from headrace.client import Client
    from headrace.client.errors import Unreachable

    given: dict[str, Any] = {"client_id": "headrace-cli", "connect_timeout_s": CONNECT_TIMEOUT_S, **settings}
    given.setdefault("operation_timeout_s", 0.0 if once else OPERATION_TIMEOUT_S)

    async def main() -> Found:
        try:
            client = Client(bootstrap, **given)
        except ValueError as error:
            why = f"{bootstrap}: {str(error).rstrip('.')}."
            if bootstrap == os.environ.get(VARIABLE):  # which is no wrong use of the command
                raise HeadraceError(f"{VARIABLE} is {why}") from None
            raise Misused(f"--bootstrap {why}") from None
        async with client:
            try:
                await client.connect()
            except Unreachable as error:
                raise not_there(bootstrap, error) from error
            return await work(client)

    return run_loop(main)


def run_loop(main: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
    """Runs it in a loop of its own. Every Ctrl-C, and every SIGTERM, cancels what it waits for.

    Left to itself, a second one would raise wherever the code happens to be: a clean-up that has begun is then done
    without its time limit, and the command stays.
    """
    import asyncio

    import uvloop

    is_interrupted, handlers = False, interrupts.handlers()  # before asyncio takes Ctrl-C for itself

    async def interruptible() -> Found:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def interrupt(number: signal.Signals) -> None:
            nonlocal is_interrupted
            is_interrupted = True
            interrupts.note(number)
            task.cancel()

        for number in handlers:
            loop.add_signal_handler(number, interrupt, number)
        try:
            return await main()
        finally:
            for number, handler in handlers.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    try:
        return uvloop.run(interruptible())
    except asyncio.CancelledError:
        if is_interrupted:
            raise KeyboardInterrupt from None
        raise


def not_there(bootstrap: str, error: HeadraceError) -> HeadraceError:
    """What to tell when no broker answers."""
    why = str(error).rpartition("): check ")[0].removeprefix("No broker answers (") or str(error).rstrip(".")
    why = re.sub(r"(\S+): can't connect to \1: ", r"\1: ", why).removeprefix(f"{bootstrap}: ")
    return HeadraceError(
        f"No broker answers at {bootstrap} ({why}). Start one with `headrace serve`, or say where the cluster is with "
        f"--bootstrap HOST:PORT or {VARIABLE}."
    )


# --- topics by their names --------------------------------------------------------------------------------------------


def is_pattern(text: str) -> bool:
    return any(character in text for character in "*?[")


async def all_topics(client: Client) -> dict[str, TopicInfo]:
    """Every topic of the cluster by its name, in the order of the names."""
    from headrace.client.metadata import Metadata
    from headrace.protocol.messages import MetadataRequest

    seen = Metadata()
    seen.update(await client.admin.request(MetadataRequest(topics=None, allow_auto_topic_creation=False)))
    return {name: seen.topics[name] for name in sorted(seen.topics)}


def matching(topics: dict[str, TopicInfo], wanted: Iterable[str], *, internal: bool = False) -> dict[str, TopicInfo]:
    """The topics of these names and patterns (`*`, `?`, `[a-c]`). A pattern finds internal topics only when asked to.

    Raises when a name is not there, with the nearest one, or when a pattern matches nothing.
    """
    found: dict[str, TopicInfo] = {}
    for text in wanted:
        if text in topics:
            found[text] = topics[text]
            continue
        if not is_pattern(text):
            raise unknown_topic(text, topics)
        matched = {
            name: topic
            for name, topic in topics.items()
            if fnmatchcase(name, text) and (internal or not topic.is_internal)
        }
        if not matched:
            raise HeadraceError(f"No topic matches '{text}'. See what is there with `headrace topic list`.")
        found |= matched
    return {name: found[name] for name in sorted(found)}


def unknown_topic(name: str, names: Iterable[str]) -> Refused:
    near = get_close_matches(name, list(names), n=1)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else f"see what is there with `headrace topic list`, or create it with `headrace topic create {name}`."
    )
    return Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'; {hint}")


# --- options ----------------------------------------------------------------------------------------------------------


def _complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Names of topics, asked of the cluster. A shell that waits for them gets none rather than an error."""
    bootstrap = context.params.get("bootstrap") or os.environ.get(VARIABLE) or DEFAULT_BOOTSTRAP
    timeouts: dict[str, Any] = dict.fromkeys(("connect_timeout_s", "request_timeout_s"), COMPLETION_TIMEOUT_S)
    try:
        names = run(bootstrap, all_topics, once=True, **timeouts)
    except HeadraceError:
        return []
    hidden = not incomplete.startswith("_")
    found = [
        name for name, topic in names.items() if name.startswith(incomplete) and not (hidden and topic.is_internal)
    ]
    return found[:NAMES_COMPLETED_MAX]


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar=VARIABLE,
        help="A broker of the cluster, or several with commas between.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask, do it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Check and show what would be done; change nothing.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=_complete_topics)]
Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Topics, or patterns such as 'orders-*'.", autocompletion=_complete_topics),
]
complete_topics = _complete_topics
