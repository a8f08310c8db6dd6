"""A node from its start to its stop: what it finds, what it keeps, what it refuses."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from headrace.broker.lifecycle import Lifecycle
from headrace.errors import HeadraceError, ProtocolError
from headrace.metadata.features import SUPPORTED
from headrace.metadata.loader import Loader
from headrace.net.peer import Disconnected
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.raft.metadata_log import format_voter
from headrace.raft.quorum import ReplicaKey, Voter, VoterSet
from headrace.storage.clean_shutdown import CLEAN_SHUTDOWN
from headrace.storage.closed_logs import CLOSED_LOGS
from headrace.storage.disk import SyncFailed
from headrace.testing.disk import Crash, FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running


def test_topics_are_there_after_a_clean_stop_and_after_a_crash() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            topic_id = await create(peer, "orders", 2, retention_ms="1000")
            cluster_id = node.cluster_id
        for power_lost in (False, True):
            disk = disk.restart(power_lost=power_lost)
            with suppress(Crash):
                async with running(disk) as node, connected(node) as peer:
                    assert node.cluster_id == cluster_id
                    (topic,) = (await ask(peer, m.MetadataRequest(topics=None), 12)).topics
                    assert (topic.name, topic.topic_id, len(topic.partitions)) == ("orders", topic_id, 2)
                    disk.crash()

    run(check())


def test_a_start_that_fails_leaves_a_folder_closed_cleanly_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*arguments: Any, **more: Any) -> None:
        raise HeadraceError("It can't register.")

    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "orders", 2)
        before = disk.read(CLEAN_SHUTDOWN), disk.read(CLOSED_LOGS)
        disk = disk.restart()
        monkeypatch.setattr(Lifecycle, "start", fail)
        with pytest.raises(HeadraceError, match="can't register"):
            async with running(disk):
                pass
        assert (disk.read(CLEAN_SHUTDOWN), disk.read(CLOSED_LOGS)) == before

    run(check())


@pytest.mark.parametrize(("kept", "lost"), [((), "is missing"), ((".checkpoint", "quorum-state"), "has lost its log")])
def test_a_folder_that_lost_its_metadata_is_refused(kept: tuple[str, ...], lost: str) -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "orders")
        disk = disk.restart()
        for name in disk.names("__cluster_metadata-0"):
            if not name.endswith(kept):
                disk.remove(f"__cluster_metadata-0/{name}")
        if not kept:
            disk.remove_directory("__cluster_metadata-0")
        with pytest.raises(HeadraceError, match=f"__cluster_metadata-0 {lost}, and .*orders-0 is there"):
            async with running(disk):
                pass

    run(check())


def test_a_folder_with_features_that_are_not_known_is_refused_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka 4.2 leaves it."""
    levels = {"metadata.version": 30, "group.version": 1, "share.version": 1, "streams.version": 0}

    async def check() -> None:
        monkeypatch.setattr("headrace.metadata.controller.BOOTSTRAP", levels)
        disk = FaultyDisk()
        for _ in range(2):
            with pytest.raises(HeadraceError) as refused:
                async with running(disk):
                    pass
            text = str(refused.value)
            assert "__cluster_metadata-0 has features at levels that this program does not support: " in text
            assert "metadata.version at 30 (known from 7 to 29), share.version at 1 (which is not known here);" in text
            assert "kafka-features.sh downgrade --feature metadata.version=29 --feature share.version=0)" in text
            disk = disk.restart()

    run(check())


def test_metadata_that_can_not_be_read_to_its_end_puts_no_partition_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version may have written the end. Half of the topics are no reason to take the others for strays."""

    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "orders", 2)
        disk = disk.restart()
        apply, applied = Loader.apply, 0

        def fail_later(self: Loader, *arguments: Any) -> None:
            nonlocal applied
            applied += 1
            if applied > 2:
                raise ProtocolError("TopicRecord has versions 0-1, not 2")
            apply(self, *arguments)

        monkeypatch.setattr(Loader, "apply", fail_later)
        with pytest.raises(HeadraceError, match=r"can't be read \(TopicRecord .* if a later version wrote it"):
            async with running(disk):
                pass
        assert applied == 3
        assert {"orders-0", "orders-1"} < set(disk.names(""))

    run(check())


def test_a_folder_of_another_quorum_is_refused() -> None:
    """A node that is alone would wait for the others for ever."""

    async def check(voters: VoterSet, sentence: str) -> None:
        disk = FaultyDisk()
        format_voter(disk, voters, 1_700_000_000_000)
        with pytest.raises(HeadraceError, match=sentence):
            async with running(disk):
                pass

    run(check(VoterSet(), "names no voters, as that of a Kafka which has them in controller.quorum.voters; choose"))
    three = VoterSet(Voter(ReplicaKey(number, b"d" * 16)) for number in (1, 2, 3))
    run(check(three, "has the voters 1, 2, 3, and this directory of this node is not the only one; choose"))


def test_hazard_8_a_sync_that_fails_while_a_node_starts_ends_the_start() -> None:
    tasks: list[asyncio.Task[Any]] = []

    def made(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        tasks.append(asyncio.Task(work, loop=loop, **more))
        return tasks[-1]

    async def check() -> None:
        asyncio.get_running_loop().set_task_factory(made)
        disk = FaultyDisk()
        async with running(disk):
            syncs = disk.syncs
        for sync in range(1, syncs + 1):
            disk = FaultyDisk()
            disk.faults.fail_sync_at = sync
            with suppress(HeadraceError):
                async with asyncio.timeout(20), running(disk):
                    break
        assert sync > 5

    run(check())
    assert not [task for task in tasks if task._log_traceback], "nobody heard of these failures"


def test_hazard_8_a_failed_sync_of_a_partition_stops_a_node_whose_metadata_is_on_that_disk() -> None:
    async def check() -> None:
        async with running() as node:
            assert node._directories is not None
            (directory,) = node._directories.all
            directory.disk.go_offline(SyncFailed("t-0", "a test"))
            async with asyncio.timeout(20):
                assert "t-0" in str(await node.failed)

    run(check())


def test_the_metadata_is_in_one_of_the_log_directories() -> None:
    async def check() -> None:
        with pytest.raises(HeadraceError, match="must be one of log.dirs"):
            async with running(metadata_log_dir="elsewhere"):
                pass

    run(check())


def test_a_node_of_a_later_incarnation_ends_the_one_before() -> None:
    async def check() -> None:
        async with running(broker_heartbeat_interval_ms="50") as node:
            assert node._metadata is not None
            endpoint = node.endpoints[0]
            kind = m.BrokerRegistrationRequest
            request = kind(
                broker_id=node.id,
                cluster_id=node.cluster_id,
                incarnation_id=b"another process!",
                listeners=[kind.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)],
                features=[
                    kind.Feature(name=name, min_supported_version=least, max_supported_version=most)
                    for name, (least, most) in SUPPORTED.items()
                ],
                log_dirs=[b"another log dir."],
            )
            node._metadata.fence_now(node.id, node._metadata.loader.image.brokers[node.id].epoch)
            await node._metadata.channel.call(request, 10)
            failure = await node.failed
            assert "another process has registered" in str(failure)

    run(check())


def test_a_stopped_node_lets_nobody_in() -> None:
    async def check() -> None:
        async with running() as node:
            pass
        with pytest.raises(Disconnected):
            async with connected(node):
                pass

    run(check())


def test_what_is_sent_behind_a_change_sees_it_without_waiting_for_its_answer() -> None:
    async def check() -> None:
        topic = m.CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        data = m.ProduceRequest.PartitionProduceData(index=0, records=build([(None, b"a", (), 1)]))
        produce = m.ProduceRequest.TopicProduceData(name="orders", partition_data=[data])
        offsets = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        wanted = m.ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[offsets])
        async with running() as node, connected(node) as peer:
            created, produced, listed, metadata = await asyncio.gather(
                ask(peer, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7),
                ask(peer, m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[produce]), 9),
                ask(peer, m.ListOffsetsRequest(replica_id=-1, topics=[wanted]), 6),
                ask(peer, m.MetadataRequest(topics=None), 12),
            )
            assert created.topics[0].error_code == 0
            assert produced.responses[0].partition_responses[0].error_code == 0
            assert listed.topics[0].partitions[0].offset == 1
            assert [found.name for found in metadata.topics] == ["orders"]

    run(check())
