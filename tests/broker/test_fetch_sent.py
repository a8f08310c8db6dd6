"""Large replies to fetches, which go from the files of a real node: sent by workers, or by the loop."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import local, loggers, senders
from headrace.broker import node as node_module
from headrace.broker.fetch import Fetching
from headrace.broker.fetch_memory import ReplyMemory
from headrace.broker.local import local_ports
from headrace.broker.node import Node
from headrace.broker.senders import RESTS
from headrace.config import NodeConfig
from headrace.errors import Error, HeadraceError
from headrace.net import file_send, sending
from headrace.net.connection import Slot
from headrace.net.peer import Peer
from headrace.net.sending import Sender
from headrace.protocol import messages as m
from headrace.protocol.batch import scan
from headrace.protocol.batch_builder import build
from headrace.storage.local_disk import LocalFile
from tests.broker.nodes import ask, connected, create, run

VALUE = os.urandom(100_000)
BATCHES = 40
"""In each partition: about four megabytes, in several segments."""


@asynccontextmanager
async def node_with_records(folder: Path, partitions: int, **settings: str) -> AsyncIterator[tuple[Node, Peer]]:
    """Settings are named with underscores."""
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "http.listen": "off"} | {
        key.replace("_", "."): text for key, text in settings.items()
    }
    node = Node(NodeConfig.parse(texts), local_ports(asyncio.get_running_loop()))
    try:
        await node.start()
        async with connected(node) as peer:
            await create(peer, "t", partitions, segment_bytes=str(1 << 20))
            for number in range(BATCHES):
                await _produce(peer, partitions, number)
            yield node, peer
    finally:
        await node.stop()


async def _produce(peer: Peer, partitions: int, number: int) -> None:
    parts = [
        m.ProduceRequest.PartitionProduceData(index=index, records=build([(b"%d" % number, VALUE, (), 1)]))
        for index in range(partitions)
    ]
    data = m.ProduceRequest.TopicProduceData(name="t", partition_data=parts)
    reply = await ask(peer, m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data]), 12)
    assert not any(part.error_code for part in reply.responses[0].partition_responses)


def fetch_request(offsets: dict[int, int], bytes_max: int = 50 << 20) -> m.FetchRequest:
    parts = [
        m.FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
        for index, offset in offsets.items()
    ]
    return m.FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[m.FetchRequest.FetchTopic(topic="t", partitions=parts)],
    )


async def fetch(peer: Peer, offsets: dict[int, int], bytes_max: int = 50 << 20) -> list[Any]:
    reply = await ask(peer, fetch_request(offsets, bytes_max), 12)
    assert not reply.error_code
    return list(reply.responses[0].partitions)


def offsets_in(part: Any) -> list[int]:
    """Of whole batches; what is cut at the end is left out."""
    batches = list(scan(part.records, partial=True))
    for batch in batches:
        batch.verify()
    return [batch.base_offset for batch in batches]


class Sends(list[str]):
    """Who sent each reply that came from files, the end of it, in order."""

    @property
    def by_workers(self) -> int:
        return self.count("worker")


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> Sends:
    seen = Sends()
    begin = Slot.send

    def counted(slot: Slot, buffers: list[Any], sender: Sender, by_loop: bool, ended: Any) -> None:
        seen.append("nobody yet")
        begin(slot, buffers, sender, by_loop, ended)

    def noted(*arguments: Any) -> int:
        seen[-1] = "loop" if threading.current_thread() is threading.main_thread() else "worker"
        return file_send.send(*arguments)

    monkeypatch.setattr(Slot, "send", counted)
    monkeypatch.setattr(sending, "send", noted)
    return seen


def test_what_workers_send_over_segments_and_partitions_is_what_was_written(tmp_path: Path, sends: Sends) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 3) as (_, peer):
            for part in await fetch(peer, {0: 0, 1: 5, 2: BATCHES}):
                assert not part.error_code
                assert part.high_watermark == BATCHES
                first = {0: 0, 1: 5, 2: BATCHES}[part.partition_index]
                assert offsets_in(part) == list(range(first, BATCHES))
            assert len(sends) == 1
            # A limit is kept, and no part of a batch sent.
            [part] = await fetch(peer, {0: 3}, 3_000_000)
            assert offsets_in(part) == list(range(3, 32))
            assert len(part.records) == sum(batch.size_bytes for batch in scan(part.records))
            assert len(sends) == 2

    run(scenario())


def test_requests_that_come_together_are_answered_in_their_order(tmp_path: Path, sends: Sends) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (_, peer):
            wanted = [0, 5, 39, 1, 40, 10]
            found = await asyncio.gather(*[fetch(peer, {0: offset}) for offset in wanted])
            for offset, [part] in zip(wanted, found, strict=True):
                assert offsets_in(part) == list(range(offset, BATCHES))
            assert len(sends) >= 2

    run(scenario())


def test_small_replies_are_sent_from_buffers(tmp_path: Path, sends: Sends) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (_, peer):
            [part] = await fetch(peer, {0: 0}, 200_000)
            assert offsets_in(part) == [0]
            assert not sends

    run(scenario())


def test_the_loop_sends_what_is_in_memory_and_workers_what_is_replayed(tmp_path: Path, sends: Sends) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (node, peer):
            assert node._replicas is not None
            fetched = node._replicas.find("t", 0).log.read(0, 50 << 20, BATCHES)
            files = [piece.file for piece in fetched.pieces]
            fetched.release()
            if files[0].is_cached(0, 1_000_000) is not True:
                pytest.skip("this system does not tell what is in memory")
            for offset in (0, 9, 0):
                [part] = await fetch(peer, {0: offset}, 1_000_000)
                assert offsets_in(part) == list(range(offset, offset + 9))
            assert sends == ["loop"] * 3
            for file in files:
                file.datasync()
                file.forget_cached()
            if files[0].is_cached(0, 1_000_000):
                pytest.skip("this system keeps it in memory")
            for number, offset in enumerate((0, 5), 1):  # the second one is in memory since the first one asked for it
                [part] = await fetch(peer, {0: offset}, 500_000)
                assert offsets_in(part) == list(range(offset, offset + 4))
                assert sends.by_workers == number
            [part] = await fetch(peer, {0: 0}, 500_000)  # who comes later finds it there
            assert offsets_in(part) == list(range(4))
            assert sends.by_workers == 2

    run(scenario())


@pytest.mark.parametrize("pages", ["gone", "on their way"])
def test_the_loop_does_not_wait_for_what_has_left_memory_meanwhile_or_has_not_come_yet(
    tmp_path: Path, sends: Sends, monkeypatch: pytest.MonkeyPatch, pages: str
) -> None:
    """It was found in memory when the reply was made, and is looked at again when it is sent."""
    begin = Slot.send

    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (node, peer):
            assert node._replicas is not None
            fetched = node._replicas.find("t", 0).log.read(0, 1_000_000, BATCHES)
            [file] = [piece.file for piece in fetched.pieces]
            file.datasync()
            if file.is_cached(0, 1_000_000) is not True:
                pytest.skip("this system does not tell what is in memory")

            def begun(slot: Slot, *arguments: Any) -> None:
                begin(slot, *arguments)
                file.forget_cached()

            if pages == "gone":
                monkeypatch.setattr(Slot, "send", begun)
            else:
                monkeypatch.setattr(LocalFile, "has_come", lambda *arguments: False)
            [part] = await fetch(peer, {0: 0}, 1_000_000)
            assert offsets_in(part) == list(range(9))
            if file.is_cached(0, 1_000_000) and pages == "gone" and sends == ["loop"]:
                pytest.skip("this system keeps it in memory")
            assert sends == ["worker"]
            fetched.release()

    run(scenario())


def test_a_replay_rests_while_records_are_produced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "cores", lambda: 2)
    rests: list[int] = []

    def noted(*arguments: Any) -> int:
        rests.append(arguments[-1])
        return file_send.send(*arguments)

    async def replay(peer: Peer) -> set[int]:
        rests.clear()
        [part] = await fetch(peer, {0: 0}, 1_000_000)
        assert offsets_in(part) == list(range(9))
        return set(rests)

    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (_, peer):
            monkeypatch.setattr(LocalFile, "is_at_hand", lambda *arguments: False)
            monkeypatch.setattr(sending, "send", noted)
            monkeypatch.setattr(senders, "AFTER_S", 1000)
            assert await replay(peer) == {0}
            await _produce(peer, 1, BATCHES)
            assert await replay(peer) == {RESTS}

    run(scenario())


def test_whether_a_reply_is_in_memory_is_asked_once(
    tmp_path: Path, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    really_cached = LocalFile.is_cached

    def is_cached(file: LocalFile, position: int, size: int) -> bool | None:
        found = really_cached(file, position, size)
        if found is None:
            pytest.skip("this system does not tell what is in memory")
        asked.append(size)
        return found

    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (_, peer):
            monkeypatch.setattr(LocalFile, "is_cached", is_cached)
            [part] = await fetch(peer, {0: 0}, 1_000_000)
            assert offsets_in(part) == list(range(9))
            assert sends == ["loop"]
            assert len(asked) == 1

    run(scenario())


def test_hazard_15_what_is_sent_from_files_needs_none_of_the_memory_that_others_do_not_let_go_of(
    tmp_path: Path, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: list[ReplyMemory] = []

    def made(*arguments: Any) -> ReplyMemory:
        memories.append(ReplyMemory(*arguments))
        return memories[-1]

    monkeypatch.setattr(node_module, "ReplyMemory", made)

    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (_, peer):
            [memory] = memories
            unread = memory.buffer(memory.size_bytes)
            assert memory.is_full
            for count in range(1, 4):
                [part] = await fetch(peer, {0: 0}, 1_000_000)
                assert offsets_in(part) == list(range(9))
                assert len(sends) == count
            assert memory.held_bytes == len(unread)

    run(scenario())


def test_files_are_held_until_they_were_sent_and_then_let_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (node, peer):
            fetching = asyncio.ensure_future(fetch(peer, {0: 0}))
            await asyncio.sleep(0)
            async with connected(node) as other:
                await ask(other, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
                [part] = await fetching
                # Deleted meanwhile, or before: all of it, or none.
                assert part.error_code or offsets_in(part) == list(range(BATCHES))
            await asyncio.sleep(0.1)
            open_files = map(_file, os.listdir("/proc/self/fd"))
            assert not [path for path in open_files if f"{tmp_path}/t-0" in path and path.endswith(".log (deleted)")]

    run(scenario())


def test_a_file_that_was_cut_under_the_node_is_told_after_one_lost_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (node, peer):
            first = min((tmp_path / "t-0").glob("*.log"))
            os.truncate(first, 500_000)
            with pytest.raises(HeadraceError):
                await fetch(peer, {0: 0})
            async with connected(node) as other:
                [part] = await fetch(other, {0: 0})
                assert part.error_code == Error.KAFKA_STORAGE_ERROR
                [part] = await fetch(other, {0: 20})
                assert not part.error_code
                assert offsets_in(part) == list(range(20, BATCHES))

    run(scenario())


def test_each_reply_is_sent_once_when_requests_are_handled_one_by_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1, connections_max_requests_in_flight="1") as (_, peer):
            before = len(os.listdir("/proc/self/fd"))
            found = await asyncio.gather(*[fetch(peer, {0: number % 5}) for number in range(20)])
            for number, [part] in enumerate(found):
                assert offsets_in(part) == list(range(number % 5, BATCHES))
            while len(os.listdir("/proc/self/fd")) > before:
                await asyncio.sleep(0.01)

    run(scenario())


def no_client(*arguments: Any) -> int:
    return -errno.ETIMEDOUT


@pytest.mark.parametrize("size_bytes", [1_000_000, 50 << 20], ids=["loop", "worker"])
def test_what_a_socket_is_at_fault_for_is_not_blamed_on_files(
    tmp_path: Path, sends: Sends, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (node, peer):
            with monkeypatch.context() as within:
                within.setattr(sending, "send", no_client)
                with pytest.raises(HeadraceError):
                    await fetch(peer, {0: 0}, size_bytes)
            sends.clear()
            async with connected(node) as other:
                [part] = await fetch(other, {0: 0})
                assert offsets_in(part) == list(range(BATCHES))
            assert len(sends) == 1

    run(scenario())


def test_hazard_15_a_reply_for_which_too_many_files_are_open_waits_and_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []
    really_dup = os.dup

    def dup(socket: int) -> int:
        tries.append(socket)
        if len(tries) < 4:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really_dup(socket)

    monkeypatch.setattr(sending, "DESCRIPTOR_WAIT_S", 0.001)
    monkeypatch.setattr(sending, "_silent_until_s", 0.0)

    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (_, peer):
            monkeypatch.setattr(os, "dup", dup)
            first, second = await asyncio.gather(fetch(peer, {0: 0}), fetch(peer, {0: 3}))
            assert offsets_in(first[0]) == list(range(BATCHES))
            assert offsets_in(second[0]) == list(range(3, BATCHES))
            assert len(tries) == 5

    run(scenario())
    assert caplog.text.count("raise the limit of open files") == 1


def test_with_a_line_for_each_request_large_replies_come_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (_, peer):
            loggers.set_levels({"broker.request_log": "DEBUG"})
            try:
                [part] = await fetch(peer, {0: 0})
            finally:
                loggers.set_levels({"broker.request_log": None})
            assert offsets_in(part) == list(range(BATCHES))

    run(scenario())
    assert [line for line in caplog.messages if line.startswith("Fetch v12") and line.endswith("no error")]


def test_a_node_that_stopped_has_no_file_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_records(tmp_path, 1):
            pass

    run(scenario())
    assert not [path for path in map(_file, os.listdir("/proc/self/fd")) if path.startswith(str(tmp_path))]


def _file(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:  # that of the listing itself
        return ""


def test_what_is_sent_from_files_takes_no_memory_of_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    read = Fetching._read

    def counted(fetching: Fetching, gathered: list[Any]) -> Any:
        taken.append(sum(part.size_bytes for part in gathered))
        return read(fetching, gathered)

    monkeypatch.setattr(Fetching, "_read", counted)

    async def scenario() -> None:
        async with node_with_records(tmp_path, 1) as (_, peer):
            taken.clear()
            await fetch(peer, {0: 0})
            assert not taken

    run(scenario())
