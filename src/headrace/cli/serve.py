"""`headrace serve`: runs a node until it is told to stop.

It must be ready in a fraction of a second, so it imports neither Typer nor rich.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from headrace.cli import USAGE, Misused, logs
from headrace.config import NodeConfig
from headrace.config.listeners import host_and_port
from headrace.config.sources import Settings, parse_toml
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.broker.node import Node

COLLECTED: Final = (5_000, 1, 3000)
"""When the collector looks: at 5,000 new objects, which takes a third of a millisecond, and every second time at those
that it has seen once. To look at more at a time takes longer than anybody is to wait for the loop."""
LARGE_BYTES: Final = 256 << 10
"""Of a buffer that is the system's own again when nobody has it."""
_M_MMAP_THRESHOLD: Final = -3

logger = logging.getLogger(__name__)

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SET, _DATA, _LISTEN = "--set", "--data", "--listen"
_FORMATS: Final = ("auto", "human", "json")
_EPILOG: Final = """\
examples:
  headrace serve                                    a node on 127.0.0.1:9092, its data in ./headrace-data
  headrace serve --listen 127.0.0.1:0               on any free port, which is printed
  headrace serve --listen 0.0.0.0:9092 --set advertised.listeners=PLAINTEXT://log.example.net:9092
  headrace serve --set num.partitions=4 --set log.retention.hours=24 --log-level net=debug
  headrace serve --config headrace.toml             settings from a file: log.retention.hours = 24
  headrace serve --properties server.properties     settings from a file of Kafka's; what it does not take, it says
  headrace serve --set http.listen=127.0.0.1:0      metrics and health on any free port; off is without them
  HEADRACE_NUM_PARTITIONS=4 headrace serve          settings from the environment

Flags win over the environment, that over --config, and that over --properties.
Ctrl-C or SIGTERM stops it cleanly. `headrace config explain NAME` says what a setting does.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs one node in the foreground; returns when it has stopped."""
    # Until the loop listens to them. Noted, and not raised: what runs meanwhile, imports above all, may swallow it.
    early: list[int] = []
    stopping = [number for number in _STOPPING if not _is_nohup(number)]
    before = {number: signal.signal(number, lambda number, frame: early.append(number)) for number in stopping}
    try:
        options = _parser().parse_args(arguments)
        settings = _settings(options, os.environ)
        config = _parsed(settings)
        _set_up_log(options, os.environ)
        for told in settings.told:
            logger.warning("%s", told)
        return _run(config, stopping, early)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_nohup(number: signal.Signals) -> bool:
    """Who runs it wants it to outlive its terminal."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"headrace: {message}{self._nearest(message)} See: {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE)

    def _nearest(self, message: str) -> str:
        from difflib import get_close_matches  # only on the way to an error, so not at import

        unknown = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
        near = get_close_matches(unknown, self._option_string_actions, n=1) if unknown.startswith("-") else []
        return f"; did you mean {near[0]}?" if near else "."


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="headrace serve",
        description="Run a node: a whole cluster of one, which any Kafka client can use.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        metavar="DIR[,DIR]",
        help="where the data is kept, and made on the first start (default: ./headrace-data); several disks: a,b",
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where clients connect (default: 127.0.0.1:9092); port 0 is any free port"
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file with settings of the broker")
    parser.add_argument("--properties", metavar="FILE", help="a properties file of Kafka's with settings of the broker")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of the broker, such as log.retention.ms=7d; may be repeated",
    )
    parser.add_argument(
        "--log-level",
        metavar="[MODULE=]LEVEL",
        action="append",
        default=[],
        help="debug, info, warning or error, for all or for one module; may be repeated",
    )
    parser.add_argument(
        "--log-format",
        choices=_FORMATS,
        help="auto is for people on a terminal, and JSON otherwise",
    )
    return parser


def _settings(options: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """What counts least comes first."""
    settings = Settings()
    properties = options.properties or environment.get("HEADRACE_PROPERTIES")
    if properties:
        settings.add_properties(_read(properties), properties)
    toml = options.config or environment.get("HEADRACE_CONFIG")
    if toml:
        settings.add(parse_toml(_read(toml), toml), toml)
    settings.add_environment(environment)
    for flag, texts in _flags(options).items():
        try:
            settings.add(texts, flag)
        except HeadraceError as error:
            raise Misused(str(error)) from error
    settings.tell_stored()
    return settings


def _flags(options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What each flag sets."""
    flags: dict[str, dict[str, str]] = {_SET: {}}
    for given in options.set:
        name, separator, value = given.partition("=")
        if not separator or not name:
            raise Misused(f"'{given}' is no setting; write --set NAME=VALUE, as in --set num.partitions=4.")
        flags[_SET][name.strip()] = value
    for option, name in (("data", "log.dirs"), ("listen", "listeners")):
        if getattr(options, option) is not None and name in flags[_SET]:
            raise Misused(f"--{option} and --set {name} say the same thing twice; leave out one of the two.")
    if options.data is not None:
        flags[_DATA] = {"log.dirs": options.data}
    if options.listen is not None:
        _, colon, port = options.listen.rpartition(":")
        if not colon or not port.isdecimal():
            raise Misused(f"'{options.listen}' is no address; write --listen HOST:PORT, as in 127.0.0.1:9092.")
        flags[_LISTEN] = {"listeners": f"PLAINTEXT://{options.listen}"}
    return flags


def _parsed(settings: Settings) -> NodeConfig:
    """Raises Misused for what flags say, and HeadraceError for what files and the environment do."""
    try:
        config = NodeConfig.parse(settings.texts)
        _require_distinct_folders(config.storage.log_dirs)
    except Refused as refused:
        said = (word.strip("',;:.") for word in refused.text.split())  # of those that do not go together, the first
        name = next((word for word in said if word in settings.texts), "")
        if not name:
            raise
        origin = settings.origins[name]
        if origin == _DATA:  # which is the setting itself, under the name that the user gave it
            raise Misused(f"{_DATA} {refused.text.removeprefix(name).strip()}") from refused
        raise (Misused if origin in (_SET, _LISTEN) else HeadraceError)(f"{origin}: {refused.text}") from refused
    return config


def _set_up_log(options: argparse.Namespace, environment: Mapping[str, str]) -> None:
    form = options.log_format or _format(environment)
    try:
        logs.set_up(sys.stderr, options.log_level or _levels(environment), form)
    except HeadraceError as error:
        if options.log_level:
            raise Misused(str(error)) from error
        raise HeadraceError(f"HEADRACE_LOG_LEVEL: {error}") from error


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise HeadraceError(f"{path} can't be read: {error.strerror}.") from error


def _levels(environment: Mapping[str, str]) -> list[str]:
    return [level for level in environment.get("HEADRACE_LOG_LEVEL", "").split(",") if level]


def _format(environment: Mapping[str, str]) -> str:
    given = environment.get("HEADRACE_LOG_FORMAT", "auto")
    if given not in _FORMATS:
        raise HeadraceError(f"HEADRACE_LOG_FORMAT is {given}; it is one of {', '.join(_FORMATS)}.")
    return given


def _require_distinct_folders(folders: Sequence[str]) -> None:
    """A link is another spelling of a folder, too."""
    seen: dict[str, str] = {}
    for folder in folders:
        first = seen.setdefault(os.path.realpath(folder), folder)
        if first is not folder:
            raise Refused(
                Error.INVALID_CONFIG, f"log.dirs names one folder twice, as {first} and as {folder}; leave out one."
            )


def _return_large_buffers() -> None:
    """To the system, when they are freed.

    glibc takes buffers of a size from its heap as soon as a larger one was freed. That is touched when it is given out
    and stays when it is given back: clients that announced a frame each, and left, cost 200 MB for good.
    """
    import ctypes  # not before the node is ready

    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def _run(config: NodeConfig, signals: Sequence[signal.Signals], early: Sequence[int]) -> int:
    import uvloop

    from headrace.broker.local import local_ports
    from headrace.broker.node import Node
    from headrace.broker.rest import import_rest

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in signals:
            loop.add_signal_handler(number, stopping.set)
        if early:
            return
        node = Node(config, local_ports(loop))
        starting = loop.create_task(node.start())
        waiting = loop.create_task(stopping.wait())
        await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        if starting.cancelled() or starting.exception() is not None:
            with suppress(HeadraceError):  # why it did not start is what to tell
                await node.stop()
            if starting.cancelled():
                return
        starting.result()
        _say_ready(node)
        # What lives now lives to the end: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTED)
        _return_large_buffers()
        node.failed.add_done_callback(lambda failed: stopping.set())
        importing = loop.create_task(import_rest())
        await waiting
        importing.cancel()
        await node.stop()
        if node.failed.done():
            raise node.failed.result()

    try:
        uvloop.run(serve())
    except Refused as refused:
        if refused.error is Error.INVALID_CONFIG:
            raise HeadraceError(f"{refused} `headrace config explain NAME` tells more.") from refused
        raise
    except HeadraceError as error:
        if str(error).endswith((".", "?")):
            raise
        raise HeadraceError(f"{error}.") from error  # of the storage, whose log puts it into other sentences
    return 0


def _say_ready(node: Node) -> None:
    told = ", ".join(host_and_port(endpoint.host, endpoint.port) for endpoint in node.endpoints)
    lines = [f"headrace is ready on {told} (node {node.id}, cluster {node.cluster_id})"]
    if node.http_address is not None:
        lines.append(f"metrics and health: http://{host_and_port(*node.http_address)}/")
    # In one write, end of line included: whoever waits for the first line may not read the second.
    print("\n".join(lines) + "\n", end="", flush=True)
