"""Classic groups at random: clients that do what Kafka's do, and that die, come back, pause and leave as they please,
while coordinators fail over.

Checked at each step: nobody is told to own what another one owns in the same generation; nobody commits who is of a
generation that was replaced, or whose place was taken; the log tells the same group as the memory. Checked at the end:
when the clients stop changing, the group is stable, those are in it that live, and each partition has one owner.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.classic import ClassicGroup
from headrace.coordinator.groups.classic.groups import from_log
from headrace.coordinator.groups.classic.states import State
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.shard import GroupShard
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from tests.coordinator.classic_script import PARTITIONS, Told, subscription
from tests.coordinator.pure import ManualTimers, PureRuntime, loaded_from

GROUP = "g"
CLIENTS = 5
STATIC = 2
SESSION_MS = 10_000
REBALANCE_MS = 20_000
STARTS_ANEW = (Error.UNKNOWN_MEMBER_ID,)


class Client:
    """One run of a client: when it dies, another one takes its place."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.instance_id = f"i{number}" if number < STATIC else None
        self.protocols = ["range", "sticky"]
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []
        self.leads = False
        self.waits = False
        self.is_dead = False
        self.is_joined = False
        self.owned: bytes | None = None
        self.version = (3, 5, 9)[number % 3]

    def step(self) -> None:
        if self.is_dead or self.waits:
            return
        if not self.is_joined:
            self.join()
        elif self.owned is None:
            self.sync()
        else:
            self.beat()

    def join(self) -> None:
        body = m.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=subscription("t"))
                for name in self.protocols
            ],
        )
        self._ask(
            lambda shard, reply, now_ms: shard.classic.join(body, self.version, "c", "/h", reply, now_ms),
            self._joined,
            m.JoinGroupResponse,
        )

    def _joined(self, response: m.JoinGroupResponse) -> None:
        error = Error(response.error_code)
        if error is Error.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif self._failed(error):
            pass
        else:
            self.is_joined, self.owned = True, None
            self.member_id, self.generation = response.member_id, response.generation_id
            self.leads = response.leader == response.member_id and not response.skip_assignment
            self.members = [member.member_id for member in response.members]
            self.cluster.was_member(self)

    def sync(self) -> None:
        assignments: dict[str, list[int]] = {}
        for partition in range(PARTITIONS) if self.leads else ():
            owner = self.members[(partition + self.generation) % len(self.members)]
            assignments.setdefault(owner, []).append(partition)
        body = m.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(partitions))
                for member_id, partitions in assignments.items()
            ],
        )
        self._ask(
            lambda shard, reply, now_ms: shard.classic.sync(body, reply, now_ms), self._synced, m.SyncGroupResponse
        )

    def _synced(self, response: m.SyncGroupResponse) -> None:
        if not self._failed(Error(response.error_code)):
            self.owned = response.assignment
            self.cluster.owns(self, response.assignment)

    def beat(self) -> None:
        body = m.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        if not self.cluster.runtime.shard.classic.is_alive(body, self.cluster.runtime.now_ms):
            self._ask(
                lambda shard, reply, now_ms: shard.classic.heartbeat(body, reply, now_ms),
                lambda response: self._failed(Error(response.error_code)),
                m.HeartbeatResponse,
            )

    def leave(self) -> None:
        identity = m.LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        body = m.LeaveGroupRequest(group_id=GROUP, members=[identity])
        self.is_dead = True
        if self.member_id:
            reply = Told(lambda response: None, lambda error: m.LeaveGroupResponse(error_code=error))
            self.cluster.runtime.ask(lambda shard, now_ms: shard.classic.leave(body, 5, reply, now_ms), reply)
            self.cluster.left(self)

    def _failed(self, error: Error) -> bool:
        if error:
            self.is_joined, self.owned = False, None
            assert error is not Error.FENCED_INSTANCE_ID, "there is one of each at a time"
            if error in STARTS_ANEW:
                self.member_id = ""
        return bool(error)

    def _ask(self, operation: Any, hear: Any, response: type[Message]) -> None:
        def heard(message: Message) -> None:
            if not self.is_dead:
                self.waits = False
                hear(message)

        self.waits = True
        reply = Told(heard, lambda error: response(error_code=error))  # type: ignore[call-arg]
        self.cluster.runtime.ask(partial(_with_reply, operation, reply), reply)


def _with_reply(operation: Any, reply: Told, shard: GroupShard, now_ms: int) -> Any:
    return operation(shard, reply, now_ms)


class Cluster:
    def __init__(self) -> None:
        self._ids = 0
        self.runtime = PureRuntime(self.make)
        self.clients = [Client(self, number) for number in range(CLIENTS)]
        self.owners: dict[tuple[int, int], str] = {}
        """Of generation and partition."""
        self.assigned_generation = 0
        """The last one that somebody was assigned something in."""
        self.identities: list[tuple[str, str | None, int]] = []
        """Everybody who ever was in a generation."""
        self.fenced: set[str] = set()
        """Member ids of static members that were replaced."""
        self.gone: set[str] = set()
        """Member ids of those that left. The log hears of them with the next generation: until then they own what they
        owned, and it does no harm if another coordinator still takes their commits."""
        self.latest: dict[str, str] = {}

    def make(self, timers: ManualTimers) -> GroupShard:
        return GroupShard(
            GroupContext(
                timers, group_config=GroupConfig(), offsets_config=OffsetsConfig(), random_bytes=self._random_bytes
            )
        )

    def _random_bytes(self, count: int) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(count)

    def was_member(self, client: Client) -> None:
        self.identities.append((client.member_id, client.instance_id, client.generation))
        if client.instance_id is not None:
            before = self.latest.get(client.instance_id)
            if before is not None and before != client.member_id:
                self.fenced.add(before)
            self.latest[client.instance_id] = client.member_id

    def left(self, client: Client) -> None:
        self.gone.add(client.member_id)

    def owns(self, client: Client, partitions: bytes) -> None:
        self.assigned_generation = max(self.assigned_generation, client.generation)
        who = client.instance_id or client.member_id
        for partition in partitions:
            owner = self.owners.setdefault((client.generation, partition), who)
            assert owner == who, f"{owner} and {who} own {partition} in generation {client.generation}"

    def commit(self, number: int) -> None:
        """Somebody who was in some generation, once, commits."""
        group = self.group
        if not self.identities or group is None:
            return
        member_id, instance_id, generation = self.identities[number % len(self.identities)]
        try:
            group.validate_commit(member_id, instance_id, generation, 9, (), is_transactional=False)
        except Refused:
            return
        assert generation >= self.assigned_generation, "a generation that was replaced has committed"
        assert member_id not in self.fenced, "a member whose place was taken has committed"
        assert member_id not in self.gone, "a member that has left has committed"

    @property
    def group(self) -> ClassicGroup | None:
        group = self.runtime.shard.context.groups.get(GROUP)
        return group if isinstance(group, ClassicGroup) else None

    def check_log(self) -> None:
        loaded: Any = loaded_from(self.make, ManualTimers(), self.runtime.log)
        group, from_log_group = self.group, loaded.context.groups.get(GROUP)
        if group is None or group.stored is None:
            assert from_log_group is None
            return
        assert from_log_group.stored == group.stored
        if group.phase in (State.STABLE, State.EMPTY):
            assert told(from_log_group) == told(group)
        assert told(from_log(GROUP, group.stored)) == told(from_log_group)


def told(group: ClassicGroup) -> list[Any]:
    return [
        group.phase,
        group.generation,
        group.protocol,
        group.protocol_type,
        group.leader,
        group.instances,
        {
            id: (member.assignment, member.protocols.get(group.protocol or ""), member.session_timeout_ms)
            for id, member in group.members.items()
        },
    ]


client_numbers = st.integers(0, CLIENTS - 1)
steps = st.one_of(
    st.tuples(st.just("step"), client_numbers),
    st.tuples(st.just("step"), client_numbers),
    st.tuples(st.just("all step"), st.just(0)),
    st.tuples(st.just("settle"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from([0, 1000, 3000, 9000, 10_000, 20_000, 60_000])),
    st.tuples(st.just("wait"), st.sampled_from([0, 1000, 3000])),
    st.tuples(st.just("restart"), client_numbers),
    st.tuples(st.just("leave"), client_numbers),
    st.tuples(st.just("change"), client_numbers),
    st.tuples(st.just("commit"), st.integers(0, 50)),
    st.tuples(st.just("fail over"), st.just(0)),
)


def take(cluster: Cluster, what: str, number: int) -> None:
    client = cluster.clients[number % CLIENTS]
    match what:
        case "step":
            client.step()
        case "all step":
            for one in cluster.clients:
                one.step()
        case "settle":
            for _ in range(number):
                take(cluster, "all step", 0)
                take(cluster, "wait", 3000)
        case "wait":
            cluster.runtime.wait(number)
        case "restart":
            client.is_dead = True
            cluster.clients[client.number] = Client(cluster, client.number)
        case "leave":
            client.leave()
            cluster.clients[client.number] = Client(cluster, client.number)
        case "change":
            client.protocols = client.protocols[::-1]
            if not client.waits and not client.is_dead:
                client.join()
        case "commit":
            cluster.commit(number)
        case "fail over":
            cluster.gone.clear()
            cluster.runtime.fail_over()


@given(st.lists(steps, max_size=60), st.integers(1, CLIENTS), st.integers(0, 6))
def test_groups_keep_their_promises_whatever_happens(
    script: list[tuple[str, int]], survivors: int, settled: int
) -> None:
    cluster = Cluster()
    take(cluster, "settle", settled)
    for what, number in script:
        take(cluster, what, number)
        cluster.check_log()
    for client in cluster.clients[survivors:]:
        client.is_dead = True
    check_that_it_converges(cluster, cluster.clients[:survivors])


def check_that_it_converges(cluster: Cluster, living: list[Client]) -> None:
    for _ in range(100):
        for client in living:
            client.step()
        cluster.runtime.wait(2000)
    group = cluster.group
    assert group is not None
    assert group.phase is State.STABLE
    assert sorted(group.members) == sorted(client.member_id for client in living)
    assert sorted(partition for client in living for partition in client.owned or b"") == list(range(PARTITIONS))
    cluster.check_log()
    for number in range(len(cluster.identities)):
        cluster.commit(number)
