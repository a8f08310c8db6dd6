"""Offsets of a group at its coordinator: committing them, and asking for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.client.coordinators import CoordinatorKind, Coordinators
from headrace.client.transaction import GroupMember, OffsetToCommit
from headrace.errors import Error, Refused
from headrace.protocol import messages as m

__all__ = ["GroupOffsets"]

TopicPartition = tuple[str, int]
NAMES_VERSION_MAX: Final = 9  # later ones know topics by their ids only
_WAITS: Final = Error.UNSTABLE_OFFSET_COMMIT


class GroupOffsets:
    __slots__ = ("_coordinators",)

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators

    def close(self) -> None:
        self._coordinators.close()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetToCommit], member: GroupMember) -> None:
        """Refused when the member is not the one that it was, or when one of the offsets is not taken."""
        if not offsets:
            return
        given = m.OffsetCommitRequest
        topics: dict[str, m.OffsetCommitRequest.OffsetCommitRequestTopic] = {}
        for (name, index), wanted in offsets.items():
            topics.setdefault(name, given.OffsetCommitRequestTopic(name=name)).partitions.append(
                given.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=wanted.offset,
                    committed_leader_epoch=wanted.leader_epoch,
                    committed_metadata=wanted.metadata,
                )
            )
        request = given(
            group_id=member.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=list(topics.values()),
        )
        response: m.OffsetCommitResponse = await self._coordinators.call(
            CoordinatorKind.GROUP, member.group_id, request, _commit_error, version_max=NAMES_VERSION_MAX
        )
        for topic in response.topics:
            for partition in topic.partitions:
                if error := Error.of(partition.error_code):
                    text = f"The offset of {topic.name}-{partition.partition_index} is not committed"
                    raise Refused(error, f"{text} ({error.name}): {error.text}")

    async def committed(
        self, partitions: Iterable[TopicPartition], member: GroupMember
    ) -> dict[TopicPartition, OffsetToCommit]:
        """Those that have one. Waits for transactions that are committing some of them (KIP-447)."""
        by_topic: dict[str, list[int]] = {}
        for name, index in partitions:
            by_topic.setdefault(name, []).append(index)
        if not by_topic:
            return {}
        given = m.OffsetFetchRequest
        topics = [given.OffsetFetchRequestTopics(name=name, partition_indexes=by_topic[name]) for name in by_topic]
        group = given.OffsetFetchRequestGroup(
            group_id=member.group_id,
            member_id=member.member_id or None,
            member_epoch=member.generation if member.member_id else -1,
            topics=topics,
        )
        response: m.OffsetFetchResponse = await self._coordinators.call(
            CoordinatorKind.GROUP,
            member.group_id,
            given(groups=[group], require_stable=True),
            _fetch_error,
            version_max=NAMES_VERSION_MAX,
        )
        (answer,) = response.groups
        if error := Error.of(answer.error_code):
            raise Refused(error, f"The offsets of {member.group_id} are not told ({error.name}): {error.text}")
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                if error := Error.of(partition.error_code):
                    text = f"The offset of {topic.name}-{partition.partition_index} is not told"
                    raise Refused(error, f"{text} ({error.name}): {error.text}")
                if partition.committed_offset >= 0:
                    found[topic.name, partition.partition_index] = OffsetToCommit(
                        partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                    )
        return found


def _commit_error(response: m.OffsetCommitResponse) -> int:
    """What decides whether the commit is tried again: a coordinator that is none says so for all."""
    codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
    return next((code for code in codes if code), 0)


def _fetch_error(response: m.OffsetFetchResponse) -> int:
    (answer,) = response.groups
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    return answer.error_code or (_WAITS if _WAITS in codes else 0)
