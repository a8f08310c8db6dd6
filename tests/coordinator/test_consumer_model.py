"""Groups of the new protocol at random: clients that lose requests and replies, come, go, stall and change their minds.

Whatever happens: no two clients that the coordinator counts as members consume from the same partition; a client in the
group may always commit what it owns, in the epoch that it knows (KIP-1251), and nobody in an epoch after which it was
without the partition (hazard 13); when the clients stop changing, everyone has what the target says, and that is all
there is; and a coordinator that reads the log knows the same (fail-overs are part of it).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.consumer import decision
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.shard import GroupShard
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from tests.coordinator.clusters import ToyCluster
from tests.coordinator.pure import Answer, ManualTimers, PureRuntime, loaded_from

GROUP = "g"
TOPICS = ("t", "u", "v")
FENCES = (Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID, Error.GROUP_ID_NOT_FOUND)
Partition = tuple[bytes, int]


class Client:
    """A consumer as librdkafka and the Java client are: it gives up first, then takes, and says so when it did."""

    def __init__(self, name: str, number: int, instance_id: str | None) -> None:
        self.member_id = f"{name}-{number}"
        self.instance_id = instance_id
        self.epoch = 0
        self.names: list[str] | None = ["t"]
        self.regex: str | None = None
        self.rack: str | None = None
        self.shall: set[Partition] = set()
        self.owns: set[Partition] = set()
        self.must_tell = True
        """A full heartbeat is due: at first, and whenever a reply did not come."""
        self.has_news = False

    def request(self) -> m.ConsumerGroupHeartbeatRequest:
        body = m.ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self.must_tell or self.has_news:
            body.topic_partitions = [
                m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic, partitions=[index])
                for topic, index in sorted(self.owns)
            ]
        if self.must_tell:
            body.rebalance_timeout_ms = 60_000
            body.subscribed_topic_names = self.names
            body.subscribed_topic_regex = self.regex or ""
            body.rack_id = self.rack
        return body

    def hear(self, response: m.ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code in FENCES:
            self.epoch, self.owns, self.shall, self.must_tell = 0, set(), set(), True
            return
        if response.error_code == Error.UNRELEASED_INSTANCE_ID:
            return
        if response.error_code == Error.FENCED_INSTANCE_ID and self.epoch < 0:
            return  # it leaves, and never came in: its instance is in use
        assert not response.error_code, response
        self.epoch = response.member_epoch
        self.must_tell = self.has_news = False
        if response.assignment is not None:
            self.shall = {(t.topic_id, p) for t in response.assignment.topic_partitions for p in t.partitions}
            if self.owns <= self.shall:
                self.has_news = self.owns != self.shall
                self.owns = set(self.shall)

    def reconcile(self) -> None:
        """Its application was told, and let go."""
        if self.owns != self.shall:
            self.owns = set(self.shall)
            self.has_news = True


class Model:
    def __init__(self) -> None:
        self.cluster = ToyCluster({0: "x", 1: "y"})
        self.runtime = PureRuntime(self._make, self.cluster.image)
        self.clients: dict[str, Client] = {}
        self.number = 0
        self.epochs: dict[str, int] = {}
        """The last that each member was seen in."""
        self.fenced: dict[tuple[str, Partition], int] = {}
        """In an epoch before this one a member can't commit the partition: it was another's since, or nobody's."""
        self.change(self.cluster.topic("t", 3, [0, 1]))

    def _make(self, timers: ManualTimers) -> GroupShard:
        return GroupShard(
            GroupContext(
                timers,
                group_config=GroupConfig(),
                offsets_config=OffsetsConfig(),
                random_bytes=lambda count: bytes(count),
            )
        )

    @property
    def group(self) -> ConsumerGroup:
        found = self.runtime.shard.context.groups.get(GROUP)
        return found if isinstance(found, ConsumerGroup) else ConsumerGroup(GROUP)

    def change(self, delta: Any) -> None:
        self.runtime.change(delta, self.cluster.image)

    def beat(self, name: str, *, is_lost: bool = False, is_reply_lost: bool = False) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        request = client.request()
        if is_lost:
            client.must_tell = True
            return
        answer = Answer()
        self.runtime.ask(lambda shard, now_ms: shard.consumer.heartbeat(request, 1, "c", "/h", answer, now_ms), answer)
        if is_reply_lost:
            client.must_tell = True
        else:
            client.hear(answer.message)

    def step(self, action: str, name: str, choice: int) -> None:
        client = self.clients.get(name)
        match action:
            case "join" if client is None:
                self.number += 1
                self.clients[name] = Client(name, self.number, f"i-{name}" if choice % 3 == 0 else None)
                self.beat(name)
            case "beat":
                self.beat(name)
            case "lose request":
                self.beat(name, is_lost=True)
            case "lose reply":
                self.beat(name, is_reply_lost=True)
            case "reconcile" if client is not None:
                client.reconcile()
            case "leave" if client is not None:
                epoch = -2 if client.instance_id and choice % 2 else -1
                client.epoch, client.owns, client.must_tell = epoch, set(), False
                self.beat(name)
                del self.clients[name]
            case "crash" if client is not None:
                del self.clients[name]
            case "wish" if client is not None:
                client.names, client.regex = ((["t"], None), (["t", "u"], None), ([], "[tu]"), (["v"], "t"))[choice % 4]
                client.rack = (None, "x", "y")[choice % 3]
                client.must_tell = True
            case "wait":
                self.runtime.wait((1000, 20_000, 46_000)[choice % 3])
            case "topic":
                topic = TOPICS[choice % 3]
                found = self.cluster.image.topic(topic)
                if found is not None and choice % 4 == 0:
                    self.change(self.cluster.delete(topic))
                else:
                    self.change(self.cluster.topic(topic, (0 if found is None else len(found.partitions)) + 2, [0, 1]))
            case "fail over":
                self.runtime.fail_over()
        self.check()

    def check(self) -> None:
        group, owners = self.group, dict[Partition, str]()
        for client in self.clients.values():
            member = group.members.get(client.member_id)
            if member is None:
                continue  # it was taken for gone: whatever it still does, it can't commit
            for partition in client.owns:
                assert partition not in owners, f"{owners[partition]} and {client.member_id} own {partition}"
                owners[partition] = client.member_id
            assert not client.owns or may_commit(group, client.member_id, client.epoch, client.owns)
        self.check_fences()

    def check_fences(self) -> None:
        group, image = self.group, self.cluster.image
        partitions = [(topic.id, index) for topic in image.topics.values() for index in topic.partitions]
        for member_id, epoch in self.epochs.items():
            if member_id not in group.members:
                self.fenced |= {(member_id, partition): epoch + 1 for partition in partitions}
        for member_id, member in group.members.items():
            epoch = self.epochs[member_id] = max(self.epochs.get(member_id, 0), member.current.epoch)
            for topic, index in partitions:
                key = (member_id, (topic, index))
                if group.owners.get(topic, {}).get(index) != member_id:
                    self.fenced[key] = epoch
                assert not may_commit(group, member_id, self.fenced.get(key, 0) - 1, [(topic, index)])

    def converge(self) -> None:
        self.runtime.wait(50_000)  # who is gone is forgotten; who is not says that it is not
        for _ in range(24):
            self.runtime.wait(2_000)
            for name in list(self.clients):
                self.beat(name)
                self.check()
                self.clients[name].reconcile()
                self.check()
        group, image = self.group, self.cluster.image
        assert group.members.keys() == {client.member_id for client in self.clients.values()}
        assert group.state == ("Stable" if self.clients else "Empty")
        wanted: set[Partition] = set()
        for client in self.clients.values():
            assert client.owns == client.shall == _flat(group.target(client.member_id))
            names = {*(client.names or ()), *({"[tu]": "tu", "t": "t"}.get(client.regex or "", ""))}
            wanted |= {(t.id, p) for t in image.topics.values() if t.name in names for p in t.partitions}
        owned = [partition for client in self.clients.values() for partition in client.owns]
        assert sorted(owned) == sorted(wanted)
        written = len(self.runtime.log)
        for name in self.clients:
            self.beat(name)
        assert len(self.runtime.log) == written, "a heartbeat that says nothing new writes nothing"

    def check_replay(self) -> None:
        again: Any = loaded_from(self._make, ManualTimers(), self.runtime.log)
        assert _state(again.context.groups.get(GROUP)) == _state(self.runtime.shard.context.groups.get(GROUP))


def may_commit(group: ConsumerGroup, member_id: str, epoch: int, partitions: Iterable[Partition]) -> bool:
    try:
        group.validate_commit(member_id, None, epoch, 9, partitions, is_transactional=False)
    except Refused as refused:
        assert refused.error is Error.STALE_MEMBER_EPOCH
        return False
    return True


def _flat(assignment: Any) -> set[Partition]:
    return {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}


def _state(group: Any) -> Any:
    if group is None:
        return None
    volatile = {"members", "seen_topics", "times", "configs", "assign_after_ms", "restless_until_ms"}
    told = {name: getattr(group, name) for name in ConsumerGroup.__slots__ if name not in volatile}
    return told, {member.id: (member.subscription, member.current) for member in group.members.values()}


ACTIONS = (
    *("join", "beat", "reconcile") * 3,
    *("beat", "lose request", "lose reply", "leave", "crash", "wish", "wait", "topic", "fail over"),
)
steps = st.tuples(st.sampled_from(ACTIONS), st.sampled_from("abcd"), st.integers(0, 11))


def go_through(taken: list[tuple[str, str, int]]) -> None:
    model = Model()
    for action, name, choice in taken:
        model.step(action, name, choice)
    model.check_replay()
    model.converge()
    model.check_replay()


@given(st.lists(steps, max_size=60))
def test_a_partition_has_one_owner_and_groups_converge_whatever_happens(taken: list[tuple[str, str, int]]) -> None:
    go_through(taken)


@given(st.lists(steps, max_size=60))
def test_so_they_do_where_assignments_are_made_for_many_changes_at_once(taken: list[tuple[str, str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "pause_ms", lambda count: 15_000)
        go_through(taken)


def test_a_late_heartbeat_of_the_epoch_before_gives_nothing_up() -> None:
    """It is taken for a retry, and was sent before the member owned anything: what it says of that is not believed."""
    model = Model()
    model.step("join", "a", 1)
    model.step("join", "b", 1)
    late = model.clients["b"].request()
    late.member_epoch, late.topic_partitions = model.clients["b"].epoch, []
    for name in "aabb":
        model.step("beat", name, 0)
        model.step("reconcile", name, 0)
    model.step("join", "c", 1)
    for name in "abab":
        model.step("beat", name, 0)
        model.step("reconcile", name, 0)
    assert model.clients["b"].owns
    model.step("join", "d", 1)
    answer = Answer()
    model.runtime.ask(lambda shard, now_ms: shard.consumer.heartbeat(late, 1, "c", "/h", answer, now_ms), answer)
    for name in "cdacd":
        model.step("beat", name, 0)
    model.converge()
