"""Replies to a fetch that comes again are the bytes that the codec makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import messages as m
from headrace.protocol.fetch_reply import FLEXIBLE_SINCE, SESSIONS_SINCE, START_OFFSET_SINCE, FetchReply
from headrace.protocol.frame import write_response

VERSIONS = range(4, 19)
IDS_SINCE = 13
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)


def reply(version: int, name: str = "t", **fields: Any) -> m.FetchResponse:
    data = m.FetchResponse.PartitionData(
        **{"partition_index": 3, "aborted_transactions": None, "records": b"some records", **fields}
    )
    topic = m.FetchResponse.FetchableTopicResponse(partitions=[data])
    if version < IDS_SINCE:
        topic.topic = name
    else:
        topic.topic_id = name.encode().ljust(16, b".")[:16]
    return m.FetchResponse(responses=[topic])


def known(version: int, name: str = "t", index: int = 3) -> FetchReply:
    topic = reply(version, name).responses[0]
    return FetchReply(topic.topic, topic.topic_id, index, version)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    name=NAMES,
    index=INT32,
    correlation_id=INT32,
    session_id=INT32,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    records_bytes=st.sampled_from([1, 126, 127, 128, 16382, 16383, 16384, 70_000]),
)
def test_a_reply_with_records_is_as_the_codec_writes_it(
    version: int,
    name: str,
    index: int,
    correlation_id: int,
    session_id: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    records_bytes: int,
) -> None:
    records = memoryview(bytearray(b"r" * records_bytes))
    response = reply(
        version,
        name,
        partition_index=index,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset if version >= START_OFFSET_SINCE else -1,
        records=records,
    )
    response.session_id = session_id if version >= SESSIONS_SINCE else 0
    written = known(version, name, index).write(response, correlation_id)
    assert written is not None
    assert b"".join(written) == b"".join(write_response(response, version, correlation_id))
    assert written[1] is records, "they are not copied"
    assert len(written) == (3 if version >= FLEXIBLE_SINCE else 2)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "fields",
    [
        {"error_code": 1},
        {"records": b""},
        {"records": None},
        {"partition_index": 4},
        {"aborted_transactions": []},
        {"diverging_epoch": m.FetchResponse.EpochEndOffset(epoch=1, end_offset=2)},
        {"preferred_read_replica": 1},
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_codec(version: int, fields: dict[str, Any]) -> None:
    assert known(version).write(reply(version, **fields), 7) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_other_topics_and_more_of_them_are_left_to_the_codec(version: int) -> None:
    one = known(version)
    assert one.write(reply(version, "another"), 7) is None
    assert one.write(m.FetchResponse(), 7) is None
    twice = reply(version)
    twice.responses += reply(version).responses
    assert one.write(twice, 7) is None
    wide = reply(version)
    wide.responses[0].partitions *= 2
    assert one.write(wide, 7) is None
    refused = reply(version)
    refused.error_code = 1
    assert one.write(refused, 7) is None
