"""Scripts of classic groups: a line is a command, the indented lines below it are who was answered what.

    settings max.size=2           of the groups (`group.` is left out), before anybody joins
    join a [topics=t] ...         a client joins, and again when it is given a member id; see `do_join` for the rest
    join a once                   it does not follow up on the member id
    sync a [b=0,1]                it asks for its assignment; the leader hands one in: the named one, or 4 partitions in
                                  turns
    beat a [generation=7]         a heartbeat
    commit a [generation=7]       may it commit an offset?
    leave a b [instance=i]        members leave in one request
    restart a                     the client starts anew: it knows its instance id and nothing else
    wait 3000                     time passes, in milliseconds
    fail-over                     another node loads the groups from the log
    show                          the group as it is in memory
    log                           what was written since the last time

There is one group. Clients are called by their names wherever Kafka has member ids; `a'` is one that `a` had before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.classic import ClassicGroup
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.shard import GroupShard
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from headrace.protocol.codec import encode_bytes
from headrace.protocol.message import Message
from headrace.protocol.shape import Kind
from headrace.protocol.state import decode_key, decode_value
from tests.coordinator.pure import Answer, ManualTimers, PureRuntime

GROUP = "g"
PARTITIONS = 4


def subscription(topics: str) -> bytes:
    return bytes(2) + encode_bytes(m.ConsumerProtocolSubscription(topics=topics.split(",")), 0)


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.instance_id: str | None = None
        self.generation = -1
        self.members: list[str] = []
        self.joined: dict[str, str] = {}
        """How it joined the last time."""


class Told(Answer):
    """A reply that writes down what the client hears."""

    def __init__(self, hear: Callable[[Any], None], refuse: Callable[[Error], Message]) -> None:
        super().__init__()
        self._hear = hear
        self._refuse = refuse
        self._is_done = False

    def __call__(self, message: Message, /) -> None:
        assert not self._is_done, "a request has one reply"
        self._is_done = True
        self._hear(message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        self(self._refuse(error))


class ClassicScript:
    def __init__(self) -> None:
        self.out: list[str] = []
        self.clients: dict[str, Client] = {}
        self.names: dict[str, str] = {}
        self._config: dict[str, Any] = {}
        self._runtime: PureRuntime | None = None
        self._ids = 0
        self._logged = 0

    def command(self, line: str) -> list[str]:
        name, *words = line.split()
        plain = [word for word in words if "=" not in word]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        getattr(self, "do_" + name.replace("-", "_"))(*plain, **{key.replace(".", "_"): v for key, v in named.items()})
        out, self.out = self.out, []
        return [self._named(line) for line in out]

    def _named(self, line: str) -> str:
        """A leader hears of members before they hear of themselves."""
        for member_id, name in self.names.items():
            line = line.replace(member_id, name) if member_id else line
        return line

    @property
    def runtime(self) -> PureRuntime:
        if self._runtime is None:
            self._runtime = PureRuntime(self._make)
        return self._runtime

    def _make(self, timers: ManualTimers) -> GroupShard:
        config = GroupConfig(**self._config)
        return GroupShard(
            GroupContext(timers, group_config=config, offsets_config=OffsetsConfig(), random_bytes=self._random_bytes)
        )

    def _random_bytes(self, count: int) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(count)

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def _name(self, member_id: str) -> str:
        return self.names.get(member_id, member_id)

    # ---------------------------------------------------------------------------------------------------- the commands

    def do_settings(self, **values: str) -> None:
        self._config = {f"group_{name}": int(value) for name, value in values.items()}

    def do_join(self, name: str, once: str = "", **how: str) -> None:
        """How: topics=t,u  protocols=range,sticky  type=consumer  instance=i  version=9  session=10000
        rebalance=60000 (time-outs)  id=other (as another client, or as `nobody`); as the last time, where not said."""
        client = self._client(name)
        how = client.joined | how
        client.joined = {key: value for key, value in how.items() if key != "id"}
        client.instance_id = how.get("instance")
        member_id = self.clients[how["id"]].member_id if how.get("id") in self.clients else how.get("id")
        body = m.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(how.get("session", "10000")),
            rebalance_timeout_ms=int(how.get("rebalance", "60000")),
            member_id=client.member_id if member_id is None else member_id,
            group_instance_id=client.instance_id,
            protocol_type=how.get("type", "consumer"),
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(
                    name=protocol, metadata=subscription(how.get("topics", "t"))
                )
                for protocol in how.get("protocols", "range").split(",")
                if protocol
            ],
        )
        version = int(how.get("version", "9"))
        reply = Told(partial(self._joined, client, bool(once)), lambda error: m.JoinGroupResponse(error_code=error))
        self.runtime.ask(
            lambda shard, now_ms: shard.classic.join(body, version, client.name, "/127.0.0.1", reply, now_ms), reply
        )

    def _joined(self, client: Client, once: bool, response: m.JoinGroupResponse) -> None:
        error = Error(response.error_code)
        if error is Error.MEMBER_ID_REQUIRED or not error:
            if client.member_id and client.member_id != response.member_id:
                self.names[client.member_id] = client.name + "'"
            client.member_id = response.member_id
            self.names[response.member_id] = client.name
        if error is Error.MEMBER_ID_REQUIRED and not once:
            self.do_join(client.name)
            return
        if error:
            self._hear(client, "join", error.name)
            return
        client.generation = response.generation_id
        client.members = [member.member_id for member in response.members]
        words = [f"generation {response.generation_id}", str(response.protocol_name)]
        if response.leader == response.member_id:
            words.append("leads " + " ".join(self._name(member_id) for member_id in client.members))
        else:
            words.append(f"follows {self._name(response.leader)}")
        if response.skip_assignment:
            words.append("assigns nothing")
        self._hear(client, "join", ", ".join(words))

    def do_sync(self, name: str, **how: str) -> None:
        client = self._client(name)
        generation = int(how.pop("generation", client.generation))
        protocol, protocol_type = how.pop("protocol", None), how.pop("type", None)
        owned: dict[str, list[int]] = {}
        members = sorted(client.members, key=self._name)
        for partition in range(PARTITIONS) if members and not how else ():
            owned.setdefault(members[partition % len(members)], []).append(partition)
        for other, partitions in how.items():
            owned[self.clients[other].member_id] = [int(partition) for partition in partitions.split(",")]
        body = m.SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(partitions))
                for member_id, partitions in owned.items()
            ],
        )
        reply = Told(partial(self._synced, client), lambda error: m.SyncGroupResponse(error_code=error))
        self.runtime.ask(lambda shard, now_ms: shard.classic.sync(body, reply, now_ms), reply)

    def _synced(self, client: Client, response: m.SyncGroupResponse) -> None:
        if error := Error(response.error_code):
            self._hear(client, "sync", error.name)
        else:
            self._hear(client, "sync", "owns " + (" ".join(map(str, response.assignment)) or "nothing"))

    def do_beat(self, name: str, generation: str | None = None) -> None:
        client = self._client(name)
        body = m.HeartbeatRequest(
            group_id=GROUP,
            generation_id=client.generation if generation is None else int(generation),
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )
        if self.runtime.shard.classic.is_alive(body, self.runtime.now_ms):
            self._hear(client, "beat", "NONE")
            return
        reply = Told(
            lambda response: self._hear(client, "beat", Error(response.error_code).name),
            lambda error: m.HeartbeatResponse(error_code=error),
        )
        self.runtime.ask(lambda shard, now_ms: shard.classic.heartbeat(body, reply, now_ms), reply)

    def do_commit(self, name: str, generation: str | None = None, in_transaction: str = "no") -> None:
        client = self._client(name)
        group = self.runtime.shard.context.groups.get(GROUP)
        try:
            if group is None:
                raise Refused(Error.GROUP_ID_NOT_FOUND)
            group.validate_commit(
                client.member_id,
                client.instance_id,
                client.generation if generation is None else int(generation),
                9,
                (),
                is_transactional=in_transaction == "yes",
            )
            group.committed(client.member_id, self.runtime.now_ms)
            self._hear(client, "commit", "NONE")
        except Refused as refused:
            self._hear(client, "commit", refused.error.name)

    def do_leave(self, *names: str, instance: str | None = None, version: str = "5") -> None:
        identity = m.LeaveGroupRequest.MemberIdentity
        clients = [self._client(name) for name in names]
        who = [identity(member_id=one.member_id, group_instance_id=one.instance_id) for one in clients]
        if instance is not None:
            who.append(identity(member_id="", group_instance_id=instance))
        if int(version) < 3:
            body = m.LeaveGroupRequest(group_id=GROUP, member_id=who[0].member_id)
        else:
            body = m.LeaveGroupRequest(group_id=GROUP, members=who)

        def hear(response: m.LeaveGroupResponse) -> None:
            told = [member.error_code for member in response.members] or [response.error_code]
            for name, error in zip([*names, *([instance] if instance else [])], told, strict=False):
                self.out.append(f"{name} leave: {Error(error).name}")

        reply = Told(hear, lambda error: m.LeaveGroupResponse(error_code=error))
        self.runtime.ask(lambda shard, now_ms: shard.classic.leave(body, int(version), reply, now_ms), reply)

    def do_restart(self, name: str) -> None:
        client = self._client(name)
        self.names[client.member_id] = name + "'"
        client.member_id, client.generation, client.members = "", -1, []

    def do_wait(self, pause_ms: str) -> None:
        self.runtime.wait(int(pause_ms))

    def do_fail_over(self) -> None:
        self.runtime.fail_over()

    def do_show(self) -> None:
        group = self.runtime.shard.context.groups.get(GROUP)
        if group is None:
            self.out.append("no group")
            return
        words = [group.state]
        if isinstance(group, ClassicGroup):
            words.append(f"generation {group.generation}")
            words += [self._name(id) + ("*" if id == group.leader else "") for id in group.members]
            if group.pending:
                words.append(f"{len(group.pending)} pending")
        self.out.append("  ".join(words))

    def do_log(self) -> None:
        for record, _, _ in self.runtime.log[self._logged :]:
            key = decode_key(Kind.GROUP, record.key)
            assert key is not None
            if record.value is None:
                self.out.append("tombstone")
                continue
            value: Any = decode_value(Kind.GROUP, key, record.value)
            owned = [
                f"{self._name(member.member_id)}: {' '.join(map(str, member.assignment))}" for member in value.members
            ]
            self.out.append(f"generation {value.generation}" + "".join(f"  {one}" for one in owned))
        self._logged = len(self.runtime.log)

    def _hear(self, client: Client, what: str, told: str) -> None:
        self.out.append(f"{client.name} {what}: {told}")
