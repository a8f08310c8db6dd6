# cython: language_level=3, annotation_typing=False, nonecheck=True
"""What a commit that comes again and again says besides its offsets, worked out once. PURE.

Consumers commit the same partitions every time. Which records that makes and what is answered is known, then, as long
as the topics are the same; whether the member may still commit is asked each time.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.coordinator.offsets.records import ID_TAG, WITH_ID, encode_key, put_away
from headrace.coordinator.shard import RECORD_OVERHEAD_BYTES
from headrace.errors import Error, Refused
from headrace.metadata.image import Image
from headrace.protocol import messages as m
from headrace.protocol.kernel_types import Row
from headrace.protocol.wire import uvarint

if TYPE_CHECKING:
    from headrace.coordinator.groups.shard import GroupShard


_START: Final = Struct(">h").pack(WITH_ID)
_pack_time = Struct(">q").pack
_FIXED_BYTES: Final = 2 + 8 + 4 + 8


class CommitPlan:
    """Of one request, all of whose partitions there are, and none of which has too much metadata."""

    __slots__ = (
        "_generation",
        "_image",
        "_member_id",
        "_partitions",
        "_topics",
        "body",
        "group_id",
        "records",
        "response",
        "size_bytes",
        "version",
    )

    def __init__(self, body: m.OffsetCommitRequest, version: int, image: Image, topic_ids: list[bytes]) -> None:
        """`topic_ids` are those of its topics, in their order."""
        self.body = body
        self.version = version
        self.group_id = body.group_id
        self._member_id = body.member_id
        self._generation = body.generation_id_or_member_epoch
        self._image = image
        self._topics = [(topic_id, image.topics[topic_id]) for topic_id in topic_ids]
        self._partitions: list[tuple[bytes, int]] = []
        self.records: list[tuple[str, int, bytes, bytes, bytes]] = []
        """Of each partition: topic, index, key, its metadata, and what follows its time."""
        self.size_bytes = 0
        """Of the records, as far as a batch has room for them."""
        for asked, (topic_id, topic) in zip(body.topics, self._topics, strict=True):
            for partition in asked.partitions:
                key = encode_key(body.group_id, topic.name, partition.partition_index)
                text = (partition.committed_metadata or "").encode()
                before, after = uvarint(len(text) + 1) + text, ID_TAG + topic_id
                self._partitions.append((topic_id, partition.partition_index))
                self.records.append((topic.name, partition.partition_index, key, before, after))
                self.size_bytes += len(key) + _FIXED_BYTES + len(before) + len(after) + RECORD_OVERHEAD_BYTES
        self.response = self.refused(Error.NONE)
        """When all is well. Nobody changes it."""

    def decide(
        self, places: list[bytes], shard: GroupShard, now_ms: int, rows: list[Row], record_offset: int
    ) -> m.OffsetCommitResponse:
        """What `Offsets.commit` of the request with these offsets and leader epochs says, while it `holds`. What that
        would write is put into `rows`, and replayed, the first record as that at `record_offset`."""
        group_id, body, offsets_of = self.group_id, self.body, shard.offsets
        group = known = shard.context.groups.get(group_id)
        try:
            if group is None:
                group = offsets_of.group_for_commit(body, self.version)
            group.validate_commit(
                self._member_id,
                body.group_instance_id,
                self._generation,
                self.version,
                self._partitions,
                is_transactional=False,
            )
        except Refused as refused:
            return self.refused(refused.error)
        if self._member_id:
            group.committed(self._member_id, now_ms)
        store, time = offsets_of.store, _pack_time(now_ms)
        for number, (topic, index, key, before, after) in enumerate(self.records):
            value = b"".join((_START, places[number], before, time, after))
            rows.append((key, value, (), now_ms))
            store.put(group_id, topic, index, put_away(value, record_offset))
            record_offset += 1
        if known is None:
            offsets_of.know(group_id)
        return self.response

    def holds(self, image: Image) -> bool:
        """Its topics are what they were."""
        if image is self._image:
            return True
        for topic_id, topic in self._topics:
            if image.topics.get(topic_id) is not topic:
                return False
        self._image = image
        return True

    def refused(self, error: Error) -> m.OffsetCommitResponse:
        """The response that says this of all partitions."""
        return answer_to_all(self.body, error)


def answer_to_all(body: m.OffsetCommitRequest, error: Error) -> m.OffsetCommitResponse:
    """The same of every partition."""
    kind = m.OffsetCommitResponse
    return kind(
        topics=[
            kind.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
