"""Classic groups with confluent-kafka (librdkafka)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.confluent import TIMEOUT_S, new_producer, produce
from tests.compat.conftest import MakeTopic, create_topic, new_name
from tests.compat.groups import SESSION_MS, Member, poll_until, share
from tests.compat.process import Process

Join = Callable[..., Member]

LOST = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic, session_ms = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": int(session_ms),
                     "heartbeat.interval.ms": 200})
consumer.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


@pytest.fixture
def join() -> Iterator[Join]:
    """Makes members, and closes those that the test has not closed."""
    members: list[Member] = []

    def make(*arguments: Any, **settings: Any) -> Member:
        member = Member(*arguments, **settings)
        members.append(member)
        return member

    yield make
    for member in members:
        member.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions_come_and_go_and_nothing_is_missed(
    cluster: str, make_topic: MakeTopic, join: Join, strategy: str
) -> None:
    topic, group = make_topic(6), new_name()
    producer = new_producer(cluster)

    def send(number: int) -> None:
        for partition in range(6):
            produce(producer, topic, [b"v"] * number, partition=partition)

    send(10)
    first = join(cluster, group, topic, partition_assignment_strategy=strategy)
    poll_until([first], lambda: share([first], 6) and len(set(first.read)) == 60, "one member has all")
    second = join(cluster, group, topic, partition_assignment_strategy=strategy)
    third = join(cluster, group, topic, partition_assignment_strategy=strategy)
    everybody = [first, second, third]
    poll_until(everybody, lambda: share(everybody, 6), "three members share")
    send(10)
    poll_until(everybody, lambda: len({one for member in everybody for one in member.read}) == 120, "all is read")
    first.close()
    send(10)
    poll_until([second, third], lambda: share([second, third], 6), "two members share")
    poll_until([second, third], lambda: len({one for member in everybody for one in member.read}) == 180, "all is read")
    expected = [TopicPartition(topic, partition) for partition in range(6)]
    committed = third.consumer.committed(expected, TIMEOUT_S)
    assert [one.offset for one in committed] == [30] * 6


def test_a_member_that_is_killed_is_out_when_its_session_ends(cluster: str, make_topic: MakeTopic, join: Join) -> None:
    topic, group = make_topic(4), new_name()
    lost = subprocess.Popen(
        [sys.executable, "-c", LOST, cluster, group, topic, str(SESSION_MS)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert lost.stdout is not None
        assert lost.stdout.readline().strip() == "4"
        member = join(cluster, group, topic)
        poll_until([member], lambda: len(member.owned) == 2, "two members share")
    finally:
        lost.kill()
        lost.wait()
        lost.stdout.close()  # type: ignore[union-attr]
    poll_until([member], lambda: share([member], 4), "the one that is left has all")


def test_a_static_member_comes_back_to_its_partitions_and_nobody_else_notices(
    cluster: str, make_topic: MakeTopic, join: Join
) -> None:
    topic, group = make_topic(4), new_name()
    first = join(cluster, group, topic, group_instance_id="one", session_timeout_ms=30_000)
    second = join(cluster, group, topic, group_instance_id="two", session_timeout_ms=30_000)
    poll_until([first, second], lambda: share([first, second], 4), "two members share")
    before, rebalances = set(second.owned), first.rebalances
    second.close()  # static members do not say that they leave
    back = join(cluster, group, topic, group_instance_id="two", session_timeout_ms=30_000)
    poll_until([first, back], lambda: share([first, back], 4), "it is back")
    assert back.owned == before
    assert first.rebalances == rebalances


def test_a_leader_that_is_static_comes_back_too(cluster: str, make_topic: MakeTopic, join: Join) -> None:
    topic, group = make_topic(4), new_name()
    leader = join(cluster, group, topic, group_instance_id="one", session_timeout_ms=30_000)
    poll_until([leader], lambda: share([leader], 4), "one member has all")
    leader.close()
    back = join(cluster, group, topic, group_instance_id="one", session_timeout_ms=30_000)
    poll_until([back], lambda: share([back], 4), "it is back")


def test_a_static_member_that_was_replaced_is_fenced(cluster: str, make_topic: MakeTopic, join: Join) -> None:
    topic, group = make_topic(2), new_name()
    first = join(cluster, group, topic, group_instance_id="one")
    poll_until([first], lambda: share([first], 2), "one member has all")
    second = join(cluster, group, topic, group_instance_id="one")
    poll_until([second], lambda: share([second], 2), "its place is taken")
    poll_until([first, second], lambda: bool(first.errors), "the first one is told")
    assert first.errors[0].code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)
    with pytest.raises(KafkaException):
        first.consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)


@pytest.mark.parametrize("end", [pytest.param(Process.stop, id="SIGTERM"), pytest.param(Process.kill, id="kill -9")])
def test_a_group_goes_on_over_a_restart_of_its_coordinator(
    node: Process, join: Join, end: Callable[[Process], object]
) -> None:
    topic, group = create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), 4), new_name()
    producer = new_producer(node.bootstrap, reconnect_backoff_max_ms=200)
    members = [join(node.bootstrap, group, topic, session_timeout_ms=30_000) for _ in range(2)]
    poll_until(members, lambda: share(members, 4), "two members share")
    rebalances = [member.rebalances for member in members]
    for partition in range(4):
        produce(producer, topic, [b"v"] * 20, partition=partition)
    poll_until(members, lambda: any(len(member.read) > 5 for member in members), "they read")
    end(node)
    node.start()
    for partition in range(4):
        produce(producer, topic, [b"v"] * 20, partition=partition)

    def is_all_committed() -> bool:
        asked = [TopicPartition(topic, partition) for partition in range(4)]
        return (
            len({one for member in members for one in member.read}) == 160
            and [one.offset for one in members[0].consumer.committed(asked, TIMEOUT_S)] == [40] * 4
        )

    poll_until(members, is_all_committed, "all is read and committed")
    assert share(members, 4)
    assert [member.rebalances for member in members] == rebalances


def test_a_restart_in_the_middle_of_a_rebalance(node: Process, join: Join) -> None:
    """Hazard 13: whoever joined is told to join again, and all of them get there."""
    topic, group = create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), 6), new_name()
    members = [join(node.bootstrap, group, topic)]
    poll_until(members, lambda: share(members, 6), "one member has all")
    members += [join(node.bootstrap, group, topic), join(node.bootstrap, group, topic)]
    for member in members[1:]:
        member.poll()  # the first one is not polled, so that it does not join again
    node.kill()
    node.start()
    poll_until(members, lambda: share(members, 6), "three members share")


def test_groups_are_listed_described_and_deleted(cluster: str, admin: Any, make_topic: MakeTopic, join: Join) -> None:
    topic, group = make_topic(2), new_name()
    members = [join(cluster, group, topic, client_id=f"client-{number}") for number in range(2)]
    poll_until(members, lambda: share(members, 2), "two members share")

    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(TIMEOUT_S)
    assert group in [one.group_id for one in listed.valid]
    assert not listed.errors
    listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(TIMEOUT_S)
    assert group not in [one.group_id for one in listed.valid]

    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    assert sorted(member.client_id for member in described.members) == ["client-0", "client-1"]
    assert {member.host for member in described.members} == {"/127.0.0.1"}
    shown = sorted(one.partition for member in described.members for one in member.assignment.topic_partitions)
    assert shown == [0, 1]

    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP

    members[0].consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    for member in members:
        member.close()
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert described.state is ConsumerGroupState.EMPTY
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    offsets = admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S)
    assert [one.offset for one in offsets.topic_partitions] == [-1001]
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
