"""What `headrace doctor` looks at of a node's settings: that a node would take them, and what they may cost."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path

from headrace.cli.findings import Finding, Level
from headrace.config import NodeConfig
from headrace.config.sources import Settings, parse_toml
from headrace.errors import HeadraceError


def read_settings(properties: Path | None, toml: Path | None, environment: Mapping[str, str]) -> Settings:
    """As `headrace serve` reads them: what counts least comes first."""
    settings = Settings()
    if properties is not None:
        settings.add_properties(properties.read_bytes(), str(properties))
    if toml is not None:
        settings.add(parse_toml(toml.read_bytes(), str(toml)), str(toml))
    settings.add_environment(environment)
    settings.tell_stored()
    return settings


def settings_findings(
    properties: Path | None, toml: Path | None, environment: Mapping[str, str]
) -> tuple[NodeConfig | None, list[Finding]]:
    """The settings, where a node would take them, and what there is to say of them."""
    try:
        settings = read_settings(properties, toml, environment)
        config = NodeConfig.parse(settings.texts)
    except HeadraceError as error:
        return None, [Finding(Level.PROBLEM, "settings", str(error), "`headrace config explain NAME` tells more.")]
    findings = [Finding(Level.GOOD, "settings", _taken(settings))]
    findings += [Finding(Level.NOTE, "settings", told) for told in settings.told]
    findings += [*_listeners(config), *_safety(settings.texts), *_folders(config)]
    return config, findings


def _taken(settings: Settings) -> str:
    if not settings.told:
        return f"A node takes all {len(settings.texts)} of them."
    notes = "the note below says" if len(settings.told) == 1 else f"the {len(settings.told)} notes below say"
    return f"A node starts with them; {notes} what is left out or has no effect."


def folders_of(config: NodeConfig) -> list[Path]:
    return [Path(folder) for folder in config.storage.log_dirs]


def _folders(config: NodeConfig) -> Iterator[Finding]:
    for folder in folders_of(config):
        if os.path.realpath(folder).startswith(("/tmp/", "/var/tmp/")):
            text = f"{folder} may be cleaned up by the system."
            yield Finding(Level.WARNING, "log.dirs", text, "Put the data elsewhere, as in /var/lib/headrace.")


def _listeners(config: NodeConfig) -> Iterator[Finding]:
    listening_by_name = {address.name: address for address in config.listener.addresses()}
    for told in config.listener.advertised():
        listening = listening_by_name[told.name]
        if not _is_loopback(listening.host) and _is_loopback(told.host):
            where = "on all addresses" if listening.is_wildcard else f"at {listening.host}"
            text = f"It listens {where}, and tells clients to come to {told.host}: each to its own machine."
            advice = "Set advertised.listeners to a name or an address that clients can reach."
            yield Finding(Level.WARNING, "listeners", text, advice)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _safety(texts: Mapping[str, str]) -> Iterator[Finding]:
    if texts.get("unclean.leader.election.enable", "").strip().lower() == "true":
        text = "unclean.leader.election.enable=true: acknowledged records are lost when a replica that is behind leads."
        yield Finding(Level.WARNING, "safety", text, "Leave it at false, unless records may be lost.")
    if texts.get("log.retention.ms", "").strip() == "-1" and texts.get("log.retention.bytes", "-1").strip() == "-1":
        text = "Topics keep their records for ever where they don't say otherwise; the disk fills up one day."
        yield Finding(Level.NOTE, "retention", text, "Set log.retention.ms or log.retention.bytes.")
