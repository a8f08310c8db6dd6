"""Every message and version: what is encoded comes back, and other codecs agree byte for byte."""

import importlib
import io
import re
import subprocess
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from headrace.config.broker import RequestConfig
from headrace.errors import ProtocolError
from headrace.protocol import messages
from headrace.protocol.codec import ELEMENTS_MAX, decode, decode_at, encode, encode_bytes
from headrace.protocol.explain import explain
from headrace.protocol.message import Message
from headrace.protocol.messages import (
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    TopicRecord,
)
from headrace.protocol.shape import Kind
from headrace.protocol.wire import join_tags, split_tags
from tests.protocol.generate import Generator

ALL: list[type[Message]] = [getattr(messages, name) for name in dir(messages)]
SEEDS = st.integers(0, 2**32)

KAFKA_PYTHON_DIFFERS = {
    "ConsumerProtocolSubscription",  # its encode() adds a header of two bytes, and is used through it
    "ConsumerProtocolAssignment",
}


def by_name(cls: type[Message]) -> str:
    return cls.__name__


@pytest.mark.parametrize("cls", ALL, ids=by_name)
@given(seed=SEEDS)
def test_what_is_encoded_comes_back(cls: type[Message], seed: int) -> None:
    for version in cls.shape.versions:
        message = Generator(Random(seed)).message(cls, version)
        data = encode_bytes(message, version)
        assert decode(cls, version, data) == message
        assert decode(cls, version, memoryview(data)) == message


@pytest.mark.parametrize("cls", ALL, ids=by_name)
@given(seed=SEEDS)
def test_the_slow_reading_ends_where_the_compiled_one_does(cls: type[Message], seed: int) -> None:
    for version in cls.shape.versions:
        data = encode_bytes(Generator(Random(seed)).message(cls, version), version)
        rows = list(explain(cls, version, data, 0, 1_000_000))
        assert sum(row.size for row in rows) == len(data)
        assert [row.position for row in rows] == sorted(row.position for row in rows)


# --- other codecs -----------------------------------------------------------------------------------------------------


def kio_entity(cls: type[Message], version: int) -> Any:
    name, kind = cls.__name__, "data"
    if cls.shape.kind is Kind.API:
        kind = "request" if name.endswith("Request") else "response"
        name = name.removesuffix("Request").removesuffix("Response")
    elif cls.__name__.endswith("Header"):
        kind = "header"
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    try:
        return getattr(importlib.import_module(f"kio.schema.{module}.v{version}.{kind}"), cls.__name__)
    except ImportError:
        pytest.skip(f"kio does not have {cls.__name__} v{version}")


@pytest.mark.parametrize(
    "cls",
    [cls for cls in ALL if cls.shape.kind in (Kind.API, Kind.DATA) and cls.__name__ != "QuorumStateData"],
    ids=by_name,
)
@given(seed=SEEDS)
def test_kio_reads_and_writes_the_same_bytes(cls: type[Message], seed: int) -> None:
    for version in cls.shape.versions:
        entity = kio_entity(cls, version)
        data = encode_bytes(Generator(Random(seed), tame=True).message(cls, version), version)
        theirs, end = entity_reader(entity)(data, 0)
        out = io.BytesIO()
        entity_writer(entity)(out, theirs)
        assert end == len(data)
        assert out.getvalue() == data


def kafka_python_class(name: str) -> Any:
    for module in ("producer", "consumer", "metadata", "admin", "sasl"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    return None


IN_KAFKA_PYTHON = [cls for cls in ALL if kafka_python_class(cls.__name__) and cls.__name__ not in KAFKA_PYTHON_DIFFERS]


@pytest.mark.parametrize("cls", IN_KAFKA_PYTHON, ids=by_name)
@given(seed=SEEDS)
def test_kafka_python_reads_and_writes_the_same_bytes(cls: type[Message], seed: int) -> None:
    theirs = kafka_python_class(cls.__name__)
    for version in cls.shape.versions:
        if version > theirs.max_version:
            continue
        message = Generator(Random(seed), tame=True).message(cls, version)
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # with an error it reads every version as version 0
        data = encode_bytes(message, version)
        decoded = theirs.decode(data, version=version)
        decoded._header = None
        assert bytes(decoded.encode(version=version)) == data


def test_kafka_python_has_most_of_the_rpcs() -> None:
    assert len(IN_KAFKA_PYTHON) > 90


# --- what a codec promises --------------------------------------------------------------------------------------------


def test_records_are_views_into_the_frame_and_go_out_as_they_are() -> None:
    batch = bytearray(b"a batch of records")
    data = ProduceRequest.PartitionProduceData(index=3, records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    buffers = encode(ProduceRequest(acks=1, timeout_ms=100, topic_data=[topic]), 9)
    assert any(buffer is batch for buffer in buffers)

    frame = bytearray(b"".join(buffers))
    view = decode(ProduceRequest, 9, memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    view[0:1] = b"A"
    assert b"A batch of records" in frame


def test_a_tagged_struct_is_on_the_wire_only_when_it_is_set() -> None:
    partition = FetchResponse.PartitionData(partition_index=1, records=b"")
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])
    without = encode_bytes(response, 12)
    partition.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=7)
    with_leader = encode_bytes(response, 12)
    assert len(with_leader) == len(without) + 2 + 9
    decoded = decode(FetchResponse, 12, with_leader).responses[0].partitions[0]
    assert decoded.current_leader == FetchResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=7)
    assert decoded.diverging_epoch is None


def test_unknown_tags_are_carried_along_and_known_ones_stay_in_order() -> None:
    request = FetchRequest(cluster_id="c", max_wait_ms=1)
    request.unknown_tags = join_tags({9: b"nine", 300: b""})
    decoded = decode(FetchRequest, 13, encode_bytes(request, 13))
    assert decoded.cluster_id == "c"
    assert split_tags(decoded.unknown_tags or b"") == {9: b"nine", 300: b""}
    assert encode_bytes(decoded, 13) == encode_bytes(request, 13)


def test_a_field_that_a_version_has_not_is_dropped_if_ignorable_and_an_error_if_not() -> None:
    assert encode_bytes(HeartbeatResponse(throttle_time_ms=5), 0) == b"\0\0"
    with pytest.raises(ProtocolError, match="HeartbeatRequest v0: group_instance_id is set, but this version can't"):
        encode(HeartbeatRequest(group_instance_id="i"), 0)


def test_null_where_it_may_not_be_names_the_field() -> None:
    with pytest.raises(ProtocolError, match=r"MetadataRequest v0: topics can't be null"):
        encode(MetadataRequest(topics=None), 0)
    assert decode(MetadataRequest, 1, encode_bytes(MetadataRequest(topics=None), 1)).topics is None


@pytest.mark.parametrize(
    ("message", "version", "problem"),
    [
        (FetchRequest(max_wait_ms=1 << 31), 12, "max_wait_ms is 2147483648, which does not fit int32"),
        (FetchRequest(max_wait_ms="soon"), 12, "max_wait_ms is a str, not an integer"),  # type: ignore[arg-type]
        (FetchRequest(topics=7), 12, "topics is a int, not a list"),  # type: ignore[arg-type]
        (FetchRequest(topics=[TopicRecord()]), 12, r"topics\[0\] is a TopicRecord, not a FetchRequest.FetchTopic"),  # type: ignore[list-item]
        (TopicRecord(name="t", topic_id=b"short"), 0, "topic_id is 5 bytes, and a uuid is 16"),
        (TopicRecord(name=b"bytes"), 0, "name is a bytes, not a string"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="g" * 40_000), 0, "group_id is 40000 bytes long, and this version can carry 32767"),
        (HeartbeatRequest(group_id="\ud800"), 0, "group_id holds characters that UTF-8 can't carry"),
    ],
)
def test_a_message_that_cannot_be_encoded_says_which_field_and_why(
    message: Message, version: int, problem: str
) -> None:
    with pytest.raises(ProtocolError, match=f"^{message.shape.name} v{version}: {problem}$"):
        encode(message, version)


def test_a_version_that_a_message_has_not_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="FetchRequest has versions 4-18, not 99"):
        encode(FetchRequest(), 99)
    with pytest.raises(ProtocolError, match="ProduceResponse has versions 3-13, not 2"):
        decode(ProduceResponse, 2, b"")
    with pytest.raises(ProtocolError, match="a part of a message"):
        encode(FetchRequest.FetchTopic(), 12)


def test_bytes_behind_a_message_are_an_error_unless_it_is_read_at_a_position() -> None:
    data = encode_bytes(HeartbeatResponse(), 4) + b"more"
    with pytest.raises(ProtocolError, match="HeartbeatResponse v4 ends at byte 7, but 4 bytes follow it"):
        decode(HeartbeatResponse, 4, data)
    assert decode_at(HeartbeatResponse, 4, data, 0) == (HeartbeatResponse(), 7)


@pytest.mark.parametrize("text", [b"caf\xe9", b"\xff\xfe", b"\xc3", b"\xf0\x9f\x98", b"a\xc0\xafb", b"\xed\xa0\x80"])
def test_strings_of_a_request_that_are_not_utf8_are_read_with_replacement_characters(text: bytes) -> None:
    place = "x" * len(text)
    replaced = text.decode(errors="replace")
    requests: list[tuple[Message, int]] = [
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t"), _named(place)]), 1),
        (MetadataRequest(topics=[_named(place)]), 12),
        (ProduceRequest(transactional_id=place, topic_data=[]), 9),  # in a view, because of records
        (FetchRequest(cluster_id=place), 12),  # in a tagged field
    ]
    for request, version in requests:
        data = encode_bytes(request, version)
        assert data.count(place.encode()) == 1
        found = decode(type(request), version, data.replace(place.encode(), text))
        assert repr(found) == repr(request).replace(place, replaced)
        assert decode(type(request), version, encode_bytes(found, version)) == found
        rows = [*explain(type(request), version, data.replace(place.encode(), text), 0, ELEMENTS_MAX)]
        assert any(repr(replaced) in row.value or row.value == replaced for row in rows)


def _named(name: str) -> MetadataRequest.MetadataRequestTopic:
    return MetadataRequest.MetadataRequestTopic(name=name)


def test_records_and_responses_must_be_utf8() -> None:
    """They are ours, or of a broker: what is not UTF-8 in them is damage."""
    for cls, version, message in (
        (TopicRecord, 0, TopicRecord(name="xxxx")),
        (MetadataResponse, 9, MetadataResponse(cluster_id="xxxx")),
    ):
        with pytest.raises(ProtocolError, match="not UTF-8"):
            decode(cls, version, encode_bytes(message, version).replace(b"xxxx", b"caf\xe9"))


def test_the_usual_limit_on_elements_is_the_default_of_its_setting() -> None:
    assert RequestConfig().socket_request_max_elements == ELEMENTS_MAX


def test_importing_the_protocol_compiles_nothing_and_makes_no_class() -> None:
    program = (
        "import headrace.protocol.frame, headrace.protocol.messages as m, headrace.protocol.shape as s\n"
        "assert s._index.cache_info().currsize == 0, 'shapes were read'\n"
        "assert not any(isinstance(x, type) and x.__name__.endswith('Request') for x in vars(m).values())\n"
        "m.FetchRequest\n"
        "assert not m.FetchRequest.encoders and not m.FetchRequest.decoders\n"
        "assert 'ProduceRequest' not in vars(m)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
