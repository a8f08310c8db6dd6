"""The support bundle of `headrace doctor --bundle`: one archive with what somebody who helps would ask for.

It has no record of any topic in it, and no secret: values that are secret, or whose names say so, are left out.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace import __version__
from headrace.cli.findings import Finding
from headrace.cli.metrics_text import cluster_ids, parse, read
from headrace.cli.quantities import size_text
from headrace.config import broker_settings
from headrace.config.node import ALIASES
from headrace.config.properties import parse_properties
from headrace.config.sources import parse_toml
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client import Client

LOG_BYTES_MAX: Final = 8 << 20
HIDDEN: Final = "(left out)"
_SECRET: Final = re.compile(r"password|passwd|secret|token|credential|jaas|private|api[._-]?key|\.key$", re.IGNORECASE)


class Bundle:
    """Files are added one by one; written at once at the end, with a list of them in front."""

    __slots__ = ("_files", "_time_s", "cluster_id", "notes")

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, bytes]] = {}
        self._time_s = int(time.time())
        self.cluster_id: str | None = None
        """Of the cluster that it tells of, if any."""
        self.notes: list[str] = []
        """What could not be had, and why."""

    def add(self, name: str, what: str, content: str | bytes) -> None:
        self._files[name] = (what, content.encode() if isinstance(content, str) else content)

    def add_json(self, name: str, what: str, value: Any) -> None:
        self.add(name, what, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")

    def contents(self) -> list[tuple[str, int, str]]:
        """Name, bytes and what it is, of each file."""
        return [(name, len(content), what) for name, (what, content) in self._files.items()]

    def write(self, path: Path) -> None:
        lines = [f"A support bundle of headrace {__version__}.", ""]
        lines += [f"{name:<24} {size_text(size):>10}  {what}" for name, size, what in self.contents()]
        lines += ["", *self.notes] if self.notes else []
        lines += ["", "It has no records of topics in it, and no values of settings that are secret or not known.", ""]
        folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
        try:  # for its owner alone: what runs where is nobody else's business
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise HeadraceError(f"{path} is there already; name another file for the bundle.") from error
        with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in {"README.txt": "\n".join(lines).encode(), **self._contents()}.items():
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), self._time_s, 0o644
                archive.addfile(entry, io.BytesIO(content))

    def _contents(self) -> dict[str, bytes]:
        return {name: content for name, (_, content) in self._files.items()}


def add_machine(bundle: Bundle, findings: Sequence[Finding]) -> None:
    packages = {found.metadata["Name"]: found.version for found in distributions()}
    versions = {
        "headrace": __version__,
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }
    bundle.add_json("versions.json", "versions of headrace, Python, the system and all packages", versions)
    bundle.add_json("findings.json", "what doctor found", [finding.as_json() for finding in findings])


def add_settings(bundle: Bundle, properties: Path | None, toml: Path | None) -> None:
    """The settings of a node's files, as a node reads them: how a secret is spelled does not matter then."""
    if properties is not None:
        _add_settings_file(bundle, "properties", properties, parse_properties)
    if toml is not None:
        _add_settings_file(bundle, "toml", toml, lambda content: parse_toml(content, str(toml)))


def _add_settings_file(bundle: Bundle, kind: str, path: Path, parse: Callable[[bytes], dict[str, str]]) -> None:
    try:
        texts = parse(path.read_bytes())
    except HeadraceError:
        bundle.notes.append(f"{path} is left out: a node can't read it, as the findings say.")
        return
    bundle.add_json(f"settings/{kind}.json", f"the settings in {path}, without secrets", without_secrets(texts))


def without_secrets(texts: Mapping[str, str]) -> dict[str, str]:
    """Values are told of settings that are known, and known to be no secret."""
    known = broker_settings()
    told = {}
    for name, text in texts.items():
        setting = known.get(ALIASES.get(name, name))
        told[name] = HIDDEN if setting is None or setting.is_sensitive or is_secret(name) else text
    return told


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def add_logs(bundle: Bundle, paths: Iterable[Path]) -> None:
    """The end of each file: what happened last."""
    for number, path in enumerate(paths):
        try:
            with open(path, "rb") as file:
                file.seek(0, 2)
                size = file.tell()
                file.seek(max(0, size - LOG_BYTES_MAX))
                content = file.read(LOG_BYTES_MAX)
        except OSError as error:
            raise HeadraceError(f"{path} can't be read: {error.strerror}.") from error
        what = f"the log {path}" if size <= LOG_BYTES_MAX else f"the last {size_text(LOG_BYTES_MAX)} of the log {path}"
        bundle.add(f"logs/{number}-{path.name}", what, content)


def add_metrics(bundle: Bundle, address: str, name: str) -> None:
    """What /metrics says now, if it is of the cluster that the bundle is of."""
    try:
        text = read(address)
    except OSError as error:
        bundle.notes.append(f"No metrics from {address}: {getattr(error, 'reason', None) or error}")
        return
    others = cluster_ids(parse(text))
    if bundle.cluster_id and others and bundle.cluster_id not in others:
        told = f"{address} tells metrics of cluster {', '.join(sorted(others))}, and not of {bundle.cluster_id}"
        bundle.notes.append(f"{told}; they are left out. Say where the right ones are with --metrics HOST:PORT.")
        return
    bundle.add(name, f"metrics from {address}", text)


async def add_cluster(
    bundle: Bundle, client: Client, state: dict[str, Any], quorum: dict[str, Any] | None
) -> list[str]:
    """What the cluster says of itself: its state, its topics, the settings of its brokers. Where its metrics are."""
    from headrace.cli.connection import all_topics
    from headrace.cli.topic_view import topic_json, views
    from headrace.client import ConfigResource

    bundle.cluster_id = state["cluster_id"]
    bundle.add_json("cluster.json", "brokers, log directories, features, what is wrong", state)
    if quorum is not None:
        bundle.add_json("quorum.json", "the metadata quorum", quorum)
    shown = await views(client, await all_topics(client), in_full=True)
    bundle.add_json("topics.json", "topics: settings, partitions, offsets, sizes", [topic_json(view) for view in shown])
    metrics: list[str] = []
    for broker in state["brokers"]:
        resource = ConfigResource.broker(broker["broker"])
        try:
            entries = (await client.admin.describe_configs([resource]))[resource]
        except HeadraceError as error:
            bundle.notes.append(f"No settings of broker {broker['broker']}: {error}")
            continue
        told = {
            name: {
                "value": HIDDEN if entry.is_sensitive or is_secret(name) else entry.value,
                "source": entry.source.name.lower(),
            }
            for name, entry in sorted(entries.items())
        }
        name = f"settings/broker-{broker['broker']}.json"
        bundle.add_json(name, f"the settings of broker {broker['broker']}, without secrets", told)
        if listening := metrics_address(entries["http.listen"].value if "http.listen" in entries else None):
            metrics.append(listening)
    return metrics


def metrics_address(listening: str | None) -> str:
    """Where a node that listens so tells its metrics; empty where that is nowhere, or not known."""
    host, _, port = (listening or "").rpartition(":")
    if not port.isdecimal() or port == "0":
        return ""
    return f"127.0.0.1:{port}" if host in ("0.0.0.0", "[::]") else f"{host}:{port}"
