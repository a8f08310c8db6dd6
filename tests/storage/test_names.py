"""The names of Kafka's files and folders, written and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.storage import names
from headrace.storage.names import Fate, Folder, SegmentFile

KAFKA = Path(__file__).parents[1] / "fixtures" / "kafka"


def test_every_file_of_a_real_kafka_is_known() -> None:
    for path in KAFKA.glob("*-0/*"):
        if path.name in (names.EPOCHS, names.PARTITION_METADATA, "quorum-state"):
            continue
        found = names.parse_segment_file(path.name)
        assert found is not None, path
        assert names.segment_name(found.base_offset) + found.suffix + found.mark == path.name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("00000000000000000123.log", SegmentFile(123, ".log", "")),
        ("00000000000000000123.timeindex.deleted", SegmentFile(123, ".timeindex", ".deleted")),
        ("00000000000000000123.log.swap", SegmentFile(123, ".log", ".swap")),
        ("123.log", None),
        ("00000000000000000123.lag", None),
        ("leader-epoch-checkpoint", None),
    ],
)
def test_segment_files(name: str, found: SegmentFile | None) -> None:
    assert names.parse_segment_file(name) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("t-0", Folder("t", 0)),
        ("my-topic.with-dashes-12", Folder("my-topic.with-dashes", 12)),
        ("t-1." + "0af9" * 8 + "-delete", Folder("t", 1, Fate.DELETE)),
        ("t-1." + "0af9" * 8 + "-future", Folder("t", 1, Fate.FUTURE)),
        ("t-1." + "0af9" * 8 + "-stray", Folder("t", 1, Fate.STRAY)),
        ("t-delete", None),
        ("t-1.0af9-delete", None),
        ("lost+found", None),
    ],
)
def test_folders(name: str, found: Folder | None) -> None:
    assert names.parse_folder(name) == found


def test_the_folder_of_a_long_topic_name_is_cut_to_what_a_file_system_takes() -> None:
    topic = "t" * 249
    name = names.marked_folder_name(topic, 12345, Fate.DELETE, "ab" * 16)
    assert len(name) == 255
    found = names.parse_folder(name)
    assert found is not None
    assert found.fate is Fate.DELETE
