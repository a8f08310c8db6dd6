"""Groups whose members speak both protocols, at random: they go over and back, and no partition is read by two.

Classic members are cooperative: they keep what they have while they join, give up what they are not given, and join
again then. The leader of a classic group gives nobody what another says that it owns.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.classic import ClassicGroup
from headrace.coordinator.groups.consumer.embedded import read_assignment, read_subscription, write_assignment
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.shard import GroupShard
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from headrace.protocol.codec import encode_bytes
from tests.coordinator.classic_script import Told
from tests.coordinator.clusters import ToyCluster, topic_id
from tests.coordinator.pure import ManualTimers, PureRuntime
from tests.coordinator.test_consumer_model import GROUP, Client, Partition

TOPIC = "t"
PARTITIONS = 5


class ClassicClient:
    """A consumer of the classic protocol with a cooperative assignor."""

    def __init__(self, model: MixedModel, instance_id: str | None) -> None:
        self._model = model
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = -1
        self.owns: set[Partition] = set()
        self.is_joined = False
        self._is_waiting = False

    def step(self) -> None:
        """Whatever it does next: it waits for an answer, joins, or says that it is alive."""
        if not self._is_waiting:
            if self.is_joined:
                body = m.HeartbeatRequest(
                    group_id=GROUP,
                    member_id=self.member_id,
                    generation_id=self.epoch,
                    group_instance_id=self.instance_id,
                )
                self._ask(lambda shard, now_ms, told: shard.classic.heartbeat(body, told, now_ms), self._beaten)
            else:
                self._join()

    def leave(self) -> None:
        who = m.LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        body = m.LeaveGroupRequest(group_id=GROUP, members=[who])
        self.owns = set()
        self._ask(lambda shard, now_ms, told: shard.classic.leave(body, 5, told, now_ms), lambda response: None)

    def _join(self) -> None:
        kind = m.ConsumerProtocolSubscription
        subscription = kind(
            topics=[TOPIC],
            owned_partitions=[kind.TopicPartition(topic=TOPIC, partitions=sorted(index for _, index in self.owns))],
            generation_id=self.epoch,
        )
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(
            name="cooperative-sticky", metadata=(3).to_bytes(2) + encode_bytes(subscription, 3)
        )
        body = m.JoinGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=5_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self._ask(lambda shard, now_ms, told: shard.classic.join(body, 9, "c", "/h", told, now_ms), self._joined)

    def _joined(self, response: m.JoinGroupResponse) -> None:
        match response.error_code:
            case Error.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            case Error.NONE:
                self.member_id, self.epoch = response.member_id, response.generation_id
                self._sync(response.members)
            case _:
                self._refused(response.error_code)

    def _sync(self, members: list[Any]) -> None:
        body = m.SyncGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.epoch,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=write_assignment({topic_id(TOPIC): tuple(own)}, 3, self._model.cluster.image),
                )
                for member_id, own in assigned(members).items()
            ],
        )
        self._ask(lambda shard, now_ms, told: shard.classic.sync(body, told, now_ms), self._synced)

    def _synced(self, response: m.SyncGroupResponse) -> None:
        if response.error_code:
            self._refused(response.error_code)
            return
        given_to = read_assignment(response.assignment, self._model.cluster.image)
        shall = {(topic, index) for topic, indexes in given_to.items() for index in indexes}
        self.is_joined = self.owns <= shall  # who gives something up joins again
        self.owns = self.owns & shall if not self.is_joined else shall

    def _beaten(self, response: m.HeartbeatResponse) -> None:
        if response.error_code:
            self._refused(response.error_code)

    def _refused(self, error: int) -> None:
        self.is_joined = False
        if error != Error.REBALANCE_IN_PROGRESS:
            self.owns, self.epoch = set(), -1
        if error in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
            self.member_id = ""

    def _ask(self, ask: Any, hear: Any) -> None:
        self._is_waiting = True

        def told(response: Any) -> None:
            self._is_waiting = False
            if self._model.clients.get(self._model.names.get(id(self), "")) is self:
                hear(response)

        reply: Any = Told(told, lambda error: m.HeartbeatResponse(error_code=error))
        self._model.runtime.ask(lambda shard, now_ms: ask(shard, now_ms, reply), reply)


def assigned(members: list[Any]) -> dict[str, list[int]]:
    """What the leader of a classic group works out: fair shares, and nothing that another owns still."""
    newest = max((read_subscription(one.metadata).generation_id for one in members), default=-1)
    claims: dict[int, str] = {}
    for one in members:
        said = read_subscription(one.metadata)
        if said.generation_id == newest:
            for topic in said.owned_partitions:
                for index in topic.partitions:
                    claims.setdefault(index, one.member_id)
    shares: dict[str, list[int]] = {one.member_id: [] for one in members}
    most = -(-PARTITIONS // len(members)) if members else 0
    for index, owner in claims.items():
        if len(shares[owner]) < most:
            shares[owner].append(index)
    for index in range(PARTITIONS):
        if index not in claims and members:
            least = min(shares, key=lambda member_id: (len(shares[member_id]), member_id))
            shares[least].append(index)
    return shares


class MixedModel:
    def __init__(self) -> None:
        self.cluster = ToyCluster()
        self.cluster.topic(TOPIC, PARTITIONS)
        self.runtime = PureRuntime(self._make, self.cluster.image)
        self.clients: dict[str, Client | ClassicClient] = {}
        self.names: dict[int, str] = {}
        self._number = 0

    def _make(self, timers: ManualTimers) -> GroupShard:
        self._number = getattr(self, "_number", 0)

        def random_bytes(count: int) -> bytes:
            self._number += 1
            return self._number.to_bytes(count, "big")

        config = GroupConfig(group_initial_rebalance_delay_ms=0)
        context = GroupContext(timers, group_config=config, offsets_config=OffsetsConfig(), random_bytes=random_bytes)
        return GroupShard(context)

    def beat(self, name: str) -> None:
        client = self.clients.get(name)
        if isinstance(client, ClassicClient):
            client.step()
        elif client is not None:
            told: list[Any] = []
            body, kept = client.request(), client
            reply: Any = Told(told.append, lambda error: m.ConsumerGroupHeartbeatResponse(error_code=error))
            self.runtime.ask(lambda shard, now_ms: shard.consumer.heartbeat(body, 1, "c", "/h", reply, now_ms), reply)
            kept.hear(told[0])
            kept.reconcile()

    def step(self, action: str, name: str, choice: int) -> None:
        client = self.clients.get(name)
        if action in ("join", "classic") and client is None:
            instance_id = f"i-{name}" if choice % 4 == 0 else None
            made: Client | ClassicClient
            if action == "join":
                self._number += 1
                made = Client(name, self._number, instance_id)
            else:
                made = ClassicClient(self, instance_id)
            self.clients[name] = made
            self.names[id(made)] = name
        if action == "leave" and client is not None:
            if isinstance(client, ClassicClient):
                client.leave()
            else:
                client.epoch, client.owns, client.must_tell = -1, set(), False
                self.beat(name)
            del self.clients[name]
        elif action == "crash" and client is not None:
            del self.clients[name]
        elif action == "wait":
            self.runtime.wait((10, 1000, 6000)[choice % 3])
        elif action == "fail over":
            self.runtime.fail_over()
        else:
            self.beat(name)
        self.check()

    def check(self) -> None:
        group: Any = self.runtime.shard.context.groups.get(GROUP)
        if not isinstance(group, ClassicGroup | ConsumerGroup):
            return
        owners: dict[Partition, str] = {}
        for name, client in self.clients.items():
            if client.member_id not in group.members:
                continue
            try:
                group.validate_commit(
                    client.member_id, client.instance_id, client.epoch, 9, client.owns, is_transactional=False
                )
            except Refused:
                continue  # what it reads can't be committed: it will hear of that
            for partition in client.owns:
                assert partition not in owners, f"{owners[partition]} and {name} own {partition}"
                owners[partition] = name

    def converge(self) -> None:
        for _ in range(40):
            self.runtime.wait(2_000)
            for name in list(self.clients):
                self.beat(name)
                self.check()
        group: Any = self.runtime.shard.context.groups.get(GROUP)
        if not self.clients:
            return
        assert group.state == "Stable", group.state
        owned = sorted(partition for client in self.clients.values() for partition in client.owns)
        assert owned == [(topic_id(TOPIC), index) for index in range(PARTITIONS)]
        loads = [len(client.owns) for client in self.clients.values()]
        assert max(loads) - min(loads) <= 1 or isinstance(group, ClassicGroup)


ACTIONS = (*("join", "classic", "beat", "beat", "beat") * 2, "leave", "crash", "wait", "wait", "fail over")
steps = st.tuples(st.sampled_from(ACTIONS), st.sampled_from("abcd"), st.integers(0, 11))


@given(st.lists(steps, max_size=60))
def test_members_of_both_protocols_share_a_group_whatever_happens(taken: list[tuple[str, str, int]]) -> None:
    model = MixedModel()
    for action, name, choice in taken:
        model.step(action, name, choice)
    model.converge()
