"""`headrace doctor`: machines with something wrong, folders and settings of nodes, a real cluster, and the bundle."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.cli.doctor_bundle import is_secret, metrics_address
from headrace.cli.doctor_cluster import listener_findings
from headrace.cli.doctor_folder import file_system_of, folder_findings, holder
from headrace.cli.doctor_machine import Machine, machine_findings
from headrace.cli.doctor_settings import folders_of, settings_findings
from headrace.cli.findings import Finding, Level
from headrace.client import Node
from headrace.raft.metadata_log import format_voter
from headrace.raft.quorum import ReplicaKey, Voter, VoterSet
from headrace.storage.identity import MetaProperties
from headrace.storage.local_disk import LocalDisk
from tests.cli.other_node import metrics_of_another
from tests.cli.running import Cli

NOTHING: Mapping[str, str] = {}


class Planted(Machine):
    """A machine whose files are in a folder of the test, and whose kernel answers as told."""

    __slots__ = ("files", "synchronised")

    def __init__(
        self,
        root: Path,
        files: int = 100_000,
        synchronised: bool | None = True,
        texts: Mapping[str, str] = NOTHING,
    ) -> None:
        super().__init__(root)
        self.files = files
        self.synchronised = synchronised
        planted = {
            "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\nSwapTotal: 0 kB\n",
            "proc/sys/vm/swappiness": "60",
            "proc/sys/net/core/somaxconn": "4096",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
            **texts,
        }
        for name, text in planted.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def open_files(self) -> int:
        return self.files

    def is_clock_synchronised(self) -> bool | None:
        return self.synchronised


def by_what(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.what: finding for finding in findings}


def test_a_fit_machine_has_nothing_to_do(tmp_path: Path) -> None:
    found = by_what(list(machine_findings(Planted(tmp_path))))
    assert {what for what, finding in found.items() if finding.level is not Level.GOOD} <= {
        "python",
        "system",
        "compiled",
    }
    assert found["memory"].text == "7.6 GiB of 15.3 GiB available."
    assert found["swap"].text == "There is none."


def test_each_thing_that_is_wrong_with_a_machine_is_told_with_what_helps(tmp_path: Path) -> None:
    machine = Planted(
        tmp_path,
        files=1024,
        synchronised=False,
        texts={
            "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 100000 kB\nSwapTotal: 1000000 kB\n",
            "proc/sys/net/core/somaxconn": "128",
            "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
        },
    )
    found = by_what(list(machine_findings(machine)))
    expected = {
        "open files": (Level.WARNING, "LimitNOFILE=100000"),
        "memory": (Level.WARNING, "more memory"),
        "swap": (Level.WARNING, "vm.swappiness=1"),
        "backlog": (Level.NOTE, "net.core.somaxconn=4096"),
        "huge pages": (Level.NOTE, "madvise"),
        "clock": (Level.NOTE, "NTP"),
    }
    assert {what: found[what].level for what in expected} == {what: level for what, (level, _) in expected.items()}
    for what, (_, advice) in expected.items():
        assert advice in found[what].advice


def test_the_limit_of_a_container_counts_as_its_memory(tmp_path: Path) -> None:
    limits = {"sys/fs/cgroup/memory.max": str(300 << 20), "sys/fs/cgroup/memory.current": str(100 << 20)}
    found = by_what(list(machine_findings(Planted(tmp_path, texts=limits))))
    assert found["memory"].text == "200.0 MiB available, with a limit of 300.0 MiB for this container."
    assert found["memory"].level is Level.WARNING


def test_the_kernel_itself_can_be_asked() -> None:
    machine = Machine()
    assert machine.open_files() > 0
    assert machine.is_clock_synchronised() in (True, False, None)
    assert machine.text("/no/such/file") is None


# --- folders ----------------------------------------------------------------------------------------------------------

MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
28 27 0:25 / /mnt/a\\040b rw shared:1 - nfs4 server:/x rw
29 27 0:26 / /run rw - tmpfs tmpfs rw
"""


def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    assert file_system_of(Path("/srv/data"), MOUNTS) == "ext4"
    assert file_system_of(Path("/mnt/a b/data"), MOUNTS) == "nfs4"
    assert file_system_of(Path("/mnt/a bc"), MOUNTS) == "ext4"
    assert file_system_of(Path("/srv"), "") == ""


@pytest.mark.parametrize(
    ("kind", "level"), [("tmpfs", Level.WARNING), ("nfs4", Level.WARNING), ("overlay", Level.NOTE), ("xfs", Level.GOOD)]
)
def test_a_file_system_that_loses_data_is_told(tmp_path: Path, kind: str, level: Level) -> None:
    machine = Planted(tmp_path / "machine", texts={"proc/self/mountinfo": f"1 0 0:1 / / rw - {kind} none rw"})
    found = by_what(list(folder_findings(tmp_path, machine)))
    assert found["file system"].level is level
    assert found["file system"].text == f"{tmp_path} is on {kind}."


def test_a_folder_tells_whose_it_is_and_how_it_was_left(tmp_path: Path) -> None:
    machine = Planted(tmp_path / "machine")
    data = tmp_path / "data"
    assert by_what(list(folder_findings(data, machine)))["folder"].level is Level.NOTE
    data.mkdir()
    assert "identity" not in by_what(list(folder_findings(data, machine)))
    (data / "meta.properties").write_bytes(MetaProperties("AAAAAAAAAAAAAAAAAAAAAA", 7, bytes(15) + b"x").encode())
    (data / "orders-0").mkdir()
    found = by_what(list(folder_findings(data, machine)))
    assert found["identity"].text == "Node 7 of cluster AAAAAAAAAAAAAAAAAAAAAA."
    assert "not closed cleanly" in found["last stop"].text
    (data / "meta.properties").write_text("version=9\n")
    assert by_what(list(folder_findings(data, machine)))["identity"].level is Level.PROBLEM
    assert by_what(list(folder_findings(data / "meta.properties", machine)))["folder"].level is Level.PROBLEM


def test_to_look_whether_a_folder_is_in_use_takes_no_lock(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    lock = LocalDisk(str(tmp_path)).lock()
    assert holder(tmp_path) is None, "of this process itself"
    lock.release()
    LocalDisk(str(tmp_path)).lock().release()


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_read_as_a_node_reads_them(tmp_path: Path) -> None:
    toml, properties = tmp_path / "node.toml", tmp_path / "server.properties"
    properties.write_text("num.partitions=3\nlog.dirs : /srv/a,\\\n/srv/b\nzookeeper.connect=x\n")
    toml.write_text("num.partitions = 4\n[log]\nretention.hours = 24\n")
    config, findings = settings_findings(properties, toml, {"HEADRACE_LOG_RETENTION_HOURS": "48"})
    assert config is not None
    assert (config.topics.num_partitions, config.log.retention_ms) == (4, 48 * 3_600_000)
    assert folders_of(config) == [Path("/srv/a"), Path("/srv/b")]
    text = "A node starts with them; the note below says what is left out or has no effect."
    assert findings[0] == Finding(Level.GOOD, "settings", text)
    assert "zookeeper.connect is left out" in findings[1].text
    assert len(findings) == 2
    _, findings = settings_findings(None, toml, {"HEADRACE_LOG_DIRS": "/srv/a"})
    assert findings == [Finding(Level.GOOD, "settings", "A node takes all 3 of them.")]


def test_a_listener_on_all_addresses_is_told_as_that(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "listeners=OTHER://127.0.0.1:9093,PLAINTEXT://:9092\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092\n"
    )
    _, findings = settings_findings(properties, None, {})
    expected = "It listens on all addresses, and tells clients to come to localhost: each to its own machine."
    assert by_what(findings)["listeners"].text == expected


def test_a_folder_that_no_node_starts_on_is_told(tmp_path: Path) -> None:
    machine = Planted(tmp_path / "machine")
    identity = MetaProperties("AAAAAAAAAAAAAAAAAAAAAA", 1, bytes(15) + b"x")
    ours = Voter(ReplicaKey(1, bytes(15) + b"x"), ())
    other = Voter(ReplicaKey(2, bytes(15) + b"y"), ())
    for name, voters, expected in (
        ("none", [], "names no voters, as that of a Kafka which has them in controller.quorum.voters"),
        ("two", [ours, other], "has the voters 1, 2"),
        ("alone", [ours], None),
    ):
        data = tmp_path / name
        data.mkdir()
        (data / "meta.properties").write_bytes(identity.encode())
        format_voter(LocalDisk(str(data)), VoterSet(voters), now_ms=0)
        found = by_what(list(folder_findings(data, machine))).get("quorum")
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert found.level is Level.PROBLEM
            assert found.text.startswith(f"No node starts on it. The metadata log in {data}")
            assert expected in found.text


@pytest.mark.parametrize(
    ("text", "what", "level"),
    [
        ("num.partition=3", "settings", Level.PROBLEM),
        ("num.partitions=many", "settings", Level.PROBLEM),
        (
            "listeners=PLAINTEXT://192.0.2.1:9092\nadvertised.listeners=PLAINTEXT://localhost:9092",
            "listeners",
            Level.WARNING,
        ),
        ("log.retention.ms=-1", "retention", Level.NOTE),
        ("log.dirs=/tmp/data", "log.dirs", Level.WARNING),
    ],
)
def test_settings_that_are_wrong_or_risky_are_told(tmp_path: Path, text: str, what: str, level: Level) -> None:
    toml = tmp_path / "node.toml"
    lines = [line.partition("=") for line in text.splitlines()]
    toml.write_text("".join(f'"{name}" = "{value}"\n' for name, _, value in lines))
    _, findings = settings_findings(None, toml, {})
    assert by_what(findings)[what].level is level


# --- the command ------------------------------------------------------------------------------------------------------


def test_doctor_looks_at_a_running_cluster(cli: Cli, tmp_path: Path) -> None:
    told = cli("doctor", "--data", str(tmp_path), "--json")
    sections = told.json["sections"]
    assert list(sections) == ["machine", f"folder {tmp_path}", "cluster"]
    found = {finding["what"]: finding["level"] for finding in sections["cluster"]}
    assert {found[what] for what in ("reachable", "listener", "controller", "quorum")} == {"good"}
    assert told.code == (0 if told.json["ok"] else 1)
    shown = cli("doctor", "--data", str(tmp_path))
    assert f"is cluster {cli.done('cluster', 'describe', '--json').json['cluster_id']}." in shown.out
    assert shown.err == ""


def test_a_cluster_that_was_named_and_is_not_there_is_a_failure(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:  # bound, and nobody listens
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        told = cli("doctor", "--bootstrap", address, "--json")
        assert told.code == 1
        (finding,) = told.json["sections"]["cluster"]
        assert (finding["level"], finding["what"]) == ("problem", "reachable")
        assert "Start one with `headrace serve`" in finding["text"]
        assert "1 problem" in cli("doctor", "--bootstrap", address).out
    assert "cluster" not in cli("doctor", "--no-cluster", "--json").json["sections"]


def test_a_broker_that_says_it_is_where_nobody_can_be_is_explained() -> None:
    """To look such a name up raises no OSError."""
    node = Node(1, "kafka..example.net", 9092)
    (finding,) = asyncio.run(listener_findings([node]))
    assert finding.level is Level.PROBLEM
    assert "kafka..example.net:9092, and can't be reached there (there can be no such address)" in finding.text
    assert "set advertised.listeners" in finding.advice


def packed(path: Path) -> dict[str, str]:
    """The files of a bundle, by their names in it."""
    with tarfile.open(path) as archive:
        return {
            name.partition("/")[2]: file.read().decode()
            for name in archive.getnames()
            if (file := archive.extractfile(name)) is not None
        }


def test_a_bundle_has_what_somebody_who_helps_would_ask_for(cli: Cli, topic: str, tmp_path: Path) -> None:
    settings, log = tmp_path / "server.properties", tmp_path / "node.log"
    settings.write_text(f"log.dirs={tmp_path}\nssl.key.password=hunter2\n")
    log.write_text("it said this\n")
    path = tmp_path / "support.tar.gz"
    arguments = ("--bundle", str(path), "--properties", str(settings), "--log", str(log), "--metrics", "127.0.0.1:1")
    told = cli("doctor", *arguments)
    assert f"Wrote {path}" in told.out
    assert "No metrics from 127.0.0.1:1: " in told.out
    files = packed(path)
    assert {
        "README.txt",
        "versions.json",
        "findings.json",
        "cluster.json",
        "quorum.json",
        "topics.json",
    } <= files.keys()
    assert files["logs/0-node.log"] == "it said this\n"
    assert "hunter2" not in "".join(files.values())
    assert json.loads(files["settings/properties.json"]) == {
        "log.dirs": str(tmp_path),
        "ssl.key.password": "(left out)",
    }
    assert topic in {found["name"] for found in json.loads(files["topics.json"])}
    assert path.stat().st_mode & 0o077 == 0
    assert "is there already; name another file" in cli.failed("doctor", "--bundle", str(path))
    for name in files.keys() - {"README.txt"}:
        assert name in files["README.txt"]
        assert name in told.out


@pytest.mark.skipif("HEADRACE_COMPAT_BOOTSTRAP" in os.environ, reason="Kafka has no such port")
def test_a_bundle_has_the_metrics_of_its_own_cluster(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    cli("doctor", "--bundle", str(path))
    files = packed(path)
    cluster_id = json.loads(files["cluster.json"])["cluster_id"]
    assert f'cluster_id="{cluster_id}"' in files["metrics.txt"]
    other = tmp_path / "other.tar.gz"
    with metrics_of_another() as address:
        told = cli("doctor", "--bundle", str(other), "--metrics", address)
    note = f"{address} tells metrics of cluster another, and not of {cluster_id}"
    assert note in " ".join(told.out.split())
    files = packed(other)
    assert "metrics.txt" not in files
    assert note in files["README.txt"]


SECRET_PROPERTIES = """\
num.partitions=2
ssl.keystore.password=hunter2
ssl.key.password : hunter2
ssl.truststore.password hunter2
sasl.jaas.config=PlainLoginModule required \\
   username="admin" \\
   password="hunter2";
ssl.keystore.key=-----BEGIN PRIVATE KEY----- \\n\\
hunter2
confluent.license=hunter2
"""
SECRET_TOML = """\
num.partitions = 2
"ssl.keystore.password" = "hunter2"
[ssl]
key.password = "hunter2"
keystore = { key = "hunter2" }
[sasl]
jaas.config = \"""
password=hunter2
\"""
"""


def test_a_bundle_has_no_secret_however_its_file_spells_it(cli: Cli, tmp_path: Path) -> None:
    properties, toml, path = tmp_path / "server.properties", tmp_path / "node.toml", tmp_path / "support.tar.gz"
    properties.write_text(SECRET_PROPERTIES)
    toml.write_text(SECRET_TOML)
    cli("doctor", "--no-cluster", "--properties", str(properties), "--config", str(toml), "--bundle", str(path))
    files = packed(path)
    assert "hunter2" not in "".join(files.values())
    for name in ("properties", "toml"):
        told = json.loads(files[f"settings/{name}.json"])
        assert told.pop("num.partitions") == "2"
        assert "ssl.keystore.key" in told
        assert set(told.values()) == {"(left out)"}


def test_settings_that_no_node_can_read_are_left_out_of_a_bundle(cli: Cli, tmp_path: Path) -> None:
    toml, path = tmp_path / "node.toml", tmp_path / "support.tar.gz"
    toml.write_text('"ssl.key.password" = "hunter2\n')
    told = cli("doctor", "--no-cluster", "--config", str(toml), "--bundle", str(path))
    assert f"{toml} is left out: a node can't read it, as the findings say." in told.out
    files = packed(path)
    assert "hunter2" not in "".join(files.values())
    assert not [name for name in files if name.startswith("settings/")]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("--log", "x"), 2, "say --bundle FILE.tar.gz, too"),
        (("--bundle", "support.zip"), 2, "name it support.zip.tar.gz"),
        (("--bootstrap", "a:b"), 2, "write host:port"),
        (("--config", "/no/such/file"), 1, "No such file or directory"),
    ],
)
def test_doctor_used_wrongly(cli: Cli, arguments: tuple[str, ...], code: int, expected: str) -> None:
    assert expected in cli.failed("doctor", *arguments, code=code)


def test_where_metrics_are_follows_from_what_a_broker_listens_at() -> None:
    assert metrics_address("0.0.0.0:9000") == "127.0.0.1:9000"
    assert metrics_address("192.0.2.1:9000") == "192.0.2.1:9000"
    assert [metrics_address(text) for text in (None, "", "off", "auto", "127.0.0.1:0")] == [""] * 5


def test_secrets_are_told_by_their_names() -> None:
    for name in ("ssl.keystore.password", "sasl.jaas.config", "aws.secret.access.key", "API_KEY", "auth-token"):
        assert is_secret(name)
    for name in ("log.dirs", "key.converter", "segment.bytes", "ssl.keystore.location"):
        assert not is_secret(name)
