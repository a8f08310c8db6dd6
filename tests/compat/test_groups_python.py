"""Classic groups with kafka-python and aiokafka, whose members assign partitions in code of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.errors import NoError

from tests.compat.confluent import TIMEOUT_S, new_producer, produce
from tests.compat.conftest import MakeTopic, new_name

PARTITIONS = 4
TIMES = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}


class PythonMember:
    """A KafkaConsumer on a thread of its own: it waits for others while it joins."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            **{**TIMES, **settings},
        )
        self.owned: set[int] = set()
        self.read: set[tuple[int, int]] = set()
        self.failure: Exception | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                for records in self.consumer.poll(500).values():
                    self.read |= {(record.partition, record.offset) for record in records}
                self.owned = {one.partition for one in self.consumer.assignment()}
            self.consumer.close()
        except Exception as error:
            self.failure = error

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)
        assert self.failure is None


def share(members: list[Any]) -> bool:
    owned = sorted(partition for member in members for partition in member.owned)
    return owned == list(range(PARTITIONS)) and all(member.owned for member in members)


def wait_until(done: Any, what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


def send(bootstrap: str, topic: str, count: int) -> None:
    producer = new_producer(bootstrap)
    for partition in range(PARTITIONS):
        produce(producer, topic, [b"v"] * count, partition=partition)


def test_members_of_kafka_python_share_and_read_everything(cluster: str, make_topic: MakeTopic) -> None:
    topic, group = make_topic(PARTITIONS), new_name()
    send(cluster, topic, 10)
    members = [PythonMember(cluster, group, topic) for _ in range(2)]
    try:
        wait_until(lambda: share(members), "two members share")
        wait_until(lambda: len(members[0].read | members[1].read) == 40, "all is read")
        leaving = members.pop(0)
        leaving.close()
        wait_until(lambda: share(members), "one member has all")
        send(cluster, topic, 10)
        wait_until(lambda: len(leaving.read | members[0].read) == 80, "all is read")
    finally:
        for member in members:
            member.close()
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    try:
        offsets = admin.list_group_offsets([group])[group]
        assert sorted(one.offset for one in offsets.values()) == [20] * PARTITIONS
        assert group in [one["group_id"] for one in admin.list_groups(states_filter=["Empty"])]
        assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    finally:
        admin.close()


def test_a_static_member_of_kafka_python_comes_back(cluster: str, make_topic: MakeTopic) -> None:
    topic, group = make_topic(PARTITIONS), new_name()
    members = [PythonMember(cluster, group, topic, group_instance_id=name) for name in ("one", "two")]
    try:
        wait_until(lambda: share(members), "two members share")
        before = set(members[1].owned)
        members.pop().close()
        back = PythonMember(cluster, group, topic, group_instance_id="two")
        members.append(back)
        wait_until(lambda: share(members), "it is back")
        assert back.owned == before
        members.pop().close()
        remove(cluster, group, "two")
        wait_until(lambda: share(members), "one member has all")
    finally:
        for member in members:
            member.close()


def remove(bootstrap: str, group: str, instance_id: str) -> None:
    """Nobody waits for a static member that is known not to come back."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        ((_, error),) = admin.remove_group_members(
            group, [MemberToRemove(group_instance_id=instance_id, reason="its machine is gone")]
        ).items()
        assert error is NoError
    finally:
        admin.close()


class AioMember:
    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            **{**TIMES, **settings},
        )
        self.read: set[tuple[int, int]] = set()
        self._reads: asyncio.Task[None] | None = None

    async def start(self) -> AioMember:
        await self.consumer.start()
        self._reads = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        async for record in self.consumer:
            self.read.add((record.partition, record.offset))

    @property
    def owned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    async def close(self) -> None:
        assert self._reads is not None
        self._reads.cancel()
        await self.consumer.stop()


async def wait_on_loop_until(done: Any, what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline_s, what
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("assignor", [AioRange, AioRoundRobin, AioSticky])
def test_members_of_aiokafka_share_and_read_everything(cluster: str, make_topic: MakeTopic, assignor: Any) -> None:
    topic, group = make_topic(PARTITIONS), new_name()
    send(cluster, topic, 10)
    how = {"partition_assignment_strategy": [assignor]}

    async def scenario() -> None:
        first, second = await asyncio.gather(*(AioMember(cluster, group, topic, **how).start() for _ in range(2)))
        await wait_on_loop_until(lambda: share([first, second]), "two members share")
        await wait_on_loop_until(lambda: len(first.read | second.read) == 40, "all is read")
        await first.close()
        await wait_on_loop_until(lambda: share([second]), "one member has all")
        send(cluster, topic, 10)
        await wait_on_loop_until(lambda: len(first.read | second.read) == 80, "all is read")
        await second.close()

    asyncio.run(scenario())
