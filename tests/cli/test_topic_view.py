"""Topics of a cluster that has lost brokers: what nobody answers for is neither 0 nor left out."""

from __future__ import annotations

import pytest

from headrace.cli.cluster_view import Span, leader_sizes
from headrace.cli.topic_view import TopicView, print_list, print_topic, summary_json, topic_json
from headrace.client import PartitionInfo, TopicInfo
from headrace.client.admin import LogDirInfo, ReplicaInfo
from headrace.errors import Error

WELL = PartitionInfo(0, 1, 3, [1, 2], [1, 2], [])
BEHIND = PartitionInfo(1, 2, 3, [2, 3], [2], [3])
LOST = PartitionInfo(2, -1, 3, [3], [], [3])


def view(*partitions: PartitionInfo) -> TopicView:
    info = TopicInfo("orders", bytes(16), False, {partition.partition: partition for partition in partitions})
    led = [partition.partition for partition in partitions if partition.leader_id >= 0]
    return TopicView(
        info,
        spans={index: Span(5, 15) for index in led},
        sizes=dict.fromkeys(led, 100),
        newest_ms=dict.fromkeys(led, -1),
        configs=[],
    )


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ((WELL,), ["1", "2", "10", "100", "B", "ok"]),
        ((WELL, BEHIND), ["2", "2", "20", "200", "B", "1", "under-replicated"]),
        ((WELL, BEHIND, LOST), ["3", "2", "?", "?", "1", "offline"]),
    ],
)
def test_a_row_tells_the_worst_and_sums_what_is_whole(
    partitions: tuple[PartitionInfo, ...], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    print_list([view(*partitions)])
    assert capsys.readouterr().out.splitlines()[1].split() == ["orders", *expected]


def test_a_partition_that_nobody_leads_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    print_topic(view(WELL, BEHIND, LOST))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["newest", "?"] in lines
    assert ["all", "settings", "are", "at", "their", "defaults"] in lines
    assert lines[-3:] == [
        ["0", "1", "1,2", "1,2", "5", "15", "10", "100", "B", "-"],
        ["1", "2", "2,3", "2", "5", "15", "10", "100", "B", "-"],
        ["2", "none", "3", "none", "?", "?", "?", "?", "?"],
    ]


def test_json_has_null_for_what_is_not_known() -> None:
    found = view(WELL, LOST)
    assert (summary_json(found)["records"], summary_json(found)["size_bytes"]) == (None, None)
    assert (summary_json(found)["offline_partitions"], summary_json(found)["under_replicated_partitions"]) == ([2], [2])
    lost = topic_json(found)["partitions"][1]
    assert lost["leader"] is lost["start_offset"] is lost["records"] is lost["size_bytes"] is lost["newest_ms"] is None


def test_the_size_of_a_partition_is_the_leaders_and_not_that_of_a_copy_on_its_way() -> None:
    directories = [
        LogDirInfo(1, "/a", Error.NONE, -1, -1, [ReplicaInfo("orders", 0, 70, 0, False)]),
        LogDirInfo(1, "/b", Error.NONE, -1, -1, [ReplicaInfo("orders", 0, 30, 40, True)]),
        LogDirInfo(2, "/a", Error.NONE, -1, -1, [ReplicaInfo("orders", 0, 50, 20, False)]),
    ]
    assert leader_sizes([view(WELL, LOST).info], directories) == {("orders", 0): 70}
