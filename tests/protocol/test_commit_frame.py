"""Commits that come again with other offsets are told from all other requests by their bytes."""

from __future__ import annotations

from contextlib import suppress
from struct import pack, unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol import messages as m
from headrace.protocol.commit_frame import CommitFrame
from headrace.protocol.frame import SIZE_BYTES, Request, read_request, write_request

VERSIONS = range(2, 11)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
CLIENT = st.none() | TEXT

partitions = st.builds(
    m.OffsetCommitRequest.OffsetCommitRequestPartition,
    partition_index=INT32,
    committed_offset=INT64,
    committed_leader_epoch=INT32,
    committed_metadata=st.none() | TEXT,
)
topics = st.builds(
    m.OffsetCommitRequest.OffsetCommitRequestTopic,
    name=TEXT,
    topic_id=st.binary(min_size=16, max_size=16),
    partitions=st.lists(partitions, max_size=5) | st.lists(partitions, min_size=130, max_size=130),
)
bodies = st.builds(
    m.OffsetCommitRequest,
    group_id=TEXT,
    generation_id_or_member_epoch=INT32,
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    retention_time_ms=INT64,
    topics=st.lists(topics, max_size=3),
)


def written(body: m.OffsetCommitRequest, version: int, correlation_id: int, client_id: str | None) -> bytes:
    if version < 7:
        body.group_instance_id = None
    return b"".join(write_request(body, version, correlation_id, client_id))[SIZE_BYTES:]


def said(body: m.OffsetCommitRequest, version: int) -> list[bytes]:
    return [
        pack(">qi", partition.committed_offset, partition.committed_leader_epoch if version >= 6 else -1)
        for topic in body.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
@given(body=bodies, client_id=CLIENT, correlation_id=INT32, data=st.data())
def test_the_same_request_with_other_offsets_is_read(
    version: int, body: m.OffsetCommitRequest, client_id: str | None, correlation_id: int, data: st.DataObject
) -> None:
    written(body, version, 0, client_id)
    known = CommitFrame.of(body, version, client_id)
    assert known is not None
    for topic in body.topics:
        for partition in topic.partitions[:3]:
            partition.committed_offset, partition.committed_leader_epoch = data.draw(INT64), data.draw(INT32)
    frame = written(body, version, correlation_id, client_id)
    assert known.read(memoryview(frame)) == (correlation_id.to_bytes(4, signed=True), said(body, version))


@pytest.mark.parametrize("version", VERSIONS)
@given(body=bodies, client_id=CLIENT, data=st.data())
def test_another_request_is_never_taken_for_it(
    version: int, body: m.OffsetCommitRequest, client_id: str | None, data: st.DataObject
) -> None:
    """Whatever byte is another one: either it is not read, or it is read as the codec does."""
    frame = bytearray(written(body, version, 7, client_id))
    known = CommitFrame.of(body, version, client_id)
    assert known is not None
    for _ in range(20):
        changed = bytearray(frame)
        changed[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
        found = known.read(memoryview(changed))
        if found is None:
            continue
        request = read_request(bytes(changed))
        assert isinstance(request, Request)
        assert found[1] == said(request.body, version)
        assert found[0] == request.correlation_id.to_bytes(4, signed=True)
        places = iter(found[1])
        for topic in body.topics:
            for partition in topic.partitions:
                partition.committed_offset, partition.committed_leader_epoch = unpack(">qi", next(places))
        assert written(body, version, request.correlation_id, client_id) == bytes(changed), "nothing else is another"
    for cut in (frame[:-1], frame + b"\0", b""):
        with suppress(ProtocolError):
            assert known.read(memoryview(bytes(cut))) is None


def test_fields_that_nobody_knows_are_left_to_the_codec() -> None:
    kind = m.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    body = kind(group_id="g", topics=[kind.OffsetCommitRequestTopic(name="t", partitions=[partition])])
    assert CommitFrame.of(body, 9, "c") is not None
    partition.unknown_tags = b"\x01\x05\x01x"
    assert CommitFrame.of(body, 9, "c") is None
