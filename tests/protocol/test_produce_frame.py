"""Produce requests that come again with other records are told from all other requests by their bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol import messages as m
from headrace.protocol.frame import SIZE_BYTES, Request, read_request, write_request, write_response
from headrace.protocol.produce_frame import HEAD_BYTES, ProduceFrame

VERSIONS = range(3, 14)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
CLIENT = st.none() | TEXT
RECORDS = st.binary(min_size=1, max_size=300) | st.sampled_from([b"r" * 16_381, b"r" * 16_382, b"r" * 20_000])
BODIES = st.builds(
    m.ProduceRequest,
    transactional_id=st.none() | TEXT,
    acks=st.integers(-1, 1),
    timeout_ms=INT32,
    topic_data=st.builds(
        m.ProduceRequest.TopicProduceData,
        name=TEXT,
        topic_id=st.binary(min_size=16, max_size=16),
        partition_data=st.builds(m.ProduceRequest.PartitionProduceData, index=INT32, records=RECORDS).map(
            lambda data: [data]
        ),
    ).map(lambda topic: [topic]),
)


def written(body: m.ProduceRequest, version: int, correlation_id: int, client_id: str | None) -> bytes:
    return b"".join(bytes(part) for part in write_request(body, version, correlation_id, client_id))[SIZE_BYTES:]


def found_in(known: ProduceFrame, frame: bytes) -> bytes | None:
    """As a connection looks for it."""
    end = HEAD_BYTES + len(known.prefix)
    if frame[:4] != known.head or frame[HEAD_BYTES:end] != known.prefix:
        return None
    found = known.records_in(memoryview(frame))
    return None if found is None else bytes(found)


@pytest.mark.parametrize("version", VERSIONS)
@given(body=BODIES, client_id=CLIENT, correlation_id=INT32, records=RECORDS)
def test_the_same_request_with_other_records_is_read(
    version: int, body: m.ProduceRequest, client_id: str | None, correlation_id: int, records: bytes
) -> None:
    known = ProduceFrame.of(body, version, client_id)
    assert known is not None
    body.topic_data[0].partition_data[0].records = records
    assert found_in(known, written(body, version, correlation_id, client_id)) == records


@pytest.mark.parametrize("version", VERSIONS)
@given(body=BODIES, more=st.binary(min_size=1, max_size=5), less=st.integers(1, 8))
def test_a_frame_that_is_longer_or_shorter_than_its_records_is_another_one(
    version: int, body: m.ProduceRequest, more: bytes, less: int
) -> None:
    known = ProduceFrame.of(body, version, None)
    assert known is not None
    frame = written(body, version, 7, None)
    assert found_in(known, frame + more) is None
    assert found_in(known, frame[:-less]) is None


@pytest.mark.parametrize("version", VERSIONS)
@given(body=BODIES, client_id=CLIENT, data=st.data())
def test_whatever_else_is_taken_for_it_says_the_same(
    version: int, body: m.ProduceRequest, client_id: str | None, data: st.DataObject
) -> None:
    """Bytes are changed, added and left out: what is found then is what the codec reads, too."""
    known = ProduceFrame.of(body, version, client_id)
    assert known is not None
    frame = bytearray(written(body, version, 7, client_id))
    end = HEAD_BYTES + len(known.prefix)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(frame) - 1) | st.integers(end, len(frame) - 1))
        match data.draw(st.sampled_from(["change", "add", "leave out"])):
            case "change":
                frame[at] = data.draw(st.integers(0, 255))
            case "add":
                frame.insert(at, data.draw(st.integers(0, 255)))
            case _ if len(frame) > end + 1:
                del frame[at]
    found = found_in(known, bytes(frame))
    if found is None:
        return
    read: object = None
    with suppress(ProtocolError):
        read = read_request(bytes(frame))
    assert isinstance(read, Request)
    assert (read.client_id, read.body.acks, read.body.timeout_ms) == (client_id, body.acks, body.timeout_ms)
    topic = read.body.topic_data[0]
    assert topic.partition_data[0].index == body.topic_data[0].partition_data[0].index
    assert topic.partition_data[0].records == found
    assert (topic.name, topic.topic_id) == (
        (body.topic_data[0].name, bytes(16)) if version < 13 else ("", body.topic_data[0].topic_id)
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(body=BODIES, correlation_id=INT32, base=INT64, time=INT64, start=INT64)
def test_the_reply_is_the_one_that_the_codec_writes(
    version: int, body: m.ProduceRequest, correlation_id: int, base: int, time: int, start: int
) -> None:
    known = ProduceFrame.of(body, version, "a-client")
    assert known is not None
    asked = body.topic_data[0]
    kind = m.ProduceResponse
    answer = kind.PartitionProduceResponse(
        index=asked.partition_data[0].index, base_offset=base, log_append_time_ms=time, log_start_offset=start
    )
    topic = kind.TopicProduceResponse(name=asked.name, topic_id=asked.topic_id, partition_responses=[answer])
    expected = b"".join(write_response(kind(responses=[topic]), version, correlation_id))
    assert known.reply(correlation_id.to_bytes(4, signed=True), base, time, start) == expected


def test_several_partitions_and_fields_that_nobody_knows_are_not_compared() -> None:
    kind = m.ProduceRequest
    data = [kind.PartitionProduceData(index=index, records=b"r") for index in range(2)]
    topics = [kind.TopicProduceData(name="t", partition_data=data[:1])]
    assert ProduceFrame.of(kind(topic_data=topics), 9, None) is not None
    assert ProduceFrame.of(kind(topic_data=[*topics, *topics]), 9, None) is None
    assert ProduceFrame.of(kind(topic_data=[kind.TopicProduceData(name="t", partition_data=data)]), 9, None) is None
    assert ProduceFrame.of(kind(topic_data=[]), 9, None) is None
    body = kind(topic_data=topics)
    for part in (body, topics[0], data[0]):
        part.unknown_tags = b"\x09\x01x"
        assert ProduceFrame.of(body, 9, None) is None
        part.unknown_tags = None
    assert ProduceFrame.of(body, 9, None) is not None
