"""The offsets of a shard of groups: committed, read, deleted, and forgotten when they are old. PURE.

Whether a member may commit is the group's to say (hazard 13); an offset of a topic that is there no more is nobody's
(hazard 9): each is kept with the id of its topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.group import NO_GENERATION, Group, SimpleGroup
from headrace.coordinator.offsets.commit_plan import CommitPlan
from headrace.coordinator.offsets.deleted_topics import DeletedTopics, is_of_another
from headrace.coordinator.offsets.expiry import Expiry
from headrace.coordinator.offsets.records import (
    KIND,
    LEGACY_KIND,
    NO_ID,
    NO_TIMESTAMP,
    committed_of,
    decode_key,
    encode_commit,
    encode_key,
    stored,
    tombstone,
)
from headrace.coordinator.offsets.store import OffsetStore, Partitions
from headrace.coordinator.shard import Outcome, ProducerStamp, Reply, StateRecord
from headrace.errors import Error, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol import messages as m

NOT_FOUND_SINCE: Final = 9
"""From this version of OffsetCommit on, a group that is not there is told from a generation that is not there."""
IDS_SINCE: Final = 10
"""From this version of OffsetCommit and OffsetFetch on, topics are named by their ids."""
NO_RETENTION: Final = -1
FOREVER_MS: Final = 2**63 - 1
_NOTHING: Final[Partitions] = {}

AskedPartition: TypeAlias = (
    m.OffsetCommitRequest.OffsetCommitRequestPartition | m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
)
CommitTopic: TypeAlias = m.OffsetCommitResponse.OffsetCommitResponseTopic
CommitPartition: TypeAlias = m.OffsetCommitResponse.OffsetCommitResponsePartition
TxnTopic: TypeAlias = m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
TxnPartition: TypeAlias = m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
FetchedGroup: TypeAlias = m.OffsetFetchResponse.OffsetFetchResponseGroup
FetchedTopic: TypeAlias = m.OffsetFetchResponse.OffsetFetchResponseTopics
FetchedPartition: TypeAlias = m.OffsetFetchResponse.OffsetFetchResponsePartitions
DeletedTopic: TypeAlias = m.OffsetDeleteResponse.OffsetDeleteResponseTopic
DeletedPartition: TypeAlias = m.OffsetDeleteResponse.OffsetDeleteResponsePartition


class Offsets:
    """The part of a group shard that is about offsets."""

    __slots__ = ("_context", "_deleted", "_expiry", "store")

    kinds: Final = (LEGACY_KIND, KIND)

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.store = OffsetStore()
        self._expiry = Expiry(context, self.store)
        self._deleted = DeletedTopics(context, self.store)

    # ------------------------------------------------------------------------------------------------------- committing

    def commit(self, body: m.OffsetCommitRequest, version: int, reply: Reply, now_ms: int) -> Outcome:
        """OffsetCommit. What of it names no partition that there is, is refused by itself."""
        context = self._context
        error = Error.NONE
        try:
            group = self.group_for_commit(body, version)
            group.validate_commit(
                body.member_id,
                body.group_instance_id,
                body.generation_id_or_member_epoch,
                version,
                _there(
                    context.image,
                    ((self._topic(topic.name, topic.topic_id, version)[1], topic.partitions) for topic in body.topics),
                ),
                is_transactional=False,
            )
        except Refused as refused:
            error = refused.error
        else:
            if body.member_id:
                group.committed(body.member_id, now_ms)
        retention_ms = body.retention_time_ms
        expire_ms = NO_TIMESTAMP if retention_ms == NO_RETENTION else min(now_ms + retention_ms, FOREVER_MS)
        metadata_max = context.offsets_config.offset_metadata_max_bytes
        records: list[StateRecord] = []
        topics: list[CommitTopic] = []
        for topic in body.topics:
            name, topic_id, unknown = self._topic(topic.name, topic.topic_id, version)
            known = context.image.topics[topic_id].partitions if not unknown else {}
            answers: list[CommitPartition] = []
            for partition in topic.partitions:
                index, metadata = partition.partition_index, partition.committed_metadata or ""
                if index not in known:
                    answer = unknown or Error.UNKNOWN_TOPIC_OR_PARTITION
                elif error:
                    answer = error
                elif len(metadata) > metadata_max:
                    answer = Error.OFFSET_METADATA_TOO_LARGE
                else:
                    answer = Error.NONE
                    value = encode_commit(
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                        now_ms,
                        expire_ms,
                        topic_id,
                    )
                    records.append(StateRecord(encode_key(body.group_id, name, index), value))
                answers.append(CommitPartition(partition_index=index, error_code=answer))
            topics.append(CommitTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return Outcome(records, [(reply, m.OffsetCommitResponse(topics=topics))])

    def plan(self, body: m.OffsetCommitRequest, version: int) -> CommitPlan | None:
        """What to do when this request comes again with other offsets; None where that can't be said beforehand."""
        image = self._context.image
        metadata_max = self._context.offsets_config.offset_metadata_max_bytes
        if body.retention_time_ms != NO_RETENTION:
            return None
        topic_ids = []
        for topic in body.topics:
            _, topic_id, unknown = self._topic(topic.name, topic.topic_id, version)
            if unknown:
                return None
            known = image.topics[topic_id].partitions
            for partition in topic.partitions:
                if partition.partition_index not in known or len(partition.committed_metadata or "") > metadata_max:
                    return None
            topic_ids.append(topic_id)
        return CommitPlan(body, version, image, topic_ids)

    def commit_in_transaction(self, body: m.TxnOffsetCommitRequest, version: int, reply: Reply, now_ms: int) -> Outcome:
        """TxnOffsetCommit, of a producer that was verified. Its offsets count when its transaction is committed."""
        context = self._context
        error = Error.NONE
        try:
            group = context.groups.get(body.group_id)
            if group is None and body.generation_id > NO_GENERATION:
                raise Refused(Error.ILLEGAL_GENERATION)
            topic_ids = context.image.topic_ids
            (group or SimpleGroup(body.group_id)).validate_commit(
                body.member_id,
                body.group_instance_id,
                body.generation_id,
                version,
                _there(context.image, ((topic_ids.get(topic.name, NO_ID), topic.partitions) for topic in body.topics)),
                is_transactional=True,
            )
        except Refused as refused:
            # The clients of this API know no epochs of members.
            error = Error.ILLEGAL_GENERATION if refused.error is Error.STALE_MEMBER_EPOCH else refused.error
        metadata_max = context.offsets_config.offset_metadata_max_bytes
        records: list[StateRecord] = []
        topics: list[TxnTopic] = []
        for topic in body.topics:
            topic_id = context.image.topic_ids.get(topic.name, NO_ID)
            known = context.image.topics[topic_id].partitions if topic_id != NO_ID else {}
            answers: list[TxnPartition] = []
            for partition in topic.partitions:
                index, metadata = partition.partition_index, partition.committed_metadata or ""
                if index not in known:
                    answer = Error.UNKNOWN_TOPIC_OR_PARTITION
                elif error:
                    answer = error
                elif len(metadata) > metadata_max:
                    answer = Error.OFFSET_METADATA_TOO_LARGE
                else:
                    answer = Error.NONE
                    value = encode_commit(
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                        now_ms,
                        NO_TIMESTAMP,
                        topic_id,
                    )
                    records.append(StateRecord(encode_key(body.group_id, topic.name, index), value))
                answers.append(TxnPartition(partition_index=index, error_code=answer))
            topics.append(TxnTopic(name=topic.name, partitions=answers))
        return Outcome(
            records,
            [(reply, m.TxnOffsetCommitResponse(topics=topics))],
            stamp=ProducerStamp(body.producer_id, body.producer_epoch),
        )

    def group_for_commit(self, body: m.OffsetCommitRequest, version: int) -> Group:
        group = self._context.groups.get(body.group_id)
        if group is None:
            if body.generation_id_or_member_epoch > NO_GENERATION:
                raise Refused(Error.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE else Error.ILLEGAL_GENERATION)
            group = SimpleGroup(body.group_id)
        return group

    def _topic(self, name: str, topic_id: bytes, version: int) -> tuple[str, bytes, Error]:
        """Its name and its id, or what is answered when there is no such topic."""
        image = self._context.image
        if version >= IDS_SINCE:
            topic = image.topics.get(topic_id)
            return ("", NO_ID, Error.UNKNOWN_TOPIC_ID) if topic is None else (topic.name, topic_id, Error.NONE)
        found = image.topic_ids.get(name)
        return (name, NO_ID, Error.UNKNOWN_TOPIC_OR_PARTITION) if found is None else (name, found, Error.NONE)

    # --------------------------------------------------------------------------------------------------------- fetching

    def fetch(
        self,
        asked: m.OffsetFetchRequest.OffsetFetchRequestGroup,
        version: int,
        *,
        require_stable: bool,
        reply: Reply,
    ) -> Outcome:
        """OffsetFetch, of one group. A group or a partition that has none gets -1, without an error."""
        found = self._fetch(asked, version, require_stable)
        return Outcome(replies=[(reply, found)])

    def _fetch(
        self, asked: m.OffsetFetchRequest.OffsetFetchRequestGroup, version: int, require_stable: bool
    ) -> FetchedGroup:
        group_id = asked.group_id
        group = self._context.groups.get(group_id)
        if group is not None:
            try:
                group.validate_fetch(asked.member_id, asked.member_epoch)
            except Refused as refused:
                if refused.error is not Error.GROUP_ID_NOT_FOUND:
                    return FetchedGroup(group_id=group_id, error_code=refused.error)
                group = None
        if asked.topics is None:
            topics = [] if group is None else self._all_topics(group_id, version, require_stable)
            return FetchedGroup(group_id=group_id, topics=topics)
        topics = []
        for topic in asked.topics:
            name, topic_id, error = topic.name, self._context.image.topic_ids.get(topic.name, NO_ID), Error.NONE
            if version >= IDS_SINCE:
                name, topic_id, error = self._topic("", topic.topic_id, version)
            partitions = [
                _none(index, error) if error else self._partition(group_id, name, topic_id, index, require_stable)
                for index in topic.partition_indexes
            ]
            topics.append(FetchedTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return FetchedGroup(group_id=group_id, topics=topics)

    def _all_topics(self, group_id: str, version: int, require_stable: bool) -> list[FetchedTopic]:
        topics = []
        for name, partitions in self.store.of_group(group_id).items():
            topic_id = self._context.image.topic_ids.get(name, NO_ID)
            if version >= IDS_SINCE and topic_id == NO_ID:
                continue  # it was deleted, and can't be named any more
            found = [
                self._partition(group_id, name, topic_id, index, require_stable)
                for index, kept in partitions.items()
                if not is_of_another(kept, topic_id)
            ]
            if found:
                topics.append(FetchedTopic(name=name, topic_id=topic_id, partitions=found))
        return topics

    def _partition(
        self, group_id: str, topic: str, topic_id: bytes, index: int, require_stable: bool
    ) -> FetchedPartition:
        if require_stable and self.store.is_pending(group_id, topic, index):
            return _none(index, Error.UNSTABLE_OFFSET_COMMIT)
        kept = self.store.of_group(group_id).get(topic, _NOTHING).get(index)
        if kept is None or is_of_another(kept, topic_id):
            return _none(index, Error.NONE)
        committed = committed_of(kept)
        return FetchedPartition(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )

    # --------------------------------------------------------------------------------------------------------- deleting

    def delete(self, body: m.OffsetDeleteRequest, reply: Reply) -> Outcome:
        """OffsetDelete."""
        if not body.group_id:
            raise Refused(Error.INVALID_GROUP_ID)
        group = self._context.groups.get(body.group_id)
        if group is None:
            raise Refused(Error.GROUP_ID_NOT_FOUND)
        group.validate_offset_delete()
        records: list[StateRecord] = []
        topics: list[DeletedTopic] = []
        for topic in body.topics:
            found = self._context.image.topic(topic.name)
            error = Error.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(topic.name) else Error.NONE
            answers: list[DeletedPartition] = []
            for partition in topic.partitions:
                index = partition.partition_index
                if found is None or index not in found.partitions:
                    answer = Error.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    answer = error
                    if not error and self.store.has(body.group_id, topic.name, index):
                        records.append(tombstone(body.group_id, topic.name, index))
                answers.append(DeletedPartition(partition_index=index, error_code=answer))
            topics.append(DeletedTopic(name=topic.name, partitions=answers))
        return Outcome(records, [(reply, m.OffsetDeleteResponse(topics=topics))])

    def tombstones(self, group_id: str) -> list[StateRecord]:
        """The records that delete all offsets of a group, those of open transactions too."""
        found = {
            (topic, index): None for topic, partitions in self.store.of_group(group_id).items() for index in partitions
        }
        found |= dict.fromkeys(self.store.pending_of_group(group_id))
        return [tombstone(group_id, topic, index) for topic, index in found]

    # -------------------------------------------------------------------------------------------------------- replaying

    def replay(
        self,
        kind: int,
        key: bytes,
        value: bytes | None,
        offset: int,
        timestamp_ms: int,
        stamp: ProducerStamp | None,
    ) -> None:
        group_id, topic, partition = decode_key(key)
        if value is None:
            self.store.remove(group_id, topic, partition)
            self._forget_simple(group_id)
            return
        kept = stored(kind, value, offset)
        if stamp is None:
            self.store.put(group_id, topic, partition, kept)
        else:
            self.store.put_pending(stamp.producer_id, group_id, topic, partition, kept)
        self.know(group_id)

    def know(self, group_id: str) -> None:
        """That it has offsets makes it a group."""
        groups = self._context.groups
        if group_id not in groups:
            groups[group_id] = SimpleGroup(group_id)

    def replay_end(self, stamp: ProducerStamp, is_commit: bool) -> None:
        for group_id in self.store.end(stamp.producer_id, is_commit):
            self._forget_simple(group_id)

    def _forget_simple(self, group_id: str) -> None:
        """A group that only offsets tell of goes with them."""
        groups, store = self._context.groups, self.store
        if (
            type(groups.get(group_id)) is SimpleGroup
            and not store.of_group(group_id)
            and not store.has_pending(group_id)
        ):
            del groups[group_id]

    # ------------------------------------------------------------------------------------------------------ the cluster

    def settle(self, now_ms: int) -> Iterator[None]:
        return iter(())

    def loaded(self, now_ms: int) -> Outcome:
        self._expiry.start(now_ms)
        # Topics may have been deleted while nobody led this partition.
        self._deleted.extend(self.store.topics())
        return self._deleted.look(now_ms)

    def image_changed(self, delta: Delta, now_ms: int) -> Outcome:
        if not delta.removed_topics:
            return Outcome()
        self._deleted.extend(topic.name for topic in delta.removed_topics.values())
        return self._deleted.look(now_ms)

    def unloaded(self, now_ms: int) -> Outcome:
        return Outcome()


def _there(image: Image, asked: Iterable[tuple[bytes, Sequence[AskedPartition]]]) -> Iterator[tuple[bytes, int]]:
    """What of a commit names partitions that there are."""
    for topic_id, partitions in asked:
        topic = image.topics.get(topic_id)
        if topic is not None:
            for partition in partitions:
                if partition.partition_index in topic.partitions:
                    yield topic_id, partition.partition_index


def _none(index: int, error: Error) -> FetchedPartition:
    return FetchedPartition(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
    )
