"""Checkpoints, meta.properties, partition.metadata and the marker of a clean stop: Kafka's text, clear sentences."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.checkpoint import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CheckpointDamaged,
    read_numbers,
    read_offsets,
    write_numbers,
    write_offsets,
)
from headrace.storage.clean_shutdown import CLEAN_SHUTDOWN, take_clean_shutdown, write_clean_shutdown
from headrace.storage.disk import DiskFull, SyncFailed
from headrace.storage.identity import (
    META_PROPERTIES,
    MetaProperties,
    WrongDirectory,
    id_text,
    parse_id,
    read_topic_id,
)
from headrace.storage.local_disk import LocalDisk
from headrace.storage.partition_folder import put_topic_id
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter

KAFKA = Path(__file__).parent.parent / "fixtures" / "kafka"
DIRECTORY_ID = bytes(range(16))

needs_kafka = pytest.mark.skipif(not KAFKA.exists(), reason="no folders of a real Kafka")


# Checkpoints


def test_a_checkpoint_is_a_version_a_count_and_lines() -> None:
    disk = FaultyDisk()
    write_offsets(disk, RECOVERY_POINTS, {("orders", 1): 42, ("orders", 0): 7, ("__consumer_offsets", 49): 0})
    assert disk.read(RECOVERY_POINTS) == b"0\n3\n__consumer_offsets 49 0\norders 0 7\norders 1 42\n"


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[\w.-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)
    )
)
def test_a_checkpoint_reads_back(offsets: dict[tuple[str, int], int]) -> None:
    disk = FaultyDisk()
    write_offsets(disk, LOG_STARTS, offsets)
    assert read_offsets(disk, LOG_STARTS) == offsets


def test_a_missing_or_empty_checkpoint_says_nothing() -> None:
    disk = FaultyDisk()
    assert read_offsets(disk, HIGH_WATERMARKS) == {}
    disk.replace(HIGH_WATERMARKS, b"")
    assert read_offsets(disk, HIGH_WATERMARKS) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0",
        b"0\n",
        b"0\n2\nt 0 1\n",
        b"0\nx\nt 0 1\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 1 2\n",
        b"0\n1\nt zero 1\n",
        b"0\n1\nt 0 -1\n",
        b"0\n1\n\n",
        b"\xff\xfe0\n",
        bytes(40),
    ],
)
def test_a_damaged_checkpoint_is_a_sentence_with_its_path(content: bytes) -> None:
    disk = FaultyDisk()
    disk.replace(RECOVERY_POINTS, content)
    with pytest.raises(CheckpointDamaged, match="^/disk/recovery-point-offset-checkpoint is damaged: .*; what it said"):
        read_offsets(disk, RECOVERY_POINTS)


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_crash_while_a_checkpoint_is_written_leaves_the_old_one_or_the_new_one(seed: int, call: int) -> None:
    disk = FaultyDisk(Platter(seed))
    write_numbers(disk, "epochs", [(1, 10)])
    disk.faults.crash_at_call = disk.calls + call
    try:
        write_numbers(disk, "epochs", [(1, 10), (2, 20)])
        expected = ([(1, 10), (2, 20)],)
    except Crash:
        expected = ([(1, 10)], [(1, 10), (2, 20)])  # type: ignore[assignment]
    assert read_numbers(disk.restart(power_lost=True), "epochs") in expected


def test_a_checkpoint_on_a_full_disk_keeps_the_old_one() -> None:
    disk = FaultyDisk()
    write_numbers(disk, "epochs", [(1, 10)])
    disk.faults.capacity_bytes = 10
    with pytest.raises(DiskFull):
        write_numbers(disk, "epochs", [(1, 10), (2, 20)])
    assert read_numbers(disk, "epochs") == [(1, 10)]


@needs_kafka
def test_the_checkpoints_of_a_real_kafka_are_read() -> None:
    disk = LocalDisk(str(KAFKA))
    ends = read_offsets(disk, RECOVERY_POINTS)
    assert read_offsets(disk, HIGH_WATERMARKS) == ends
    assert ("plain", 0) in ends
    assert set(read_offsets(disk, CLEANED)) == {("compacted", 0)}
    assert read_offsets(disk, LOG_STARTS) == {}
    epochs = read_numbers(disk, "plain-0/leader-epoch-checkpoint")
    assert epochs[0] == (0, 0)
    scratch = FaultyDisk()
    write_numbers(scratch, "epochs", epochs)
    assert scratch.read("epochs") == disk.read("plain-0/leader-epoch-checkpoint")


# meta.properties


def test_meta_properties_read_back_and_look_like_kafkas() -> None:
    disk = FaultyDisk()
    meta = MetaProperties("r5_zfwrLRzCI6ogNZMTFdA", 3, DIRECTORY_ID)
    meta.write(disk)
    assert disk.read(META_PROPERTIES).decode().splitlines() == [
        "#",
        "version=1",
        "cluster.id=r5_zfwrLRzCI6ogNZMTFdA",
        "node.id=3",
        "directory.id=AAECAwQFBgcICQoLDA0ODw",
    ]
    assert MetaProperties.read(disk) == meta


@needs_kafka
def test_the_meta_properties_of_a_real_kafka_are_read() -> None:
    meta = MetaProperties.read(LocalDisk(str(KAFKA)))
    assert meta is not None
    assert meta.node_id == 1
    assert len(parse_id(meta.cluster_id)) == 16
    assert meta.directory_id is not None
    assert len(meta.directory_id) == 16


def test_java_writes_properties_in_other_ways_too() -> None:
    disk = FaultyDisk()
    disk.replace(META_PROPERTIES, b"# comment\n! another\n\n  version = 1\nnode.id:7\ncluster.id my\\:cluster\\=x\n")
    assert MetaProperties.read(disk) == MetaProperties("my:cluster=x", 7, None)


def test_a_folder_that_nobody_formatted_has_none() -> None:
    assert MetaProperties.read(FaultyDisk()) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"broker.id=1\n", "version 0, and only version 1 can be read"),
        (b"version=2\n", "version 2"),
        (b"version=1\nnode.id=1\n", "has no cluster.id"),
        (b"version=1\ncluster.id=c\n", "has no node.id"),
        (b"version=1\ncluster.id=c\nnode.id=one\n", "is damaged"),
        (b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n", "is no id"),
        (b"\xff\xfe", "not text"),
    ],
)
def test_meta_properties_that_can_not_be_understood_are_a_sentence(content: bytes, sentence: str) -> None:
    disk = FaultyDisk()
    disk.replace(META_PROPERTIES, content)
    with pytest.raises(WrongDirectory, match=rf"^/disk/meta\.properties .*{sentence}"):
        MetaProperties.read(disk)


def test_a_folder_of_another_cluster_or_node_is_refused() -> None:
    disk = FaultyDisk()
    meta = MetaProperties("ours", 1)
    meta.check(disk, cluster_id="ours", node_id=1)
    with pytest.raises(WrongDirectory, match="/disk belongs to cluster ours, and this node to cluster theirs; choose"):
        meta.check(disk, cluster_id="theirs", node_id=1)
    with pytest.raises(WrongDirectory, match="/disk belongs to node 1, and this is node 2; .* set node.id=1"):
        meta.check(disk, cluster_id="ours", node_id=2)


# partition.metadata


def test_partition_metadata_holds_the_topic_id() -> None:
    disk = FaultyDisk()
    disk.make_directory("t-0")
    assert read_topic_id(disk, "t-0") is None
    put_topic_id(disk, "t-0", DIRECTORY_ID)
    assert disk.read("t-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_topic_id(disk, "t-0") == DIRECTORY_ID


@needs_kafka
def test_the_topic_ids_of_a_real_kafka_are_read_and_written_byte_for_byte() -> None:
    disk = LocalDisk(str(KAFKA))
    topic_id = read_topic_id(disk, "plain-0")
    assert topic_id is not None
    scratch = FaultyDisk()
    scratch.make_directory("t-0")
    put_topic_id(scratch, "t-0", topic_id)
    assert scratch.read("t-0/partition.metadata") == disk.read("plain-0/partition.metadata")


@pytest.mark.parametrize("content", [b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\ntopic_id: x"])
def test_damaged_partition_metadata_is_a_sentence(content: bytes) -> None:
    disk = FaultyDisk()
    disk.make_directory("t-0")
    disk.replace("t-0/partition.metadata", content)
    with pytest.raises(WrongDirectory, match=r"^/disk/t-0/partition\.metadata is damaged"):
        read_topic_id(disk, "t-0")


@given(st.binary(min_size=16, max_size=16))
def test_an_id_reads_back_from_its_text(id: bytes) -> None:
    assert len(id_text(id)) == 22
    assert parse_id(id_text(id)) == id


# The marker of a clean stop


def test_a_clean_stop_counts_once() -> None:
    disk = FaultyDisk()
    assert take_clean_shutdown(disk) is None
    write_clean_shutdown(disk, 54)
    assert disk.read(CLEAN_SHUTDOWN) == b'{"version":0,"brokerEpoch":54}'
    assert take_clean_shutdown(disk) == (54, None)
    assert take_clean_shutdown(disk.restart(power_lost=True)) is None


@needs_kafka
def test_the_marker_of_a_real_kafka_is_the_same() -> None:
    theirs = (KAFKA / CLEAN_SHUTDOWN).read_bytes()
    disk = FaultyDisk()
    disk.replace(CLEAN_SHUTDOWN, theirs)
    shutdown = take_clean_shutdown(disk)
    assert shutdown is not None
    write_clean_shutdown(disk, shutdown.broker_epoch)
    assert disk.read(CLEAN_SHUTDOWN) == theirs


def test_an_empty_marker_is_an_old_kafkas_and_a_damaged_one_is_an_unclean_stop() -> None:
    disk = FaultyDisk()
    disk.replace(CLEAN_SHUTDOWN, b"")
    assert take_clean_shutdown(disk) == (-1, None)
    for content in (b'{"version":0,"brok', b"[]", b'{"version":0}', b"\xff", b'{"brokerEpoch":"x"}'):
        disk.replace(CLEAN_SHUTDOWN, content)
        assert take_clean_shutdown(disk) is None


def test_hazard_8_after_a_failed_sync_no_clean_stop_is_written() -> None:
    disk = FaultyDisk(faults=Faults(fail_sync_at=1))
    file = disk.open("a.log", create=True)
    file.write(0, [b"acknowledged"])
    with pytest.raises(SyncFailed):
        file.datasync()
    with pytest.raises(SyncFailed):
        write_clean_shutdown(disk, 1)
    assert take_clean_shutdown(disk.restart()) is None
