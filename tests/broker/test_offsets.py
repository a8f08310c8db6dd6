"""ListOffsets and OffsetForLeaderEpoch, on real logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.config import LogConfig
from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.batch import HEADER_SIZE_BYTES, Batch
from headrace.protocol.compression import Compression
from headrace.storage.local_disk import LocalDisk
from tests.broker.fetching import Client, append
from tests.broker.test_fetch import ColdDisk
from tests.replica.hosts import NODE, Host, change
from tests.storage.batches import START_MS, batch

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


@pytest.fixture
def host() -> Host:
    host = Host()
    host.create(partitions=2)
    return host


@pytest.fixture
def client(host: Host) -> Client:
    return Client(host)


def asked(timestamp: int, index: int = 0, **more: Any) -> m.ListOffsetsRequest.ListOffsetsPartition:
    return m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp, **more)


def send(client: Client, *partitions: Any, version: int = 11, topic: str = "t", **more: Any) -> Any:
    more.setdefault("replica_id", -1)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=list(partitions))]
    return client.send(client.offsets.list, m.ListOffsetsRequest(topics=topics, **more), version)


def ask(client: Client, timestamp: int, version: int = 11, **more: Any) -> tuple[int, int, int]:
    """Timestamp, offset and epoch."""
    (topic,) = send(client, asked(timestamp), version=version, **more).take().topics
    (found,) = topic.partitions
    assert found.error_code == 0
    return found.timestamp, found.offset, found.leader_epoch


def refusal(client: Client, partition: Any, version: int = 11, **more: Any) -> Error:
    (topic,) = send(client, partition, version=version, **more).take().topics
    (found,) = topic.partitions
    assert (found.timestamp, found.offset) == (-1, -1)
    return Error(found.error_code)


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_tells_where_a_partition_begins_and_ends(host: Host, client: Client, version: int) -> None:
    append(host, b"a", b"b")
    append(host, b"c")
    host.partition().log.delete_before(1)
    epoch = 0 if version >= 4 else -1
    assert ask(client, LATEST, version) == (-1, 3, epoch)
    assert ask(client, EARLIEST, version) == (-1, 1, epoch)
    assert ask(client, START_MS + 1, version) == (START_MS + 1, 1, epoch)


def test_the_special_timestamps(host: Host, client: Client) -> None:
    append(host, b"a", b"b", timestamps=[START_MS, START_MS + 9])
    append(host, b"c", timestamps=[START_MS + 5])
    assert ask(client, MAX_TIMESTAMP) == (START_MS + 9, 1, 0)
    assert ask(client, EARLIEST_LOCAL) == (-1, 0, 0)
    assert ask(client, LATEST_TIERED) == (-1, -1, -1)
    assert ask(client, PENDING_UPLOAD) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING_UPLOAD, 10), (-7, 11)],
)
def test_a_special_timestamp_that_a_version_does_not_have_is_unsupported(
    client: Client, timestamp: int, version: int
) -> None:
    assert refusal(client, asked(timestamp), version) == Error.UNSUPPORTED_VERSION


def test_a_time_after_all_records_finds_nothing(host: Host, client: Client) -> None:
    assert ask(client, MAX_TIMESTAMP) == (-1, -1, -1)
    append(host, b"a")
    assert ask(client, START_MS + 1) == (-1, -1, -1)


def test_an_empty_partition_begins_and_ends_at_0(client: Client) -> None:
    assert ask(client, LATEST) == (-1, 0, 0)
    assert ask(client, EARLIEST) == (-1, 0, 0)


def test_readers_are_told_of_nothing_that_they_may_not_see(host: Host, client: Client) -> None:
    append(host, b"a")
    append(host, b"b", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    append(host, b"c", acks=-1, timestamps=[START_MS + 50])
    assert ask(client, LATEST)[1] == 2
    assert ask(client, LATEST, isolation_level=1)[1] == 1
    assert ask(client, LATEST, replica_id=-2)[1] == 3
    assert ask(client, START_MS + 50) == (-1, -1, -1)
    assert ask(client, START_MS + 50, replica_id=-2)[1] == 2
    host.drain()
    assert ask(client, START_MS + 50)[1] == 2
    assert ask(client, START_MS + 50, isolation_level=1) == (-1, -1, -1)


def test_a_new_leader_whose_high_watermark_is_behind_says_so(host: Host, client: Client) -> None:
    append(host, b"a", acks=-1)
    host.apply(change(leader=NODE))
    assert host.partition().leader_epoch_start_offset > host.partition().high_watermark
    assert refusal(client, asked(LATEST)) == Error.OFFSET_NOT_AVAILABLE
    assert refusal(client, asked(LATEST), 4) == Error.LEADER_NOT_AVAILABLE
    assert refusal(client, asked(START_MS)) == Error.OFFSET_NOT_AVAILABLE
    assert ask(client, EARLIEST)[1] == 0
    assert ask(client, LATEST, replica_id=-2)[1] == 1
    host.drain()
    assert ask(client, LATEST)[1] == 1


def test_a_wrong_partition_topic_or_epoch_is_told(host: Host, client: Client) -> None:
    assert refusal(client, asked(LATEST, 7)) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(client, asked(LATEST), topic="no") == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(client, asked(LATEST, current_leader_epoch=5)) == Error.UNKNOWN_LEADER_EPOCH
    host.apply(change(leader=2, isr=[2]))
    assert refusal(client, asked(LATEST, current_leader_epoch=0)) == Error.FENCED_LEADER_EPOCH
    assert refusal(client, asked(LATEST)) == Error.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_is_asked_for_twice_is_refused_once_and_others_are_not(client: Client) -> None:
    (topic,) = send(client, asked(LATEST), asked(EARLIEST), asked(LATEST, 1)).take().topics
    found = [(one.partition_index, one.error_code) for one in topic.partitions]
    assert found == [(0, Error.INVALID_REQUEST), (1, 0)]


def test_a_topic_that_stands_in_a_request_twice_is_answered_once(client: Client) -> None:
    kind = m.ListOffsetsRequest.ListOffsetsTopic
    topics = [kind(name="t", partitions=[asked(LATEST, index) for index in indexes]) for indexes in ((0,), (), (1, 0))]
    request = m.ListOffsetsRequest(topics=topics, replica_id=-1)
    (topic,) = client.send(client.offsets.list, request, 11).take().topics
    found = [(one.partition_index, one.error_code) for one in topic.partitions]
    assert found == [(0, Error.INVALID_REQUEST), (1, 0)]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_without_any_timestamp_the_first_record_is_the_latest(
    host: Host, client: Client, compression: Compression
) -> None:
    assert ask(client, MAX_TIMESTAMP) == (-1, -1, -1)
    for _ in range(3):
        append(host, b"a", b"b", timestamps=[-1, -1], compression=compression)
    assert ask(client, MAX_TIMESTAMP) == (-1, 0, 0)
    for start in (1, 4, 5):
        host.partition().log.delete_before(start)
        assert ask(client, MAX_TIMESTAMP) == (-1, start, 0)
    host.partition().log.delete_before(6)
    assert ask(client, MAX_TIMESTAMP) == (-1, -1, -1)


def test_when_all_that_had_a_timestamp_was_deleted_the_first_of_the_rest_is_the_latest(
    host: Host, client: Client
) -> None:
    append(host, b"a")
    append(host, b"b", b"c", timestamps=[-1, -1])
    host.partition().log.delete_before(1)
    assert ask(client, MAX_TIMESTAMP) == (-1, 1, 0)


def test_records_that_can_not_be_read_are_corrupt_and_no_news_for_the_operator(
    host: Host, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    content = batch(b"a" * 100, b"b" * 100, compression=Compression.GZIP)
    content[HEADER_SIZE_BYTES + 10 :] = bytes(len(content) - HEADER_SIZE_BYTES - 10)
    header = Batch(memoryview(content))
    header._set_attributes(header.attributes)  # which makes the CRC right again
    host.partition().append(memoryview(content), 1, host.now_ms())
    for timestamp in (START_MS + 1, MAX_TIMESTAMP):
        assert refusal(client, asked(timestamp)) is Error.CORRUPT_MESSAGE
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


def test_a_lookup_in_cold_data_leaves_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LocalDisk(str(tmp_path))
    host = Host([disk], config=LogConfig(segment_bytes=20_000, index_interval_bytes=4096, file_delete_delay_ms=0))
    host.create()
    for number in range(40):
        append(host, b"%04d" % number * 500, timestamps=[START_MS + number])
    host.drain()
    cold = ColdDisk(monkeypatch)
    client = Client(host)
    cold.is_cold = True
    reply = send(client, asked(LATEST), asked(EARLIEST, 5))
    assert reply.is_there
    reply = send(client, asked(START_MS + 21))
    assert not reply.is_there
    host.drain()
    assert reply.take().topics[0].partitions[0].offset == 21
    reply = send(client, asked(MAX_TIMESTAMP))
    host.drain()
    assert reply.take().topics[0].partitions[0].offset == 39
    host.replicas.stop()
    disk.close()


# ------------------------------------------------------------------------------------------------- OffsetForLeaderEpoch


def end_of(client: Client, epoch: int, version: int = 4, **more: Any) -> tuple[int, int, int]:
    partition = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, **more)
    topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[partition])
    body = m.OffsetForLeaderEpochRequest(topics=[topic])
    response = client.send(client.offsets.for_leader_epoch, body, version).take()
    (found,) = response.topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", range(2, 5))
def test_hazard_1_an_epoch_ends_where_the_next_begins(host: Host, client: Client, version: int) -> None:
    append(host, b"a", b"b")
    host.apply(change(leader=NODE))
    host.apply(change(leader=NODE))
    append(host, b"c")
    assert end_of(client, 0, version) == (0, 0, 2)
    assert end_of(client, 1, version) == (0, 0, 2)
    assert end_of(client, 2, version) == (0, 2, 3)
    assert end_of(client, 3, version) == (0, -1, -1)


def test_the_epoch_of_a_leader_without_records_ends_where_the_log_does(host: Host, client: Client) -> None:
    append(host, b"a")
    host.apply(change(leader=NODE))
    assert end_of(client, 1) == (0, 1, 1)


def test_hazard_2_who_knows_another_epoch_is_told(host: Host, client: Client) -> None:
    host.apply(change(leader=NODE))
    assert end_of(client, 0, current_leader_epoch=0)[0] == Error.FENCED_LEADER_EPOCH
    assert end_of(client, 0, current_leader_epoch=2)[0] == Error.UNKNOWN_LEADER_EPOCH
    host.apply(change(leader=2, isr=[2]))
    assert end_of(client, 0)[0] == Error.NOT_LEADER_OR_FOLLOWER
