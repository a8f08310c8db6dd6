"""Fetches that come again from other offsets are told from all other requests by their bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol import messages as m
from headrace.protocol.fetch_frame import SESSIONS_SINCE, FetchFrame
from headrace.protocol.frame import SIZE_BYTES, Request, read_request, write_request

MOST = 1 << 20
VERSIONS = range(4, 19)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
CLIENT = st.none() | TEXT

partitions = st.builds(
    m.FetchRequest.FetchPartition,
    partition=INT32,
    current_leader_epoch=INT32,
    fetch_offset=INT64,
    last_fetched_epoch=INT32,
    log_start_offset=INT64,
    partition_max_bytes=INT32,
)
topics = st.builds(
    m.FetchRequest.FetchTopic,
    topic=TEXT,
    topic_id=st.binary(min_size=16, max_size=16),
    partitions=st.lists(partitions, max_size=5) | st.lists(partitions, min_size=130, max_size=130),
)
bodies = st.builds(
    m.FetchRequest,
    max_wait_ms=INT32,
    min_bytes=INT32,
    max_bytes=INT32,
    isolation_level=st.sampled_from([0, 1]),
    session_id=INT32,
    session_epoch=INT32,
    topics=st.lists(topics, max_size=3),
    rack_id=TEXT,
)


def fitting(body: m.FetchRequest, version: int) -> m.FetchRequest:
    """Without what the version has no place for."""
    if version < SESSIONS_SINCE:
        body.session_id = 0
    if version < 11:
        body.rack_id = ""
    for topic in body.topics:
        for partition in topic.partitions:
            if version < 12:
                partition.last_fetched_epoch = -1
            if version < 9:
                partition.current_leader_epoch = -1
    return body


def written(body: m.FetchRequest, version: int, correlation_id: int, client_id: str | None) -> bytes:
    return b"".join(write_request(fitting(body, version), version, correlation_id, client_id))[SIZE_BYTES:]


def said(body: m.FetchRequest, version: int) -> tuple[int, ...]:
    offsets = tuple(partition.fetch_offset for topic in body.topics for partition in topic.partitions)
    return (body.session_epoch, *offsets) if version >= SESSIONS_SINCE else offsets


@pytest.mark.parametrize("version", VERSIONS)
@given(body=bodies, client_id=CLIENT, correlation_id=INT32, data=st.data())
def test_the_same_request_from_other_offsets_is_read(
    version: int, body: m.FetchRequest, client_id: str | None, correlation_id: int, data: st.DataObject
) -> None:
    before = written(body, version, 0, client_id)
    known = FetchFrame.of(body, version, client_id, MOST)
    assert known is not None
    assert written(body, version, 0, client_id) == before, "the request is as it was"
    body.session_epoch = data.draw(INT32)
    for topic in body.topics:
        for partition in topic.partitions[:3]:
            partition.fetch_offset = data.draw(INT64)
    frame = written(body, version, correlation_id, client_id)
    assert known.read(memoryview(frame)) == (correlation_id, said(body, version))


@pytest.mark.parametrize("version", VERSIONS)
@given(body=bodies, client_id=CLIENT, data=st.data())
def test_another_request_is_never_taken_for_it(
    version: int, body: m.FetchRequest, client_id: str | None, data: st.DataObject
) -> None:
    """Whatever byte is another one: either it is not read, or it is read as the codec does."""
    frame = bytearray(written(body, version, 7, client_id))
    known = FetchFrame.of(body, version, client_id, MOST)
    assert known is not None
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    found = known.read(memoryview(frame))
    if found is None:
        return
    request = read_request(bytes(frame))
    assert isinstance(request, Request)
    correlation_id, numbers = found
    assert (request.correlation_id, said(request.body, version)) == (correlation_id, numbers)
    assert written(request.body, version, correlation_id, request.client_id) == bytes(frame)


@given(body=bodies, extra=st.binary(min_size=1, max_size=20))
def test_a_longer_or_shorter_one_is_another(body: m.FetchRequest, extra: bytes) -> None:
    frame = written(body, 12, 7, "c")
    known = FetchFrame.of(body, 12, "c", MOST)
    assert known is not None
    assert known.read(memoryview(frame + extra)) is None
    assert known.read(memoryview(frame[:-1])) is None
    assert known.read(memoryview(b"")) is None
    with suppress(ProtocolError):
        read_request(frame + extra)


def test_fields_that_nobody_knows_are_not_guessed_at() -> None:
    body = m.FetchRequest(topics=[m.FetchRequest.FetchTopic(topic="t")])
    body.topics[0].unknown_tags = b"\x63\x01x"
    assert FetchFrame.of(body, 12, None, MOST) is None


def test_a_large_one_is_left_to_the_codec() -> None:
    """To find what moves in it takes seconds for one of 100 MB, and whoever sends that does so every time."""
    body = m.FetchRequest(rack_id="r" * 100)
    size_bytes = sum(map(len, write_request(body, 12, 0, "c"))) - SIZE_BYTES
    assert FetchFrame.of(body, 12, "c", size_bytes - 1) is None
    assert FetchFrame.of(body, 12, "c", size_bytes) is not None
