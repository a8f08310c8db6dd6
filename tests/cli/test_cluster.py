"""`headrace cluster` and `headrace quorum`: a real node, and clusters that have something wrong with them."""

from __future__ import annotations

import pytest

from headrace.cli.cluster import print_state
from headrace.cli.cluster_state import ClusterState, cluster_findings
from headrace.cli.findings import Finding, Level, is_wrong, print_findings
from headrace.client import ClusterInfo, Node, PartitionInfo, TopicInfo
from headrace.client.admin import LogDirInfo, QuorumInfo, QuorumReplica
from headrace.errors import Error, HeadraceError, Refused
from tests.cli.running import Cli


def test_describe_shows_the_brokers_and_that_nothing_is_wrong(cli: Cli, topic: str) -> None:
    told = cli.done("cluster", "describe", "--json").json
    (broker,) = told["brokers"]
    assert f"{broker['host']}:{broker['port']}" == cli.bootstrap
    assert (broker["fenced"], told["controller"]) == (False, broker["broker"])
    assert told["partitions"] >= 3
    (directory,) = broker["log_dirs"]
    assert directory["error"] is None
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    assert {finding["level"] for finding in told["findings"] if finding["what"] != "disk"} == {"good"}
    shown = cli.done("cluster", "describe").out
    assert shown.startswith(f"cluster {told['cluster_id']}\n")
    assert f"  {cli.bootstrap}  " in shown


def test_features_have_levels(cli: Cli) -> None:
    told = cli.done("cluster", "features", "--json").json
    (version,) = [feature for feature in told["features"] if feature["name"] == "metadata.version"]
    assert version["supported_min"] <= version["level"] <= version["supported_max"]
    assert cli.done("cluster", "features").rows[0] == ["feature", "level", "supported"]


def test_quorum_describe_names_the_leader(cli: Cli) -> None:
    told = cli.done("quorum", "describe", "--json").json
    (leader,) = [replica for replica in told["replicas"] if replica["role"] == "leader"]
    assert (leader["node"], leader["lag"]) == (told["leader"], 0)
    assert told["high_watermark"] > 0
    shown = cli.done("quorum", "describe")
    assert shown.out.startswith("metadata quorum of cluster ")
    assert [str(told["leader"]), "leader"] in [row[:2] for row in shown.rows]


# --- what is wrong ----------------------------------------------------------------------------------------------------


def state(**changes: object) -> ClusterState:
    """A cluster of two brokers with nothing wrong."""
    nodes = [Node(1, "a", 9092), Node(2, "b", 9092)]
    partition = PartitionInfo(0, 1, 0, [1, 2], [1, 2], [])
    made = ClusterState(
        ClusterInfo("id", 1, nodes),
        {"orders": TopicInfo("orders", bytes(16), False, {0: partition})},
        [LogDirInfo(1, "/data", Error.NONE, 100, 80), LogDirInfo(2, "/data", Error.NONE, 100, 80)],
        {},
        None,
        QuorumInfo(1, 1, 10, [QuorumReplica(1, bytes(16), 10, -1, -1)], [], {}),
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def wrong(of: ClusterState) -> list[Finding]:
    return [finding for finding in cluster_findings(of) if finding.level is not Level.GOOD]


def test_a_sound_cluster_has_nothing_wrong() -> None:
    assert wrong(state()) == []


@pytest.mark.parametrize(
    ("changes", "level", "text", "advice"),
    [
        (
            {"offline": [("orders", 0)]},
            Level.PROBLEM,
            "1 partition without a leader: orders-0.",
            "topic describe orders",
        ),
        (
            {"under_replicated": [("orders", n) for n in range(7)]},
            Level.WARNING,
            "7 partitions under-replicated: orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more.",
            "topic describe orders",
        ),
        ({"elsewhere": [("orders", 0)]}, Level.NOTE, "another broker than the preferred one: orders-0.", "by itself"),
        (
            {"directories": [LogDirInfo(1, "/data", Error.KAFKA_STORAGE_ERROR)]},
            Level.PROBLEM,
            "/data of broker 1 is offline (KAFKA_STORAGE_ERROR).",
            "Look at the disk",
        ),
        (
            {"directories": [LogDirInfo(1, "/data", Error.NONE, 100, 4)]},
            Level.PROBLEM,
            "4 B of 100 B free (4%)",
            "size",
        ),
        (
            {"directories": [LogDirInfo(1, "/data", Error.NONE, 100, 14)]},
            Level.WARNING,
            "free (14%)",
            "retention.bytes",
        ),
        ({"silent": {2: HeadraceError("No answer.")}}, Level.WARNING, "No answer.", "headrace doctor"),
        (
            {"silent": {2: Refused(Error.UNSUPPORTED_VERSION, "b does not serve it.")}},
            Level.NOTE,
            "can't tell how large its data is",
            "",
        ),
        ({"info": ClusterInfo("id", 1, [Node(2, "b", 1)], [2])}, Level.PROBLEM, "not in service", "Start it"),
        ({"quorum": None, "quorum_failure": "Nobody knows."}, Level.NOTE, "It is not told: Nobody knows.", ""),
        (
            {
                "quorum": QuorumInfo(
                    1, 1, 10, [QuorumReplica(1, b"", 9000, 1, 1), QuorumReplica(2, b"", 5, 1, 1)], [], {}
                )
            },
            Level.WARNING,
            "Voters that are behind or silent: 2.",
            "headrace quorum describe",
        ),
    ],
)
def test_what_is_wrong_is_told_with_what_helps(
    changes: dict[str, object], level: Level, text: str, advice: str
) -> None:
    (finding,) = wrong(state(**changes))
    assert finding.level is level
    assert text in finding.text
    assert advice in finding.advice


def test_directories_on_one_disk_are_not_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    made = [LogDirInfo(1, "/data/a", Error.NONE, 100, 80), LogDirInfo(1, "/data/b", Error.NONE, 100, 79)]
    print_state(state(directories=[*made, LogDirInfo(2, "/data", Error.NONE, 100, 50)]))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["1", "a:9092", "-", "ok", "1", "0", "0", "B", "at", "least", "79", "B", "(79%)"] in rows
    assert ["2", "b:9092", "-", "ok", "0", "0", "0", "B", "50", "B", "(50%)"] in rows
    assert ["1", "/data/a", "ok", "0", "0", "B", "80", "B", "(80%)"] in rows
    assert ["1", "/data/b", "ok", "0", "0", "B", "79", "B", "(79%)"] in rows


def test_one_directory_a_broker_needs_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_state(state())
    assert "/data" not in capsys.readouterr().out


def test_a_quorum_without_a_leader_is_two_problems() -> None:
    found = wrong(state(quorum=QuorumInfo(-1, 1, 10, [], [], {})))
    assert [finding.what for finding in found] == ["controller", "quorum"]


def test_findings_are_aligned_and_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [
        Finding(Level.GOOD, "disk", "There is room."),
        Finding(Level.PROBLEM, "listener", "word " * 40, "Do `this and that` at once."),
    ]
    print_findings(findings)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  ok    disk      There is room."
    assert lines[1].startswith("  FAIL  listener  word word")
    assert all(line.startswith(" " * 18) and len(line) <= 120 for line in lines[2:])
    assert lines[-1].strip() == "Do `this and that` at once."
    assert is_wrong(findings)
    assert not is_wrong(findings[:1])
