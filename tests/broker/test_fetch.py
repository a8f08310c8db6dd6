"""Fetch, on real logs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.fetch import LOOK_MS
from headrace.config import LogConfig
from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.control import build_marker
from headrace.storage.disk import FileVanished
from headrace.storage.local_disk import LocalDisk, LocalFile
from headrace.storage.producer_state import Origin
from tests.broker.fetching import Client, append, fetch_request, offsets_in, only, wanted
from tests.replica.hosts import NODE, TOPIC_ID, Host, change
from tests.storage.batches import batch

VERSIONS = range(4, 19)


@pytest.fixture
def host() -> Host:
    host = Host()
    host.create(partitions=3)
    return host


@pytest.fixture
def client(host: Host) -> Client:
    return Client(host)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_records_from_an_offset_on(host: Host, client: Client, version: int) -> None:
    append(host, b"a", b"b")
    append(host, b"c")
    data = only(client.fetch(wanted(2), version=version).take())
    assert (data.error_code, data.high_watermark, offsets_in(data)) == (0, 3, [2])
    assert data.preferred_read_replica == -1
    assert data.log_start_offset == (0 if version >= 5 else -1)


def test_a_fetch_at_the_end_waits_for_a_record(host: Host, client: Client) -> None:
    reply = client.fetch(wanted(0), max_wait_ms=500)
    assert not reply.is_there
    append(host, b"a")
    assert offsets_in(only(reply.take())) == [0]
    host.loop.pass_ms(1000)
    assert len(client.connection.slots) == 1


def test_a_fetch_that_waits_in_vain_gets_nothing_in_the_end(host: Host, client: Client) -> None:
    reply = client.fetch(wanted(0), max_wait_ms=500)
    host.loop.pass_ms(499)
    assert not reply.is_there
    host.loop.pass_ms(2)
    assert only(reply.take()).records == b""


def test_a_fetch_that_does_not_wait_gets_what_there_is(client: Client) -> None:
    assert only(client.fetch(wanted(0), max_wait_ms=0).take()).records == b""


def test_a_fetch_waits_for_min_bytes_over_all_partitions(host: Host, client: Client) -> None:
    reply = client.fetch(wanted(0), wanted(0, 1), max_wait_ms=500, min_bytes=150)
    size_bytes = append(host, b"a")
    assert size_bytes < 150
    assert not reply.is_there
    while size_bytes < 150:
        size_bytes += append(host, b"a", index=1)
    (topic,) = reply.take().responses
    assert offsets_in(topic.partitions[0]) == [0]
    assert sum(len(data.records) for data in topic.partitions) == size_bytes


def test_what_is_left_out_of_a_large_batch_counts_for_min_bytes(host: Host, client: Client) -> None:
    """It is there, and within the limit: whoever waited for it to come would wait in vain."""
    size_bytes = append(host, b"x" * 10_000)
    append(host, b"x" * 10_000)
    append(host, b"x" * 10_000)
    limit_bytes = size_bytes * 8 // 5
    data = only(client.fetch(wanted(1, max_bytes=limit_bytes), max_wait_ms=500, min_bytes=limit_bytes).take())
    assert offsets_in(data) == [1]
    assert len(data.records or b"") == size_bytes


def test_what_is_promised_to_be_on_the_disk_is_seen_when_it_is(host: Host, client: Client) -> None:
    append(host, b"a", acks=-1)
    reply = client.fetch(wanted(0), max_wait_ms=500)
    assert not reply.is_there
    host.drain()
    assert offsets_in(only(reply.take())) == [0]


def test_the_first_batch_comes_whole_however_large(host: Host, client: Client) -> None:
    append(host, b"x" * 5000)
    append(host, b"y" * 5000, index=1)
    (topic,) = client.fetch(wanted(0, max_bytes=10), wanted(0, 1), max_bytes=100).take().responses
    assert [offsets_in(data) for data in topic.partitions] == [[0], []]
    assert topic.partitions[1].records == b""
    assert topic.partitions[1].high_watermark == 1


def test_a_partition_gives_no_more_than_its_limit(host: Host, client: Client) -> None:
    size_bytes = append(host, b"x" * 1000)
    for _ in range(9):
        append(host, b"x" * 1000)
    data = only(client.fetch(wanted(0, max_bytes=size_bytes * 3)).take())
    assert offsets_in(data) == [0, 1, 2]


def test_a_reply_gives_no_more_than_the_broker_allows(host: Host) -> None:
    client = Client(host, max_bytes=3000)
    for index in (0, 1, 2):
        for _ in range(2):
            append(host, b"x" * 1000, index=index)
    (topic,) = client.fetch(*(wanted(0, index) for index in (0, 1, 2))).take().responses
    assert [len(offsets_in(data)) for data in topic.partitions] == [2, 0, 0]


@pytest.mark.parametrize("offset", [-1, 3, 2**40])
def test_an_offset_that_is_not_there_is_out_of_range(host: Host, client: Client, offset: int) -> None:
    append(host, b"a", b"b")
    data = only(client.fetch(wanted(offset), max_wait_ms=500).take())
    assert (data.error_code, data.high_watermark) == (Error.OFFSET_OUT_OF_RANGE, -1)


def test_an_offset_between_high_watermark_and_end_is_in_range(host: Host, client: Client) -> None:
    append(host, b"a", b"b", acks=-1)
    data = only(client.fetch(wanted(1)).take())
    assert (data.error_code, data.high_watermark, data.records) == (0, 0, b"")


def test_an_old_leader_epoch_is_fenced_and_a_new_one_unknown(host: Host, client: Client) -> None:
    host.apply(change(leader=NODE))
    epoch = host.partition().leader_epoch
    assert epoch == 1
    assert only(client.fetch(wanted(0, current_leader_epoch=0)).take()).error_code == Error.FENCED_LEADER_EPOCH
    assert only(client.fetch(wanted(0, current_leader_epoch=2)).take()).error_code == Error.UNKNOWN_LEADER_EPOCH
    assert only(client.fetch(wanted(0, current_leader_epoch=1)).take()).error_code == 0


@pytest.mark.parametrize("epoch", [-1, -2, -(2**31)])
def test_a_negative_leader_epoch_is_none_as_in_kafka(host: Host, client: Client, epoch: int) -> None:
    host.apply(change(leader=NODE))
    append(host, b"a")
    assert offsets_in(only(client.fetch(wanted(0, current_leader_epoch=epoch)).take())) == [0]


def test_a_fenced_reader_is_told_who_leads(host: Host, client: Client) -> None:
    host.apply(
        m.RegisterBrokerRecord(
            broker_id=NODE,
            broker_epoch=1,
            end_points=[
                m.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="here", port=9, security_protocol=0)
            ],
        ),
        change(leader=NODE),
    )
    response = client.fetch(wanted(0, current_leader_epoch=0), version=16).take()
    leader = only(response).current_leader
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (NODE, 1)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(NODE, "here", 9)]
    assert only(client.fetch(wanted(0, current_leader_epoch=0), version=15).take()).current_leader is None


def test_a_waiting_fetch_is_answered_when_the_leader_changes(host: Host, client: Client) -> None:
    reply = client.fetch(wanted(0), max_wait_ms=10_000)
    host.apply(change(leader=2, isr=[2]))
    assert only(reply.take()).error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_a_topic_without_a_name_is_unknown_by_name_in_versions_without_ids(client: Client) -> None:
    topics = [m.FetchRequest.FetchTopic(topic="", partitions=[wanted(0)])]
    reply = client.send(client.handler.handle, m.FetchRequest(topics=topics, max_wait_ms=0), 12)
    assert only(reply.take()).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_fetch_is_answered_when_the_topic_is_deleted(host: Host, client: Client) -> None:
    reply = client.fetch(wanted(0), max_wait_ms=10_000)
    host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    assert only(reply.take()).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_hazard_2_a_reader_of_a_lost_epoch_is_told_where_it_diverged(host: Host, client: Client) -> None:
    append(host, b"a", b"b")
    host.apply(change(leader=NODE))
    append(host, b"c")
    data = only(client.fetch(wanted(3, last_fetched_epoch=0), max_wait_ms=500).take())
    assert data.diverging_epoch is not None
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset, data.records) == (0, 2, b"")
    assert offsets_in(only(client.fetch(wanted(2, last_fetched_epoch=0)).take())) == [2]
    unknown = only(client.fetch(wanted(3, last_fetched_epoch=7)).take())
    assert unknown.error_code == Error.OFFSET_OUT_OF_RANGE


def test_an_unknown_topic_id_or_partition_is_told(client: Client) -> None:
    reply = client.fetch(wanted(0), topic_id=bytes(16), max_wait_ms=500)
    assert only(reply.take()).error_code == Error.UNKNOWN_TOPIC_ID
    assert only(client.fetch(wanted(0, 9)).take()).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert only(client.fetch(wanted(0, 9), version=12).take()).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_goes_while_it_is_fetched_is_told_by_the_name_that_it_had(host: Host, client: Client) -> None:
    """As Kafka, which looks up the name of an id once, when a session or a long poll begins."""
    opened = client.fetch(wanted(0), session_epoch=0).take()

    def again(epoch: int) -> tuple[Error, object]:
        data = only(client.fetch(session_id=opened.session_id, session_epoch=epoch, max_wait_ms=0).take())
        return Error(data.error_code), data.aborted_transactions

    waiting = client.fetch(wanted(0), max_wait_ms=500)
    host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    host.loop.pass_ms(600)
    assert only(waiting.take()).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert again(1) == again(2) == (Error.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert only(client.fetch(wanted(0)).take()).error_code == Error.UNKNOWN_TOPIC_ID
    host.create(topic_id=b"n" * 16)
    assert again(3) == again(4) == (Error.INCONSISTENT_TOPIC_ID, None)
    assert only(client.fetch(wanted(0)).take()).error_code == Error.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_what_is_not_there_has_an_empty_list_of_aborted_transactions_and_another_error_has_none_as_in_kafka(
    client: Client, isolation_level: int
) -> None:
    for reply in (
        client.fetch(wanted(0), topic_id=bytes(16), isolation_level=isolation_level),
        client.fetch(wanted(0, 9), isolation_level=isolation_level),
        client.fetch(wanted(0, 9), version=12, isolation_level=isolation_level),
    ):
        assert only(reply.take()).aborted_transactions == []
    data = only(client.fetch(wanted(7), isolation_level=isolation_level).take())
    assert (data.error_code, data.aborted_transactions) == (Error.OFFSET_OUT_OF_RANGE, None)


@pytest.mark.parametrize("version", [4, 14, 15, 18])
def test_a_follower_that_is_no_replica_is_refused(host: Host, client: Client, version: int) -> None:
    append(host, b"a")
    state = {"replica_state": m.FetchRequest.ReplicaState(replica_id=2)} if version >= 15 else {"replica_id": 2}
    assert only(client.fetch(wanted(0), version=version, **state).take()).error_code == Error.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [4, 9, 10])
def test_a_zstd_topic_is_served_to_old_readers_too_as_in_kafka(host: Host, client: Client, version: int) -> None:
    host.create("z", topic_id=b"z" * 16, compression_type="zstd")
    host.partition("z").append(memoryview(batch(b"a")), 1, host.now_ms())
    body = fetch_request(wanted(0), version=version)
    body.topics[0].topic = "z"
    data = only(client.send(client.handler.handle, body, version).take())
    assert (data.error_code, offsets_in(data)) == (0, [0])


def test_readers_of_committed_records_stop_at_an_open_transaction(host: Host, client: Client) -> None:
    append(host, b"a")
    append(host, b"b", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert offsets_in(only(client.fetch(wanted(0)).take())) == [0, 1]
    data = only(client.fetch(wanted(0), isolation_level=1).take())
    assert (offsets_in(data), data.last_stable_offset, data.high_watermark) == ([0], 1, 2)
    reply = client.fetch(wanted(1), isolation_level=1, max_wait_ms=500)
    append(host, b"c")
    assert not reply.is_there
    _abort(host, 5)
    data = only(reply.take())
    assert offsets_in(data) == [1, 2, 3]
    assert data.aborted_transactions is not None
    assert [(found.producer_id, found.first_offset) for found in data.aborted_transactions] == [(5, 1)]
    assert only(client.fetch(wanted(1)).take()).aborted_transactions is None


def _abort(host: Host, producer_id: int) -> None:
    partition = host.partition()
    content = build_marker(
        committed=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=host.now_ms()
    )
    log = partition.log
    log.append_as_leader(memoryview(content), partition.leader_epoch, host.now_ms(), Origin.COORDINATOR)
    partition.log.set_high_watermark(log.log_end_offset)
    for watcher in list(partition._watchers):
        watcher.progressed(partition, len(content))


# ------------------------------------------------------------------------------------------------------------- sessions


def test_an_incremental_fetch_tells_only_what_is_new(host: Host, client: Client) -> None:
    append(host, b"a")
    first = client.fetch(wanted(0), wanted(0, 1), session_epoch=0).take()
    assert first.session_id == 7
    append(host, b"b", index=1)
    moved = client.fetch(wanted(1), session_id=7, session_epoch=1, max_wait_ms=500).take()
    assert [(topic.topic_id, [data.partition_index for data in topic.partitions]) for topic in moved.responses] == [
        (TOPIC_ID, [1])
    ]
    reply = client.fetch(wanted(1, 1), session_id=7, session_epoch=2, max_wait_ms=500)
    host.loop.pass_ms(501)
    assert reply.take().responses == []


def test_a_session_that_is_not_there_is_told_of_at_once(client: Client) -> None:
    response = client.fetch(session_id=3, session_epoch=5, max_wait_ms=500).take()
    assert (response.error_code, response.session_id) == (Error.FETCH_SESSION_ID_NOT_FOUND, 0)


# ------------------------------------------------------------------------------------------------------ clients that go


def test_a_fetch_whose_client_is_gone_is_forgotten(host: Host, client: Client) -> None:
    client.fetch(wanted(0), max_wait_ms=2**31 - 1)
    client.connection.is_closing = True
    host.loop.pass_ms(LOOK_MS + 1)
    assert not host.partition()._watchers


def test_a_fetch_waits_as_long_as_it_said_if_its_client_stays(host: Host, client: Client) -> None:
    reply = client.fetch(wanted(0), max_wait_ms=LOOK_MS * 3)
    host.loop.pass_ms(LOOK_MS * 3 - 1)
    assert not reply.is_there
    host.loop.pass_ms(2)
    assert only(reply.take()).records == b""


# --------------------------------------------------------------------------------------------------------------- memory


def test_hazard_15_replies_that_nobody_takes_are_bounded(host: Host) -> None:
    client = Client(host, memory_bytes=200_000)
    append(host, b"x" * 100_000)
    held = [client.fetch(wanted(0)) for _ in range(2)]
    # The client above has them as one frame; the memory counts the buffers that a socket would have.
    gc.collect()
    assert client.memory.held_bytes == 0
    buffers = [client.memory.buffer(150_000), client.memory.buffer(150_000)]
    assert client.memory.is_full
    reply = client.fetch(wanted(0), max_wait_ms=500)
    assert not reply.is_there
    assert only(client.fetch(wanted(0), max_wait_ms=0).take()).records == b""
    buffers.clear()
    host.drain()
    assert offsets_in(only(reply.take())) == [0]
    late = client.memory.buffer(300_000)
    reply = client.fetch(wanted(0), max_wait_ms=500)
    host.loop.pass_ms(501)
    assert only(reply.take()).records == b""
    assert len(late) == 300_000
    assert len(held) == 2


def test_replies_get_smaller_as_memory_fills_up(host: Host) -> None:
    client = Client(host, memory_bytes=8 << 20)
    for _ in range(30):
        append(host, b"x" * 100_000)
    assert len(offsets_in(only(client.fetch(wanted(0, max_bytes=1 << 30)).take()))) == 20
    held = client.memory.buffer(7 << 20)
    assert len(offsets_in(only(client.fetch(wanted(0, max_bytes=1 << 30)).take()))) == 10
    assert len(held)


# ----------------------------------------------------------------------------------------------------------- cold disks


class ColdDisk:
    """A disk whose bytes are in memory only once a worker has read them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.warm: dict[tuple[str, int], None] = {}
        self.is_cold = False
        really_cached, really_into = LocalFile.read_cached, LocalFile.read_into

        def read_cached(file: LocalFile, position: int, buffer: Any) -> int | None:
            if self.is_cold and any((file.path, page) not in self.warm for page in _pages(position, len(buffer))):
                return None
            return really_cached(file, position, buffer)

        def read_into(file: LocalFile, position: int, buffer: Any) -> int:
            self.warm |= {(file.path, page): None for page in _pages(position, len(buffer))}
            return really_into(file, position, buffer)

        patch.setattr(LocalFile, "read_cached", read_cached)
        patch.setattr(LocalFile, "read_into", read_into)


def _pages(position: int, size: int) -> range:
    return range(position // 4096, (position + max(size, 1) - 1) // 4096 + 1)


@pytest.fixture
def cold_disk(monkeypatch: pytest.MonkeyPatch) -> ColdDisk:
    return ColdDisk(monkeypatch)


@pytest.fixture
def cold_host(tmp_path: Path) -> Iterator[Host]:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=4096, file_delete_delay_ms=0)
    disk = LocalDisk(str(tmp_path))
    host = Host([disk], config=config)
    host.create(partitions=2)
    for number in range(40):
        append(host, b"%04d" % number * 500)
    host.drain()
    yield host
    host.replicas.stop()
    disk.close()


def test_a_cold_read_leaves_the_loop_and_others_go_on(cold_host: Host, cold_disk: ColdDisk) -> None:
    client = Client(cold_host)
    cold_host.directories.logs()
    cold_disk.is_cold = True
    cold_host.partition().log.read_end = None
    reply = client.fetch(wanted(5), max_wait_ms=0)
    assert not reply.is_there
    append(cold_host, b"produce goes on", index=1)
    hops = 0
    while not reply.is_there:
        cold_host.workers.step()
        hops += 1
    assert offsets_in(only(reply.take())) == list(range(5, 40))
    assert 2 <= hops < 20
    assert offsets_in(only(client.fetch(wanted(5), max_wait_ms=0).take())) == list(range(5, 40)), "it is warm now"


def test_a_cold_read_of_a_deleted_log_ends_well(cold_host: Host, cold_disk: ColdDisk) -> None:
    client = Client(cold_host)
    cold_disk.is_cold = True
    reply = client.fetch(wanted(5), max_wait_ms=0)
    cold_host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    cold_host.drain()
    assert only(reply.take()).error_code in (0, Error.UNKNOWN_TOPIC_OR_PARTITION)
    assert not client.connection.is_aborted


def test_a_disk_that_fails_under_a_cold_read_is_told_of(
    cold_host: Host, cold_disk: ColdDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(cold_host)
    cold_disk.is_cold = True

    def fail(file: LocalFile, position: int, buffer: Any) -> int:
        raise FileVanished(file.path)

    monkeypatch.setattr(LocalFile, "read_into", fail)
    reply = client.fetch(wanted(5), max_wait_ms=0, version=5)
    last = client.fetch(wanted(5), max_wait_ms=0)
    while len(cold_host.workers):
        cold_host.workers.step()
    assert only(reply.take()).error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert only(last.take()).error_code == Error.KAFKA_STORAGE_ERROR
