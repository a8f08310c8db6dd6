"""A metadata log that Apache Kafka wrote is read, led and appended to."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import ProtocolError
from headrace.protocol.batch import scan
from headrace.protocol.messages import TopicRecord
from headrace.raft.checkpoints import Snapshot, metadata_records
from headrace.raft.metadata_log import FOLDER, open_metadata_log
from headrace.raft.node import History, Node, Timing
from headrace.raft.quorum import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from headrace.raft.quorum_state import read_quorum_state
from headrace.storage.flush import DirectFlusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.testing.disk import FaultyDisk

KAFKA = Path(__file__).parents[1] / "fixtures" / "kafka"


def copied() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory(FOLDER)
    for file in sorted((KAFKA / FOLDER).iterdir()):
        disk.replace(f"{FOLDER}/{file.name}", file.read_bytes())
    return disk


def test_a_static_quorum_of_kafka_goes_on_here() -> None:
    disk = copied()
    voters = VoterSet([Voter(ReplicaKey(1))])
    opened = open_metadata_log(
        disk, DirectFlusher(disk), handles=Handles(10), indexes=IndexCache(1 << 20), now_ms=0, voters=voters
    )
    history: History = opened.history
    assert history.end.epoch == 2
    node = Node(
        ReplicaKey(1, b"d" * 16),
        cluster_id=None,
        state=read_quorum_state(disk, f"{FOLDER}/quorum-state"),
        history=history,
        timing=Timing(),
        jitter_ms=lambda most_ms: 0,
    )
    node.start(0)
    assert node.is_leader
    assert node.epoch == 3


def test_the_records_of_a_snapshot_of_kafka_are_read() -> None:
    snapshot = Snapshot(OffsetAndEpoch(0, 0), (KAFKA / "bootstrap.checkpoint").read_bytes(), "bootstrap.checkpoint")
    names = [type(record[0]).__name__ for batch in snapshot.batches() for record in batch]
    assert set(names) == {"FeatureLevelRecord"}
    assert snapshot.voters is None


def test_the_records_of_a_log_of_kafka_are_read() -> None:
    content = (KAFKA / FOLDER / "00000000000000000000.log").read_bytes()
    topics = []
    for batch in scan(content):
        try:
            topics += [record.name for record, _ in metadata_records(batch) if isinstance(record, TopicRecord)]
        except ProtocolError as error:  # it was written by a later Kafka
            assert "has versions" in str(error)
    assert "transactions" in topics
