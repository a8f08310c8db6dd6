"""Frames: lengths, headers, and what nobody knows."""

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol.apis import Api, all_apis, find_api
from headrace.protocol.codec import decode_at, encode_bytes
from headrace.protocol.frame import (
    Request,
    Unsupported,
    read_correlation_id,
    read_request,
    read_response,
    read_size,
    write_request,
    write_response,
)
from headrace.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    ProduceRequest,
    RequestHeader,
    ResponseHeader,
)
from headrace.protocol.wire import join_tags
from tests.protocol.generate import Generator

APIS = all_apis()


def api(key: int) -> Api:
    found = find_api(key)
    assert found is not None
    return found


@given(
    seed=st.integers(0, 2**32),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
def test_requests_and_responses_of_every_version_come_back(
    seed: int, correlation_id: int, client_id: str | None
) -> None:
    random = Random(seed)
    for served in random.sample(APIS, 12):
        version = random.randint(served.versions.first, served.versions.last)
        request = Generator(random).message(served.request, version)
        frame = b"".join(write_request(request, version, correlation_id, client_id))
        assert read_size(frame, 0, 1 << 30) == len(frame) - 4
        assert read_request(frame[4:]) == Request(served, version, correlation_id, client_id, request)

        response = Generator(random).message(served.response, version)
        frame = b"".join(write_response(response, version, correlation_id))
        assert read_size(frame, 0, 1 << 30) == len(frame) - 4
        assert read_correlation_id(frame[4:]) == correlation_id
        assert read_response(served, version, frame[4:]) == (correlation_id, response)


def test_headers_are_those_of_their_shapes() -> None:
    frame = b"".join(write_request(HeartbeatRequest(group_id="g"), 4, 7, "client"))[4:]
    header, end = decode_at(RequestHeader, api(12).request_header_version(4), frame, 0)
    assert header == RequestHeader(request_api_key=12, request_api_version=4, correlation_id=7, client_id="client")
    assert frame[end:] == encode_bytes(HeartbeatRequest(group_id="g"), 4)
    assert api(12).request_header_version(3) == 1

    frame = b"".join(write_response(ApiVersionsResponse(), 4, 9))[4:]
    assert frame.startswith(encode_bytes(ResponseHeader(correlation_id=9), 0))
    assert frame[4:] == encode_bytes(ApiVersionsResponse(), 4)
    assert [api(18).response_header_version(4), api(12).response_header_version(4)] == [0, 1]
    assert api(12).response_header_version(3) == 0


def test_tagged_fields_of_a_header_are_skipped() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=1)
    header.unknown_tags = join_tags({0: b"abc", 200: b""})
    frame = encode_bytes(header, 2) + encode_bytes(ApiVersionsRequest(client_software_name="c"), 3)
    request = read_request(frame)
    assert isinstance(request, Request)
    assert request.body.client_software_name == "c"


def test_the_first_buffer_holds_the_length_and_records_are_not_copied() -> None:
    batch = bytearray(5000)
    data = ProduceRequest.PartitionProduceData(records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    buffers = write_request(ProduceRequest(topic_data=[topic]), 9, 1, None)
    assert struct.unpack_from(">i", buffers[0])[0] == sum(map(len, buffers)) - 4
    assert buffers[1] is batch


def test_an_unknown_api_or_version_is_a_value() -> None:
    unknown = read_request(struct.pack(">hhih", 4711, 3, 17, -1))
    assert unknown == Unsupported(4711, 3, 17, None)
    assert unknown.text == "API key 4711 is not known"

    newer = read_request(struct.pack(">hhih", 18, 99, 18, -1))
    assert newer == Unsupported(18, 99, 18, api(18))
    assert newer.text == "ApiVersions has versions 0-4, not 99"

    assert read_request(struct.pack(">hhi", 4711, 0, 5)) == Unsupported(4711, 0, 5, None)


def test_a_client_id_that_is_not_utf8_is_read_with_replacement_characters() -> None:
    frame = struct.pack(">hhih", 18, 0, 5, 5) + b"caf\xe9!"
    for form in (frame, bytearray(frame), memoryview(frame)):
        request = read_request(form)
        assert isinstance(request, Request)
        assert request.client_id == "caf\N{REPLACEMENT CHARACTER}!"


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"", "RequestHeader: a request of 0 bytes is shorter than any header"),
        (b"\0\0\0", "RequestHeader: a request of 3 bytes is shorter than any header"),
        (struct.pack(">hhi", 3, 1, 5), "header of Metadata v1 at byte 8: the request ends before the client id"),
        (
            struct.pack(">hhih", 3, 1, 5, 99) + b"abc",
            "header of Metadata v1 at byte 10: the client id is longer than the frame",
        ),
        (
            struct.pack(">hhih", 3, 1, 5, 10_923) + b"\xff" * 10_923,
            "header of Metadata v1 at byte 10: the client id is not UTF-8, and too long",
        ),
        (struct.pack(">hhih", 3, 9, 5, -1), "header of Metadata v9 at byte 10: the tagged fields can't be read"),
        (
            struct.pack(">hhih", 3, 9, 5, -1) + b"\xff" * 8,
            "header of Metadata v9 at byte 10: the tagged fields can't be read",
        ),
        (
            struct.pack(">hhih", 3, 1, 5, -1) + b"\0\0\0\7",
            "MetadataRequest v1: topics at byte 14: 7 elements need 14 bytes, and 0 are left",
        ),
    ],
)
def test_a_request_that_cannot_be_read_says_where_and_why(frame: bytes, error: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        read_request(frame)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\xff\xff\xff\xff", "a frame says that it is -1 bytes long"),
        (b"\x7f\xff\xff\xff", "a frame says that it is 2147483647 bytes long, and the limit is 1000"),
        (b"GET /", "a frame starts with HTTP: this port speaks the Kafka protocol"),
        (b"\x16\x03\x01\x02", "a frame starts with a TLS handshake: this listener does not speak TLS"),
    ],
)
def test_a_length_that_cannot_be_is_refused(data: bytes, error: str) -> None:
    with pytest.raises(ProtocolError, match=f"^{error}$"):
        read_size(data, 0, 1000)


def test_a_response_without_a_correlation_id() -> None:
    with pytest.raises(ProtocolError, match="a response of 2 bytes has no correlation id"):
        read_response(api(3), 9, b"\0\0")
