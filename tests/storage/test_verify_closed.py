"""Verifying after a clean stop of ours: what was cut or removed since is found, although what is left is sound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.storage.closed_logs import CLOSED_LOGS
from headrace.storage.inventory import take_inventory
from headrace.storage.verify import verify
from headrace.storage.verify_report import Problem, Severity
from headrace.testing.disk import FaultyDisk
from tests.storage.folders import cut, put
from tests.storage.nodes import TOPIC_ID, Node, fill
from tests.storage.test_clean_stop import disk_of

LAST = "t-0/00000000000000000024.log"
MIDDLE = "t-0/00000000000000000008.log"


def stopped() -> FaultyDisk:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 27)
    log.set_high_watermark(27)
    assert [segment.base_offset for segment in log.segments] == [0, 8, 16, 24]
    node.directories.create("empty", 0, TOPIC_ID)
    node.stop()
    return disk_of(node)


def problems(disk: FaultyDisk) -> list[Problem]:
    return [problem for report in verify(take_inventory(disk)) for problem in report.problems]


def one_batch_less(disk: FaultyDisk, path: str) -> None:
    cut(disk, path, disk.stat(path).size - disk.stat("t-0/00000000000000000024.log").size // 3)


def without_folder(disk: FaultyDisk) -> None:
    for name in disk.names("t-0"):
        disk.remove(f"t-0/{name}")
    disk.remove_directory("t-0")


def test_a_folder_that_is_as_it_was_left_is_sound() -> None:
    assert problems(stopped()) == []


@pytest.mark.parametrize(
    ("harm", "severity", "path", "what"),
    [
        (lambda disk: one_batch_less(disk, LAST), Severity.DAMAGE, LAST, "bytes less than when the node stopped"),
        (lambda disk: one_batch_less(disk, MIDDLE), Severity.DAMAGE, MIDDLE, "bytes less than when the node stopped"),
        (lambda disk: disk.remove(LAST), Severity.DAMAGE, LAST, "it is missing, and had"),
        (lambda disk: disk.remove(MIDDLE), Severity.DAMAGE, MIDDLE, "it is missing, and had"),
        (without_folder, Severity.DAMAGE, CLOSED_LOGS, "t-0 was there when the node stopped"),
        (
            lambda disk: disk.remove("recovery-point-offset-checkpoint"),
            Severity.REPAIRABLE,
            "recovery-point-offset-checkpoint",
            "it is missing",
        ),
        (
            lambda disk: put(disk, "replication-offset-checkpoint", b""),
            Severity.REPAIRABLE,
            "replication-offset-checkpoint",
            "it is empty",
        ),
        (
            lambda disk: disk.remove("t-0/partition.metadata"),
            Severity.REPAIRABLE,
            "t-0/partition.metadata",
            "it is missing",
        ),
        (
            lambda disk: cut(disk, "t-0/partition.metadata", 20),
            Severity.REPAIRABLE,
            "t-0/partition.metadata",
            "topic id",
        ),
        (lambda disk: disk.remove(CLOSED_LOGS), Severity.REPAIRABLE, CLOSED_LOGS, "is missing"),
        (lambda disk: put(disk, CLOSED_LOGS, b"spoilt"), Severity.REPAIRABLE, CLOSED_LOGS, "is damaged"),
        (
            lambda disk: put(disk, "t-0/00000000000000000027.log", b""),
            Severity.NOTE,
            "t-0/00000000000000000027.log",
            "it was not there when the node stopped",
        ),
    ],
)
def test_what_went_missing_since_a_clean_stop_is_told(
    harm: Callable[[FaultyDisk], None], severity: Severity, path: str, what: str
) -> None:
    disk = stopped()
    harm(disk)
    found = [problem for problem in problems(disk) if problem.path == path and what in problem.what]
    assert [problem.severity for problem in found] == [severity]


def test_a_log_cut_at_its_end_is_found_without_a_recovery_point() -> None:
    disk = stopped()
    disk.remove("recovery-point-offset-checkpoint")
    disk.remove(LAST)
    assert any("durable up to offset 27" in problem.what for problem in problems(disk))


def test_what_a_stop_before_a_crash_left_is_not_believed() -> None:
    """The node ran on and was killed: the files are not what the clean stop wrote down."""
    node = Node([stopped()])
    log = node.directories.log("t", 0)
    assert log is not None
    fill(log, 20)
    node.checkpoint()
    assert not [problem for problem in problems(disk_of(node)) if problem.severity is not Severity.NOTE]
