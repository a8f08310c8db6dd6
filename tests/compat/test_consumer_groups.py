"""confluent-kafka with group.protocol=consumer: members that come and go, static ones, expressions, a killed node.

And what the timing of no client shows for sure, by single requests: a commit in an epoch that has just passed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.errors import Error
from headrace.protocol import messages as m
from tests.compat.confluent import TIMEOUT_S, new_producer, produce
from tests.compat.conftest import create_topic, is_ours, new_name
from tests.compat.process import Process
from tests.compat.requests import metadata
from tests.compat.wire import Wire

QUICK: Final = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.session.timeout.ms": "4000",
    "group.initial.rebalance.delay.ms": "100",
}
"""Members of the new protocol do as often as they are told; with the defaults, tests would wait for heartbeats."""

pytestmark = pytest.mark.skipif(not is_ours(), reason="it takes a node with short heartbeats")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("groups") / "data", *(f"--set={n}={v}" for n, v in QUICK.items()))
    process.start()
    yield process
    assert process.stop() == 0, process.said
    assert process.defects == []


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "data", *(f"--set={n}={v}" for n, v in QUICK.items()))
    process.start()
    yield process
    if process.is_running:
        assert process.stop() == 0, process.said
    assert process.defects == []


@pytest.fixture(autouse=True)
def all_closed() -> Iterator[None]:
    """Those of a test that failed too: one that is left to the collector can keep it waiting for ever."""
    yield
    for member in Member.made:
        member.is_closing = True
        with suppress(RuntimeError):  # it is closed already
            member.client.close()
    Member.made.clear()


class Member:
    """A consumer, what it owns now, and what it has read. It commits what it read before it gives anything up."""

    made: ClassVar[list[Member]] = []

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: Any) -> None:
        defaults = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        more = {name.replace("_", "."): value for name, value in settings.items()}
        self.client: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **defaults, **more})
        self.read: list[tuple[str, int, int]] = []
        self.rebalances = 0
        self.is_closing = False
        self.made.append(self)
        self.client.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked)

    @property
    def owns(self) -> list[tuple[str, int]]:
        return sorted((partition.topic, partition.partition) for partition in self.client.assignment())

    def poll(self, seconds: float = 0.1) -> None:
        for message in self.client.consume(100, seconds):
            if message.error() is None:
                self.read.append((message.topic(), message.partition(), message.offset()))
            else:
                assert message.error().retriable() or message.error().code() < 0, message.error()

    def commit(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """What was read of these partitions, or of those that it owns."""
        owned = set(self.owns if partitions is None else partitions)
        offsets = {(topic, partition): offset + 1 for topic, partition, offset in self.read}
        found = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items() if (t, p) in owned]
        if found:
            self.client.commit(offsets=found, asynchronous=False)

    def close(self) -> None:
        self.commit()
        self.is_closing = True  # librdkafka may leave the group before a commit of the callback gets there
        self.client.close()

    def _assigned(self, client: Any, partitions: Any) -> None:
        self.rebalances += 1

    def _revoked(self, client: Any, partitions: Any) -> None:
        self.rebalances += 1
        if self.is_closing:
            return
        self.commit([(partition.topic, partition.partition) for partition in partitions])


def until(is_so: Callable[[], bool], *members: Member, what: str = "") -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, (what, [member.owns for member in members])
        for member in members:
            member.poll()


def partitions_of(topic: str, count: int) -> list[tuple[str, int]]:
    return [(topic, partition) for partition in range(count)]


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    producer = new_producer(bootstrap)
    for partition in range(partitions):
        produce(producer, topic, [b"%d" % number for number in range(count)], partition=partition)


def shared_evenly(topic: str, count: int, *members: Member) -> Callable[[], bool]:
    def is_so() -> bool:
        owned = [member.owns for member in members]
        sizes = [len(own) for own in owned]
        return sorted(p for own in owned for p in own) == partitions_of(topic, count) and max(sizes) - min(sizes) <= 1

    return is_so


def state_of(admin: Any, group: str) -> str:
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    return str(described.state.name)


def new_topic(process: Process, partitions: int, name: str | None = None) -> str:
    return create_topic(AdminClient({"bootstrap.servers": process.bootstrap}), partitions, name)


def test_a_member_goes_on_where_it_has_committed(quick: Process) -> None:
    topic, group = new_topic(quick, 2), new_name()
    fill(quick.bootstrap, topic, 2, 50)
    first = Member(quick.bootstrap, group, [topic])
    until(lambda: len(first.read) == 100, first)
    first.close()
    fill(quick.bootstrap, topic, 2, 5)
    second = Member(quick.bootstrap, group, [topic])
    until(lambda: len(second.read) == 10, second)
    assert {offset for _, _, offset in second.read} == set(range(50, 55))
    second.close()


def test_members_come_and_go_and_every_record_is_read_once(quick: Process) -> None:
    topic, group = new_topic(quick, 6), new_name()
    fill(quick.bootstrap, topic, 6, 100)
    a = Member(quick.bootstrap, group, [topic])
    until(lambda: a.owns == partitions_of(topic, 6), a)
    b = Member(quick.bootstrap, group, [topic])
    until(shared_evenly(topic, 6, a, b), a, b)
    c = Member(quick.bootstrap, group, [topic])
    until(shared_evenly(topic, 6, a, b, c), a, b, c)
    fill(quick.bootstrap, topic, 6, 100)
    b.close()
    until(shared_evenly(topic, 6, a, c), a, c)
    until(lambda: len(a.read) + len(b.read) + len(c.read) >= 1200, a, c)
    a.close()
    c.close()
    times = Counter(a.read + b.read + c.read)
    assert times == Counter({(topic, partition, offset): 1 for partition in range(6) for offset in range(200)})


def test_a_static_member_that_comes_back_has_what_it_had_and_nobody_else_notices(quick: Process) -> None:
    topic, group = new_topic(quick, 4), new_name()
    a = Member(quick.bootstrap, group, [topic], group_instance_id="a")
    b = Member(quick.bootstrap, group, [topic], group_instance_id="b")
    until(shared_evenly(topic, 4, a, b), a, b)
    had, rebalances = b.owns, a.rebalances
    b.client.close()
    again = Member(quick.bootstrap, group, [topic], group_instance_id="b")
    until(lambda: again.owns == had, a, again)
    assert a.rebalances == rebalances
    a.close()
    again.close()


def test_an_expression_is_resolved_by_the_node_and_follows_the_topics(quick: Process) -> None:
    prefix, group = new_name(), new_name()
    first = new_topic(quick, 2, f"{prefix}-1")
    new_topic(quick, 2)
    member = Member(quick.bootstrap, group, [f"^{prefix}-.*"])
    until(lambda: member.owns == partitions_of(first, 2), member)
    second = new_topic(quick, 1, f"{prefix}-2")
    until(lambda: member.owns == partitions_of(first, 2) + partitions_of(second, 1), member)
    member.close()


def test_a_topic_that_grows_is_shared_again(quick: Process) -> None:
    topic, group = new_topic(quick, 2), new_name()
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})
    a, b = Member(quick.bootstrap, group, [topic]), Member(quick.bootstrap, group, [topic])
    until(shared_evenly(topic, 2, a, b), a, b)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    until(shared_evenly(topic, 4, a, b), a, b)
    a.close()
    b.close()


def test_a_member_that_stalls_loses_its_partitions_to_the_others(quick: Process) -> None:
    topic, group = new_topic(quick, 2), new_name()
    a = Member(quick.bootstrap, group, [topic])
    # It stops polling, and is taken for gone by its own client, as after max.poll.interval.ms.
    stalled = Member(quick.bootstrap, group, [topic], max_poll_interval_ms=3000)
    until(shared_evenly(topic, 2, a, stalled), a, stalled)
    until(lambda: a.owns == partitions_of(topic, 2), a)
    a.close()
    stalled.client.close()


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_groups_go_on_when_the_node_is_back(restartable: Process, ending: str) -> None:
    process = restartable
    topic, group = new_topic(process, 4), new_name()
    fill(process.bootstrap, topic, 4, 50)
    a, b = Member(process.bootstrap, group, [topic]), Member(process.bootstrap, group, [topic])
    until(shared_evenly(topic, 4, a, b), a, b)
    until(lambda: len(a.read) + len(b.read) == 200, a, b)
    a.commit()
    b.commit()
    had = a.owns, b.owns
    getattr(process, ending)()
    process.start()
    fill(process.bootstrap, topic, 4, 50)
    until(lambda: len(a.read) + len(b.read) == 400, a, b)
    assert (a.owns, b.owns) == had
    assert Counter(a.read + b.read).most_common(1)[0][1] == 1
    a.close()
    b.close()


def test_administrators_see_groups_of_the_new_protocol(quick: Process) -> None:
    topic, group = new_topic(quick, 2), new_name()
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})
    fill(quick.bootstrap, topic, 2, 3)
    member = Member(quick.bootstrap, group, [topic], client_id="me")
    until(lambda: len(member.read) == 6, member)
    member.commit()
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(TIMEOUT_S)
    assert listed.errors == []
    assert [(g.group_id, g.type, g.state.name) for g in listed.valid if g.group_id == group] == [
        (group, ConsumerGroupType.CONSUMER, "STABLE")
    ]
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert (described.state.name, described.type) == ("STABLE", ConsumerGroupType.CONSUMER)
    (one,) = described.members
    assert one.client_id == "me"
    assert sorted(p.partition for p in one.assignment.topic_partitions) == [0, 1]
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(TIMEOUT_S)
    assert sorted((p.partition, p.offset) for p in offsets.topic_partitions) == [(0, 3), (1, 3)]
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    member.close()
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert group not in [g.group_id for g in listed.valid]


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_live_group_goes_over_to_the_new_protocol_and_back(quick: Process, strategy: str) -> None:
    """Members are replaced one by one, as in a rolling restart; every record is read, and once."""
    topic, group = new_topic(quick, 4), new_name()
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})
    classic = {
        "group_protocol": "classic",
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
    }
    gone: list[Member] = []
    members = [Member(quick.bootstrap, group, [topic], **classic) for _ in range(2)]

    def settled() -> None:
        # A client that closes in the middle of a rebalance leaves before it commits.
        is_shared = shared_evenly(topic, 4, *members)
        until(lambda: is_shared() and state_of(admin, group) == "STABLE", *members)

    def replaced(index: int, **settings: Any) -> None:
        settled()
        fill(quick.bootstrap, topic, 4, 25)
        gone.append(members[index])
        members[index].close()
        members[index] = Member(quick.bootstrap, group, [topic], **settings)

    replaced(0)
    replaced(1)
    replaced(0, **classic)
    replaced(1, **classic)
    until(lambda: sum(len(member.read) for member in gone + members) >= 400, *members)
    settled()
    for member in members:
        member.close()
    times = Counter(read for member in gone + members for read in member.read)
    assert times == Counter({(topic, partition, offset): 1 for partition in range(4) for offset in range(100)})


class Requests:
    """One group, by requests that nobody else sends."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire = wire
        self._topic = topic
        self._topic_id = metadata(wire, topic).topic_id
        self._group = new_name()
        self._answered(lambda: wire.ask(m.FindCoordinatorRequest(coordinator_keys=[self._group]), 4).coordinators[0])

    def over(self, wire: Wire) -> Requests:
        """The same group, over another connection."""
        self._wire = wire
        return self

    def beat(self, member: str, epoch: int, owns: list[int] | None = None) -> tuple[int, list[int] | None]:
        """The epoch that it is told, and if it is told, what it shall own."""
        kind = m.ConsumerGroupHeartbeatRequest
        body = kind(group_id=self._group, member_id=member, member_epoch=epoch)
        if epoch == 0:
            body.rebalance_timeout_ms, body.subscribed_topic_names, owns = 60_000, [self._topic], []
        if owns is not None:
            body.topic_partitions = [kind.TopicPartitions(topic_id=self._topic_id, partitions=owns)] if owns else []
        answer = self._answered(lambda: self._wire.ask(body, 1))
        assert answer.error_code == Error.NONE, answer
        told = answer.assignment
        return answer.member_epoch, None if told is None else [p for t in told.topic_partitions for p in t.partitions]

    def commit(self, member: str, epoch: int, *partitions: int) -> list[Error]:
        """The same is answered when it comes again, which nodes may know by its bytes."""
        kind = m.OffsetCommitRequest
        asked = [kind.OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in partitions]
        topic = kind.OffsetCommitRequestTopic(name=self._topic, partitions=asked)
        body = kind(group_id=self._group, member_id=member, generation_id_or_member_epoch=epoch, topics=[topic])
        first, second, third = (self._wire.ask(body, 9) for _ in range(3))
        assert first == second == third
        return [Error(one.error_code) for one in first.topics[0].partitions]

    def _answered(self, ask: Callable[[], Any]) -> Any:
        """A coordinator that is not there yet is asked again."""
        deadline = time.monotonic() + TIMEOUT_S
        while (answer := ask()).error_code and Error(answer.error_code).retriable and time.monotonic() < deadline:
            time.sleep(0.05)
        return answer


def test_a_commit_in_the_epoch_before_counts_for_what_its_member_has_kept(restartable: Process) -> None:
    """KIP-1251: a heartbeat took the member on while its commit was on the way. What came to it since is another
    matter, and so is what was another's meanwhile; also to a node that reads all this from its log."""
    with Wire(restartable.bootstrap) as wire:
        group = Requests(wire, new_topic(restartable, 4))
        assert group.beat("a", 0) == (1, [0, 1, 2, 3])
        assert group.beat("b", 0) == (2, [])
        assert group.beat("a", 1) == (1, [0, 1])
        assert group.beat("a", 1, [0, 1]) == (2, None)
        assert group.beat("b", 2) == (2, [2, 3])
        assert group.commit("a", 1, 0, 1) == [Error.NONE] * 2
        assert group.commit("a", 1, 2) == [Error.STALE_MEMBER_EPOCH]
        assert group.commit("b", 2, 2, 3) == [Error.NONE] * 2
        assert group.beat("b", -1) == (-1, None)
        assert group.beat("a", 2) == (3, [0, 1, 2, 3])
    restartable.kill()
    restartable.start()
    with Wire(restartable.bootstrap) as wire:
        group.over(wire).beat("a", 3, [0, 1, 2, 3])
        assert group.commit("a", 2, 0, 1) == [Error.NONE] * 2
        assert group.commit("a", 1, 0, 1) == [Error.NONE] * 2
        assert group.commit("a", 2, 0, 2) == [Error.STALE_MEMBER_EPOCH] * 2
        assert group.commit("a", 1, 3) == [Error.STALE_MEMBER_EPOCH]
        assert group.commit("a", 3, 0, 3) == [Error.NONE] * 2
        assert group.commit("a", 4, 0) == [Error.STALE_MEMBER_EPOCH]
