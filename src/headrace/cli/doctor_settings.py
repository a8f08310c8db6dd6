"""What `headrace doctor` looks at of a node's settings: that they can be read, and what they may cost."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from headrace.cli.findings import Finding, Level
from headrace.config import NodeConfig
from headrace.errors import HeadraceError


def read_settings(path: Path) -> dict[str, str]:
    """The settings of a file by their names: TOML, or properties as Kafka has them."""
    try:
        text = path.read_text()
        if path.suffix == ".toml":
            return dict(_flat(tomllib.loads(text)))
    except UnicodeDecodeError as error:
        raise HeadraceError(f"{path} is no text; name a file of settings.") from error
    except tomllib.TOMLDecodeError as error:
        raise HeadraceError(f"{path} is no TOML: {error}.") from error
    lines = [line.strip() for line in text.replace("\\\n", "").splitlines()]
    pairs = [re.split(r"\s*[=:]\s*|\s+", line, maxsplit=1) for line in lines if line and line[0] not in "#!"]
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", ",".join(map(str, value))
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def settings_findings(texts: dict[str, str], path: Path) -> Iterator[Finding]:
    """Of settings under their names, as they were read from a file."""
    try:
        config = NodeConfig.parse(texts)
    except HeadraceError as error:
        yield Finding(Level.PROBLEM, "settings", f"{path}: {error}", "`headrace config explain NAME` tells more.")
        return
    yield Finding(Level.GOOD, "settings", f"{path} says {len(texts)} things, all understood.")
    yield from _listeners(config)
    yield from _safety(texts)
    for folder in folders_of(config):
        if str(folder.absolute()).startswith(("/tmp/", "/var/tmp/")):
            text = f"{folder} may be cleaned up by the system."
            yield Finding(Level.WARNING, "log.dirs", text, "Put the data elsewhere, as in /var/lib/headrace.")


def folders_of(config: NodeConfig) -> list[Path]:
    return [Path(folder) for folder in config.storage.log_dirs]


def _listeners(config: NodeConfig) -> Iterator[Finding]:
    for listening, told in zip(config.listener.addresses(), config.listener.advertised(), strict=False):
        if not _is_loopback(listening.host) and _is_loopback(told.host):
            text = f"It listens at {listening.host}, and tells clients to come to {told.host}: each to its own machine."
            advice = "Set advertised.listeners to a name or an address that clients can reach."
            yield Finding(Level.WARNING, "listeners", text, advice)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _safety(texts: dict[str, str]) -> Iterator[Finding]:
    if texts.get("unclean.leader.election.enable", "").strip().lower() == "true":
        text = "unclean.leader.election.enable=true: acknowledged records are lost when a replica that is behind leads."
        yield Finding(Level.WARNING, "safety", text, "Leave it at false, unless records may be lost.")
    if texts.get("log.retention.ms", "").strip() == "-1" and texts.get("log.retention.bytes", "-1").strip() == "-1":
        text = "Topics keep their records for ever where they don't say otherwise; the disk fills up one day."
        yield Finding(Level.NOTE, "retention", text, "Set log.retention.ms or log.retention.bytes.")
