"""Scripts for offsets: a line of what is asked, and what comes back.

commit g t0=5 t1=6 [member=m] [epoch=3] [metadata=x] [retention=ms] [version=9]
fetch g t0 t1 [stable] [member=m] [epoch=3]         -> t0=5 t1=-1
txn 7 g t0=9                                        offsets in the transaction of producer 7
end 7 commit|abort
delete g t0
wait 60000
drop t                                              the topic is deleted
make t                                              and made (again), with 4 partitions
empty g, fill g                                     a group of members loses them, or gets one
restart                                             the shard is loaded from the log
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack
from typing import Any

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.group import GroupType
from headrace.coordinator.groups.shard import GroupShard
from headrace.coordinator.offsets.offsets import Offsets
from headrace.coordinator.shard import Outcome, ProducerStamp, StateRecord
from headrace.errors import Error, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol import messages as m
from headrace.protocol.kernel_types import Row
from tests.coordinator.pure import Answer, ManualTimers, PureRuntime

PARTITIONS = 4


class MemberGroup:
    """A group with members, as far as offsets ask it."""

    type = GroupType.CONSUMER
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 3
        self.topics: tuple[str, ...] = ()
        self.empty_since_ms: int | None = None
        self.alive_ms = 0

    @property
    def state(self) -> str:
        return "Empty" if self.is_empty else "Stable"

    @property
    def is_empty(self) -> bool:
        return self.empty_since_ms is not None

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        version: int,
        partitions: Iterable[tuple[bytes, int]],
        *,
        is_transactional: bool,
    ) -> None:
        if member_id != "m":
            raise Refused(Error.UNKNOWN_MEMBER_ID)
        if generation_or_epoch != self.epoch:
            raise Refused(Error.STALE_MEMBER_EPOCH)

    def committed(self, member_id: str, now_ms: int) -> None:
        self.alive_ms = now_ms

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is not None and member_epoch != self.epoch:
            raise Refused(Error.STALE_MEMBER_EPOCH)

    def validate_offset_delete(self) -> None:
        pass

    def validate_delete(self) -> None:
        pass

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.topics

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms if self.empty_since_ms is None else self.empty_since_ms

    def tombstones(self) -> list[StateRecord]:
        return [StateRecord(b"\x7f\x00" + self.group_id.encode(), None)]


class Script:
    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self.ids = 0
        self.groups: dict[str, MemberGroup] = {}
        self.delta = Delta(Image())
        self._records = 0
        self.run = PureRuntime(self._make)
        self.make("t")

    def _make(self, timers: ManualTimers) -> GroupShard:
        context = GroupContext(
            timers,
            group_config=GroupConfig(),
            offsets_config=OffsetsConfig(**self._settings),
            random_bytes=bytes,
        )
        context.groups.update(self.groups)
        return GroupShard(context)

    @property
    def shard(self) -> GroupShard:
        found = self.run.shard
        assert isinstance(found, GroupShard)
        return found

    @property
    def offsets(self) -> Offsets:
        return self.shard.offsets

    def play(self, text: str) -> None:
        """Each line: what is asked, and behind an arrow what comes back."""
        for line in text.strip().splitlines():
            asked, _, expected = line.partition("#")[0].partition("->")
            if asked.strip():
                answered = self.do(asked.split())
                assert answered == " ".join(expected.split()), f"{line.strip()!r} gave {answered!r}"

    def do(self, words: list[str]) -> str:
        match words:
            case ["commit", group, *rest]:
                return self._commit(group, rest)
            case ["txn", producer, group, *rest]:
                return self._txn(int(producer), group, rest)
            case ["end", producer, how]:
                self.end(int(producer), how == "commit")
                return ""
            case ["fetch", group, *rest]:
                return self._fetch(group, rest)
            case ["delete", group, *rest]:
                return self._delete(group, rest)
            case ["wait", pause_ms]:
                self.run.wait(int(pause_ms))
                return ""
            case ["make", topic]:
                self.make(topic)
                return ""
            case ["drop", topic]:
                self.change(m.RemoveTopicRecord(topic_id=self.run.image.topic_ids[topic]))
                return ""
            case ["fill", group, *topics]:
                self.groups[group] = filled = MemberGroup(group)
                filled.topics = tuple(topics)
                self.shard.context.groups[group] = filled
                return ""
            case ["empty", group]:
                self.groups[group].empty_since_ms = self.run.now_ms
                self.groups[group].topics = ()
                return ""
            case ["restart"]:
                self.run.fail_over()
                return ""
        raise ValueError(words)

    def change(self, *records: Any) -> None:
        delta = Delta(self.run.image)
        for record in records:
            delta.replay(record)
        self._records += 1
        self.run.change(delta, delta.image(self._records, 1))

    def make(self, topic: str) -> None:
        self.ids += 1
        topic_id = self.ids.to_bytes(16)
        self.change(
            m.TopicRecord(name=topic, topic_id=topic_id),
            *(
                m.PartitionRecord(topic_id=topic_id, partition_id=index, replicas=[1], isr=[1], leader=1)
                for index in range(PARTITIONS)
            ),
        )

    def end(self, producer_id: int, is_commit: bool) -> None:
        self.run.end(ProducerStamp(producer_id, 0), is_commit)

    def _commit(self, group: str, words: list[str]) -> str:
        places, options = _split(words)
        kind, version = m.OffsetCommitRequest, int(options.get("version", 9))
        body = kind(
            group_id=group,
            member_id=options.get("member", ""),
            generation_id_or_member_epoch=int(options.get("epoch", -1)),
            retention_time_ms=int(options.get("retention", -1)),
            topics=[
                kind.OffsetCommitRequestTopic(
                    name=name[:-1],
                    topic_id=self.run.image.topic_ids.get(name[:-1], b"?" * 16),
                    partitions=[
                        kind.OffsetCommitRequestPartition(
                            partition_index=int(name[-1]),
                            committed_offset=int(offset),
                            committed_metadata=options.get("metadata"),
                        )
                    ],
                )
                for name, offset in places
            ],
        )
        return _errors(places, commit_both_ways(self.run, body, version))

    def _txn(self, producer_id: int, group: str, words: list[str]) -> str:
        places, options = _split(words)
        kind = m.TxnOffsetCommitRequest
        body = kind(
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            member_id=options.get("member", ""),
            generation_id=int(options.get("epoch", -1)),
            topics=[
                kind.TxnOffsetCommitRequestTopic(
                    name=name[:-1],
                    partitions=[
                        kind.TxnOffsetCommitRequestPartition(
                            partition_index=int(name[-1]),
                            committed_offset=int(offset),
                            committed_metadata=options.get("metadata"),
                        )
                    ],
                )
                for name, offset in places
            ],
        )
        answer = Answer()
        self.run.ask(lambda shard, now_ms: shard.offsets.commit_in_transaction(body, 4, answer, now_ms), answer)
        return _errors(places, answer)

    def _fetch(self, group: str, words: list[str]) -> str:
        places, options = _split(words)
        kind, version = m.OffsetFetchRequest, int(options.get("version", 9))
        asked = kind.OffsetFetchRequestGroup(
            group_id=group,
            member_id=options.get("member"),
            member_epoch=int(options.get("epoch", -1)),
            topics=[
                kind.OffsetFetchRequestTopics(
                    name=name[:-1],
                    topic_id=self.run.image.topic_ids.get(name[:-1], b"?" * 16),
                    partition_indexes=[int(name[-1])],
                )
                for name, _ in places
            ]
            or None,
        )
        answer = Answer()
        self.run.ask(
            lambda shard, now_ms: shard.offsets.fetch(asked, version, require_stable="stable" in options, reply=answer),
            answer,
        )
        found = answer.message
        if found.error_code:
            return Error.of(found.error_code).name
        names = {topic_id: name for name, topic_id in self.run.image.topic_ids.items()}
        return " ".join(
            f"{topic.name or names[topic.topic_id]}{one.partition_index}="
            + (Error.of(one.error_code).name if one.error_code else f"{one.committed_offset}")
            for topic in found.topics
            for one in topic.partitions
        )

    def _delete(self, group: str, words: list[str]) -> str:
        places, _ = _split(words)
        kind = m.OffsetDeleteRequest
        body = kind(
            group_id=group,
            topics=[
                kind.OffsetDeleteRequestTopic(
                    name=name[:-1], partitions=[kind.OffsetDeleteRequestPartition(partition_index=int(name[-1]))]
                )
                for name, _ in places
            ],
        )
        answer = Answer()
        self.run.ask(lambda shard, now_ms: shard.offsets.delete(body, answer), answer)
        return _errors(places, answer)


def commit_both_ways(run: PureRuntime, body: m.OffsetCommitRequest, version: int) -> Answer:
    """As it comes, and as if it came again: that is the same."""
    answer = Answer()
    replayed: list[dict[str, Any]] = []

    def commit(shard: GroupShard, now_ms: int) -> Outcome:
        plan = shard.offsets.plan(body, version)
        outcome = shard.offsets.commit(body, version, answer, now_ms)
        if plan is not None:
            asked = [partition for topic in body.topics for partition in topic.partitions]
            numbers = [(partition.committed_offset, partition.committed_leader_epoch) for partition in asked]
            rows: list[Row] = []
            message = plan.decide([pack(">qi", *one) for one in numbers], shard, now_ms, rows, len(run.log))
            assert message == outcome.replies[0][1], "as if it came again"
            assert [StateRecord(key, value) for key, value, _, _ in rows] == outcome.records
            replayed.append(_kept(shard))
        return outcome

    run.ask(commit, answer)
    assert replayed in ([], [_kept(run.shard)]), "what a plan replays is what its records say"
    return answer


def _split(words: list[str]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    pairs = [word.partition("=")[::2] for word in words]
    places = [(name, value) for name, value in pairs if name[-1].isdigit()]
    return places, {name: value for name, value in pairs if not name[-1].isdigit()}


def _kept(shard: GroupShard) -> dict[str, Any]:
    store = shard.offsets.store
    return {
        group: {topic: dict(partitions) for topic, partitions in store.of_group(group).items()}
        for group in store.groups()
    }


def _errors(places: list[tuple[str, str]], answer: Answer) -> str:
    """OK, or the errors, one for each partition that was asked."""
    if answer.error is not None:
        return answer.error.name
    codes = [Error.of(one.error_code) for topic in answer.message.topics for one in topic.partitions]
    assert len(codes) == len(places)
    return " ".join(code.name for code in codes) if any(codes) else "OK"
