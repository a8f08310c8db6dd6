"""Scripts of consumer groups: a line is a command, the indented lines below it are what came of it.

    settings consumer.max.size=2  of the groups (`group.` is left out), before anybody joins
    topic t 4 [at=0,1]            it is created with so many partitions, or grows; at these brokers in turns
    brokers 0=x 1=y               brokers and their racks, at the beginning
    delete t                      it is deleted
    new-leader t                  a partition of it has a new leader
    config NAME [VALUE]           a setting of the group
    record-limit 1000             so many bytes may be written at once
    join a [topics=t,u] ...       a member sends everything and epoch 0; see `_beat` for what it may send
    beat a [epoch=7] ...          a heartbeat: in the epoch that it was told, and if it `says owns`, with what it owns
    leave a [epoch=-2]            it leaves; with -2 it is a static member that will be back
    remove a b                    whoever administers the group removes members: by id, static ones by their instance
    drop a                        the reply to its last heartbeat is lost: it knows what it knew before
    commit a [epoch=7] [of=t0]    it commits offsets of what it owns, or of these; `transactional=1` in a transaction
    epochs                        the assignment epochs of what members have and give up
    fetch a [epoch=7]             may it read offsets?
    wait 5000                     time passes, in milliseconds
    fail-over                     another node loads the groups from the log
    cjoin a [topics=t] ...        a consumer of the classic protocol joins, and again when it is given a member id
    csync a [a=t0,t1 b=t2]        it asks for its assignment; who leads a classic group hands one in
    cbeat a                       its heartbeat
    cleave a                      it leaves
    show                          the group: state, epochs, and members with what they have -> what they shall have
    log                           what was written since the last time
    describe [NAME]               what ConsumerGroupDescribe says

A member gives up what it is not assigned any more when it `owns` is said: `beat a owns`. `owns=t0,t1` says these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.classic import ClassicGroup
from headrace.coordinator.groups.consumer.embedded import read_assignment, write_assignment
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.consumer.member import Held
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.shard import GroupShard
from headrace.coordinator.shard import Outcome
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from headrace.protocol.codec import encode_bytes
from headrace.protocol.shape import Kind
from headrace.protocol.state import decode_key, decode_value
from tests.coordinator.classic_script import Told
from tests.coordinator.clusters import ToyCluster, topic_id
from tests.coordinator.offset_scripts import commit_both_ways
from tests.coordinator.pure import Answer, ManualTimers, PureRuntime

GROUP = "g"
VERSION = 1


class Consumer:
    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.assigned: dict[bytes, list[int]] = {}
        self.instance_id: str | None = None
        self.before: tuple[int, dict[bytes, list[int]]] = (0, {})
        self.classic_id = ""


class ConsumerScript:
    def __init__(self) -> None:
        self.members: dict[str, Consumer] = {}
        self._cluster = ToyCluster()
        self._config: dict[str, Any] = {}
        self._runtime: PureRuntime | None = None
        self._written = 0
        self._heard: list[str] = []

    def command(self, line: str) -> list[str]:
        words = line.split()
        what: dict[str, str] = {}
        plain: list[str] = []
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if equals and name.isidentifier():
                what[name] = value
            else:
                plain.append(word)
        happened = list(getattr(self, "do_" + words[0].replace("-", "_"))(*plain, **what) or ())
        happened += self._heard
        self._heard = []
        return happened

    @property
    def runtime(self) -> PureRuntime:
        if self._runtime is None:
            self._runtime = PureRuntime(self._make, self._cluster.image)
        return self._runtime

    def _make(self, timers: ManualTimers) -> GroupShard:
        counter = iter(range(1, 1000))
        return GroupShard(
            GroupContext(
                timers,
                group_config=GroupConfig(**self._config),
                offsets_config=OffsetsConfig(),
                random_bytes=lambda count: next(counter).to_bytes(count, "big"),
            )
        )

    def _group(self) -> ConsumerGroup | None:
        found = self.runtime.shard.context.groups.get(GROUP)
        return found if isinstance(found, ConsumerGroup) else None

    # --- the cluster --------------------------------------------------------------------------------------------------

    def do_settings(self, *settings: str) -> None:
        for setting in settings:
            name, _, text = setting.partition("=")
            setting_of = GroupConfig.settings["group." + name]
            self._config["group_" + name.replace(".", "_")] = setting_of.parse(text)

    def do_brokers(self, *brokers: str) -> None:
        self._cluster = ToyCluster({int(b.split("=")[0]): b.split("=")[1] for b in brokers})

    def do_topic(self, name: str, partitions: str, at: str | None = None) -> None:
        replicas = None if at is None else [int(broker) for broker in at.split(",")]
        self.runtime.change(self._cluster.topic(name, int(partitions), replicas), self._cluster.image)

    def do_delete(self, name: str) -> None:
        self.runtime.change(self._cluster.delete(name), self._cluster.image)

    def do_new_leader(self, name: str) -> None:
        self.runtime.change(self._cluster.new_leader(name), self._cluster.image)

    def do_config(self, name: str, value: str | None = None) -> None:
        self.runtime.change(self._cluster.configure(GROUP, name, value), self._cluster.image)

    def do_record_limit(self, bytes_max: str) -> None:
        self.runtime.change(self._cluster.limit_records(int(bytes_max)), self._cluster.image)

    def do_feature(self, name: str, level: str) -> None:
        self.runtime.change(self._cluster.feature(name, int(level)), self._cluster.image)

    def do_wait(self, pause_ms: str) -> None:
        self.runtime.wait(int(pause_ms))

    def do_fail_over(self) -> None:
        self.runtime.fail_over()

    # --- members ------------------------------------------------------------------------------------------------------

    def do_join(self, name: str, **what: str) -> Iterable[str]:
        member = self.members[name] = Consumer(name)
        member.instance_id = what.get("instance")
        defaults = {} if "regex" in what else {"topics": "t"}
        return self._beat(member, {**defaults, "timeout": "60000", "epoch": "0", "owns": "", **what})

    def do_rejoin(self, name: str, **what: str) -> Iterable[str]:
        """Under its old id, after it was fenced."""
        return self._beat(self.members[name], {"topics": "t", "timeout": "60000", "epoch": "0", "owns": "", **what})

    def do_beat(self, name: str, *plain: str, **what: str) -> Iterable[str]:
        member = self.members.setdefault(name, Consumer(name))
        if "owns" in plain:
            what["owns"] = ",".join(self._names(member.assigned))
        return self._beat(member, what)

    def do_leave(self, name: str, epoch: str = "-1", **what: str) -> Iterable[str]:
        return self._beat(self.members.setdefault(name, Consumer(name)), {"epoch": epoch, **what})

    def do_drop(self, name: str) -> None:
        self.members[name].epoch, self.members[name].assigned = self.members[name].before

    def _beat(self, member: Consumer, what: dict[str, str]) -> Iterable[str]:
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=what.get("group", GROUP),
            member_id=what.get("id", member.name),
            member_epoch=int(what.get("epoch", member.epoch)),
            instance_id=what.get("instance", member.instance_id),
            rack_id=what.get("rack"),
            rebalance_timeout_ms=int(what.get("timeout", -1)),
            subscribed_topic_names=_list(what.get("topics")),
            subscribed_topic_regex=what.get("regex"),
            server_assignor=what.get("assignor"),
            topic_partitions=_owned(what.get("owns")),
        )
        answer = Answer()
        version = int(what.get("version", VERSION))
        client = what.get("client", "client")
        self.runtime.ask(
            lambda shard, now_ms: shard.consumer.heartbeat(request, version, client, "/host", answer, now_ms), answer
        )
        if answer.error is not None:
            yield f"{member.name}: {answer.error.name}"
            return
        response: m.ConsumerGroupHeartbeatResponse = answer.message
        if response.error_code:
            yield f"{member.name}: {Error(response.error_code).name}"
            return
        member.before = (member.epoch, member.assigned)
        told = f"{member.name}: epoch {response.member_epoch}"
        member.epoch = response.member_epoch
        if response.assignment is not None:
            member.assigned = {t.topic_id: list(t.partitions) for t in response.assignment.topic_partitions}
            told += ", shall own " + (" ".join(self._names(member.assigned)) or "nothing")
        if what.get("show") == "interval":
            told += f", every {response.heartbeat_interval_ms} ms"
        if response.member_id != request.member_id:
            told += f", is {response.member_id}"
        yield told

    def do_commit(self, name: str, epoch: str | None = None, version: str = "9", **what: str) -> Iterable[str]:
        member = self.members.setdefault(name, Consumer(name))
        who, claimed = what.get("id", member.classic_id or name), member.epoch if epoch is None else int(epoch)
        places = _places(what.get("of") or ",".join(self._names(member.assigned)) or "t0")
        answer = Answer()
        if "transactional" in what:
            body = _transactional(who, claimed, places)
            self.runtime.ask(
                lambda shard, now_ms: shard.offsets.commit_in_transaction(body, int(version), answer, now_ms), answer
            )
        else:
            answer = commit_both_ways(self.runtime, _commit(who, claimed, places), int(version))
        errors = [Error(one.error_code).name for topic in answer.message.topics for one in topic.partitions]
        yield f"{name} commits: {' '.join(dict.fromkeys(errors))}"

    def do_epochs(self) -> Iterable[str]:
        group = self._group()
        for member in () if group is None else group.members.values():
            told = [self._since(held) for held in (member.current.assigned, member.current.revoking)]
            yield f"{self._called(member.id)}: {told[0] or '-'}" + (f", gives up {told[1]}" if told[1] else "")

    def _since(self, held: Held) -> str:
        epochs = [epoch for partitions in held.values() for epoch in partitions.values()]
        return " ".join(f"{name}@{epoch}" for name, epoch in zip(self._names(held), epochs, strict=True))

    def do_fetch(self, name: str, epoch: str | None = None) -> Iterable[str]:
        member = self.members.setdefault(name, Consumer(name))
        yield _asked(
            lambda: self.runtime.shard.context.groups[GROUP].validate_fetch(
                name, member.epoch if epoch is None else int(epoch)
            ),
            f"{name} reads",
        )

    # --- members of the classic protocol ------------------------------------------------------------------------------

    def do_cjoin(self, name: str, **what: str) -> None:
        member = self.members.setdefault(name, Consumer(name))
        member.instance_id = what.get("instance", member.instance_id)
        owned = what.get("owns", ",".join(self._names(member.assigned)))
        kind = m.ConsumerProtocolSubscription
        subscription = kind(
            topics=what.get("topics", "t").split(","),
            owned_partitions=[
                kind.TopicPartition(topic=topic.topic_id.rstrip(bytes(1)).decode(), partitions=topic.partitions)
                for topic in _owned(owned) or ()
            ],
            generation_id=member.epoch or -1,
        )
        metadata = (3).to_bytes(2) + encode_bytes(subscription, 3)
        body = m.JoinGroupRequest(
            group_id=GROUP,
            member_id=what.get("id", member.classic_id),
            group_instance_id=member.instance_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=int(what.get("timeout", 60_000)),
            protocol_type=what.get("type", "consumer"),
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=metadata)
                for protocol in what.get("protocols", "cooperative-sticky").split(",")
            ],
        )

        def told(response: m.JoinGroupResponse) -> None:
            error = Error(response.error_code)
            if error is Error.MEMBER_ID_REQUIRED:
                member.classic_id = response.member_id
                self.do_cjoin(name, **what)
                return
            if error:
                self._heard.append(f"{name}: {error.name}")
                return
            member.classic_id, member.epoch = response.member_id, response.generation_id
            leads = f", leads {len(response.members)}" if response.members else ""
            self._heard.append(f"{name}: generation {response.generation_id}, {response.protocol_name}{leads}")

        self._classic(lambda shard, now_ms, reply: shard.classic.join(body, 9, "client", "/host", reply, now_ms), told)

    def do_csync(self, name: str, **assigned: str) -> None:
        member = self.members[name]
        body = m.SyncGroupRequest(
            group_id=GROUP,
            member_id=member.classic_id,
            generation_id=member.epoch,
            group_instance_id=member.instance_id,
            protocol_type="consumer",
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=self.members[who].classic_id,
                    assignment=write_assignment(
                        {t.topic_id: tuple(t.partitions) for t in _owned(owned) or ()}, 3, self._cluster.image
                    ),
                )
                for who, owned in assigned.items()
            ],
        )

        def told(response: m.SyncGroupResponse) -> None:
            if response.error_code:
                self._heard.append(f"{name}: {Error(response.error_code).name}")
                return
            got = read_assignment(response.assignment, self._cluster.image)
            member.assigned = {topic: list(partitions) for topic, partitions in got.items()}
            self._heard.append(f"{name}: owns {' '.join(self._names(got)) or 'nothing'}")

        self._classic(lambda shard, now_ms, reply: shard.classic.sync(body, reply, now_ms), told)

    def do_cbeat(self, name: str, generation: str | None = None) -> None:
        member = self.members[name]
        body = m.HeartbeatRequest(
            group_id=GROUP,
            member_id=member.classic_id,
            generation_id=member.epoch if generation is None else int(generation),
            group_instance_id=member.instance_id,
        )

        def told(response: m.HeartbeatResponse) -> None:
            self._heard.append(f"{name}: {Error(response.error_code).name}")
            if response.error_code == Error.UNKNOWN_MEMBER_ID:
                member.classic_id, member.epoch, member.assigned = "", 0, {}

        self._classic(lambda shard, now_ms, reply: shard.classic.heartbeat(body, reply, now_ms), told)

    def do_cleave(self, *names: str) -> None:
        kind = m.LeaveGroupRequest.MemberIdentity
        self._leave(
            names,
            [kind(member_id=self.members[n].classic_id, group_instance_id=self.members[n].instance_id) for n in names],
        )

    def do_remove(self, *names: str) -> None:
        kind = m.LeaveGroupRequest.MemberIdentity
        instances = {name: self.members[name].instance_id for name in names}
        self._leave(
            names,
            [
                kind(member_id="" if instances[name] else name, group_instance_id=instances[name], reason="removed")
                for name in names
            ],
        )

    def _leave(self, names: tuple[str, ...], members: list[m.LeaveGroupRequest.MemberIdentity]) -> None:
        body = m.LeaveGroupRequest(group_id=GROUP, members=members)
        self._classic(
            lambda shard, now_ms, reply: shard.classic.leave(body, 5, reply, now_ms),
            lambda response: self._heard.extend(
                f"{name}: {Error(one.error_code).name}" for name, one in zip(names, response.members, strict=True)
            ),
        )

    def _classic(self, ask: Callable[[Any, int, Any], Outcome], told: Callable[[Any], None]) -> None:
        reply = Told(told, lambda error: m.HeartbeatResponse(error_code=error))
        self.runtime.ask(lambda shard, now_ms: ask(shard, now_ms, reply), cast("Answer", reply))

    # --- what there is ------------------------------------------------------------------------------------------------

    def do_show(self) -> Iterable[str]:
        group = self._group()
        if group is None:
            found = self.runtime.shard.context.groups.get(GROUP)
            if isinstance(found, ClassicGroup):
                yield f"classic: {found.state}, generation {found.generation}"
                for one in found.members.values():
                    owned = self._names(read_assignment(one.assignment, self._cluster.image))
                    yield f"{self._called(one.member_id)}: {' '.join(owned) or '-'}"
            else:
                yield "there is no consumer group"
            return
        yield f"{group.state}, epoch {group.epoch}, target of epoch {group.assignment_epoch}"
        for member in group.members.values():
            current = member.current
            speaks = " (classic)" if member.is_classic else ""
            has = " ".join(self._names(current.assigned)) or "-"
            text = f"{self._called(member.id)}{speaks} epoch {current.epoch}: {has}"
            if current.revoking:
                text += f", gives up {' '.join(self._names(current.revoking))}"
            target = group.target(member.id)
            if self._names(target) != self._names(current.assigned):
                text += f" -> {' '.join(self._names(target)) or '-'}"
            yield text

    def do_describe(self, group_id: str = GROUP) -> Iterable[str]:
        found = self.runtime.shard.consumer.describe(group_id)
        if found.error_code:
            yield f"{Error(found.error_code).name}: {found.error_message}"
            return
        yield (
            f"{found.group_state}, epoch {found.group_epoch}, assignment {found.assignment_epoch}, "
            f"assignor {found.assignor_name}"
        )
        for member in found.members:
            has, shall = (
                " ".join(f"{t.topic_name}{p}" for t in side.topic_partitions for p in t.partitions) or "-"
                for side in (member.assignment, member.target_assignment)
            )
            yield (
                f"{member.member_id} epoch {member.member_epoch} of {member.client_id} at {member.client_host}, "
                f"instance {member.instance_id}, rack {member.rack_id}, topics "
                f"{','.join(member.subscribed_topic_names) or '-'}, regex {member.subscribed_topic_regex}, "
                f"type {member.member_type}: {has} -> {shall}"
            )

    def do_log(self) -> Iterable[str]:
        new = self.runtime.log[self._written :]
        self._written = len(self.runtime.log)
        if not new:
            yield "nothing"
        for record, _, _ in new:
            key: Any = decode_key(Kind.GROUP, record.key)
            value: Any = None if record.value is None else decode_value(Kind.GROUP, key, record.value)
            yield self._told(key, value)

    def _told(self, key: Any, value: Any) -> str:
        name = key.shape.name.removeprefix("ConsumerGroup").removesuffix("Key")
        who = self._called(getattr(key, "member_id", getattr(key, "regular_expression", "")))
        head = f"{name} {who}".strip()
        if value is None:
            return f"{head}: gone"
        match name:
            case "Metadata":
                return f"{head}: epoch {value.epoch}"
            case "GroupMetadata":
                return f"{head}: generation {value.generation}, {len(value.members)} members"
            case "MemberMetadata":
                wants = " ".join(value.subscribed_topic_names) or value.subscribed_topic_regex
                if value.classic_member_metadata is not None:
                    wants += " (classic)"
                return f"{head}: wants {wants}"
            case "TargetAssignmentMetadata":
                return f"{head}: epoch {value.assignment_epoch}"
            case "TargetAssignmentMember":
                return f"{head}: {' '.join(self._names(_pairs(value.topic_partitions))) or '-'}"
            case "CurrentMemberAssignment":
                has = " ".join(self._names(_pairs(value.assigned_partitions))) or "-"
                told = f"{head}: epoch {value.member_epoch}, {has}"
                if value.partitions_pending_revocation:
                    told += f", gives up {' '.join(self._names(_pairs(value.partitions_pending_revocation)))}"
                return told
            case "OffsetCommit":
                return f"{head}: {key.topic}{key.partition}"
            case "RegularExpression":
                return f"{head}: {' '.join(value.topics) or '-'}"
        return f"{head}: {value!r}"

    def _called(self, member_id: str) -> str:
        known = {member.classic_id: name for name, member in self.members.items() if member.classic_id}
        return known.get(member_id, member_id)

    def _names(self, assignment: Mapping[bytes, Iterable[int]]) -> list[str]:
        names = {topic.id: topic.name for topic in self.runtime.image.topics.values()}
        return [
            f"{names.get(topic, topic.rstrip(bytes(1)).decode() + '?')}{p}"
            for topic, ps in assignment.items()
            for p in ps
        ]


def _asked(ask: Any, who: str) -> str:
    try:
        ask()
    except Refused as refused:
        return f"{who}: {refused.error.name}"
    return f"{who}: NONE"


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [word for word in text.split(",") if word]


def _owned(text: str | None) -> list[m.ConsumerGroupHeartbeatRequest.TopicPartitions] | None:
    if text is None:
        return None
    kind = m.ConsumerGroupHeartbeatRequest.TopicPartitions
    return [
        kind(topic_id=topic_id(name.rstrip("?")), partitions=partitions) for name, partitions in _places(text).items()
    ]


def _places(text: str) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for word in text.split(","):
        if word:
            name = word.rstrip("0123456789")
            topics.setdefault(name, []).append(int(word[len(name) :]))
    return topics


def _commit(member_id: str, epoch: int, places: dict[str, list[int]]) -> m.OffsetCommitRequest:
    kind = m.OffsetCommitRequest
    return kind(
        group_id=GROUP,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[
            kind.OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id(name),
                partitions=[kind.OffsetCommitRequestPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in places.items()
        ],
    )


def _transactional(member_id: str, epoch: int, places: dict[str, list[int]]) -> m.TxnOffsetCommitRequest:
    kind = m.TxnOffsetCommitRequest
    return kind(
        group_id=GROUP,
        producer_id=7,
        member_id=member_id,
        generation_id=epoch,
        topics=[
            kind.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[kind.TxnOffsetCommitRequestPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in places.items()
        ],
    )


def _pairs(topics: Iterable[Any]) -> dict[bytes, list[int]]:
    return {topic.topic_id: list(topic.partitions) for topic in topics}
