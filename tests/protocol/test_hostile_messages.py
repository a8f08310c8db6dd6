"""Whatever the bytes: one error type, a bounded number of elements, bounded memory, time in proportion to the bytes."""

import struct
import sys
from collections.abc import Iterator
from random import Random

import pytest

from headrace.errors import ProtocolError
from headrace.protocol import explain, messages
from headrace.protocol.codec import decode, decode_at, encode_bytes
from headrace.protocol.message import Message
from headrace.protocol.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    MetadataRequest,
    ProduceRequest,
    TopicRecord,
)
from headrace.protocol.shape import NEVER, Field, Struct
from headrace.protocol.wire import join_tags
from tests.fuzz.messages import campaign, check
from tests.protocol.generate import Generator

ALL: list[type[Message]] = [getattr(messages, name) for name in dir(messages)]


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_cut_at_any_byte(cls: type[Message]) -> None:
    for version in cls.shape.versions:
        data = encode_bytes(Generator(Random(version)).message(cls, version), version)
        for end in range(len(data)):
            assert not check(cls, version, data[:end])


@pytest.mark.parametrize("seed", range(8))
def test_damaged_at_random(seed: int) -> None:
    readable, done = campaign(seed, 2_500)
    assert 0 < readable < done


@pytest.mark.parametrize(
    ("cls", "version", "data", "error"),
    [
        (HeartbeatRequest, 0, b"\x00\x05ab", "group_id at byte 2: 5 bytes are needed, and 2 are left"),
        (HeartbeatRequest, 0, b"\xff\xff", "group_id at byte 2: null, but this string can't be"),
        (HeartbeatRequest, 4, b"\x03a", "group_id at byte 1: 2 bytes are needed, and 1 are left"),
        (HeartbeatRequest, 4, b"\x00", "group_id at byte 1: null, but this string can't be"),
        (HeartbeatRequest, 4, b"\x03\xff\xfe", "generation_id at byte 3: 4 bytes are needed, and 0 are left"),
        (TopicRecord, 0, b"\x03\xff\xfe", "name at byte 1: a string that is not UTF-8 (invalid start byte)"),
        (
            HeartbeatRequest,
            0,
            struct.pack(">h", 10_923) + b"\xff" * 10_923,
            "group_id at byte 2: a string that is not UTF-8, and too long with replacement characters",
        ),
        (HeartbeatRequest, 4, b"\xff" * 9, "group_id at byte 0: a varint that is longer than 32 bits"),
        (HeartbeatRequest, 4, b"\x80", "group_id at byte 0: the bytes end inside a varint"),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics at byte 4: null, but this array can't be"),
        (
            MetadataRequest,
            1,
            b"\x7f\xff\xff\xff",
            "topics at byte 4: 2147483647 elements are more than a frame may hold",
        ),
        (MetadataRequest, 1, b"\x00\x00\x00\x09ab", "topics at byte 4: 9 elements need 18 bytes, and 2 are left"),
        (MetadataRequest, 1, b"\0\0\0\1\0\5a", "topics[0].name at byte 6: 5 bytes are needed, and 1 are left"),
    ],
)
def test_the_error_names_message_version_field_and_position(
    cls: type[Message], version: int, data: bytes, error: str
) -> None:
    with pytest.raises(ProtocolError) as raised:
        decode(cls, version, data)
    assert str(raised.value) == f"{cls.__name__} v{version}: {error}"


def test_a_tagged_field_that_is_not_as_long_as_it_says_is_an_error() -> None:
    data = bytearray(encode_bytes(FetchRequest(cluster_id="abc", max_wait_ms=1), 12))
    at = data.index(b"\x04abc")
    data[at - 1] += 1
    with pytest.raises(ProtocolError, match=r"tags\[0\].* cluster_id says 5 bytes and ends 1 bytes off|5 bytes"):
        decode(FetchRequest, 12, bytes(data) + b"\0")


def test_a_frame_may_not_hold_more_elements_than_its_budget_in_all() -> None:
    topic = FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition() for _ in range(6)])
    request = FetchRequest(topics=[topic, topic])
    data = encode_bytes(request, 12)
    assert decode(FetchRequest, 12, data, elements_max=14) == request
    with pytest.raises(ProtocolError, match=r"topics\[1\].partitions at byte \d+: 6 elements are more than a frame"):
        decode(FetchRequest, 12, data, elements_max=13)


def test_tagged_fields_count_as_elements() -> None:
    request = HeartbeatRequest()
    request.unknown_tags = join_tags(dict.fromkeys(range(100), b""))
    data = encode_bytes(request, 4)
    assert decode(HeartbeatRequest, 4, data, elements_max=100) == request
    with pytest.raises(ProtocolError, match="100 elements are more than a frame may hold"):
        decode(HeartbeatRequest, 4, data, elements_max=99)


def test_nested_counts_that_are_huge_end_at_once() -> None:
    frame = b"\0\0\0\1\0\1t" + b"\x7f\xff\xff\xff" * 50
    with pytest.raises(ProtocolError, match="elements"):
        decode(FetchResponse, 4, b"\0\0\0\0" + frame)
    with pytest.raises(ProtocolError, match="elements"):
        decode(ProduceRequest, 3, b"\xff\xff\0\1\0\0\0\0" + frame)


def test_an_error_far_inside_a_frame_is_found_without_reading_all_of_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One loop serves everyone: naming the field must not take longer than a few thousand rows do."""
    topics = [MetadataRequest.MetadataRequestTopic(name="t") for _ in range(50_000)]
    data = encode_bytes(MetadataRequest(topics=topics), 9)
    rows = 0
    real = explain.Row

    def counted(*arguments: object) -> explain.Row:
        nonlocal rows
        rows += 1
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(explain, "Row", counted)
    with pytest.raises(ProtocolError) as raised:
        decode(MetadataRequest, 9, data[:-8])
    assert rows <= explain.ROWS_MAX + 1
    position = int(str(raised.value).split(" at byte ")[1].split(":")[0])
    assert str(raised.value) == f"MetadataRequest v9: topics at byte {position}: what is there can't be read"
    assert len(data) - 20 < position <= len(data)


# --- memory -----------------------------------------------------------------------------------------------------------

MEMORY_FACTOR_MAX = 64
ELEMENTS = 400


def arrays(struct: Struct, version: int, path: tuple[Field, ...] = ()) -> Iterator[tuple[Field, ...]]:
    """Every array of a message, by the fields that lead to it."""
    for field in struct.fields:
        if version in field.versions:
            if field.is_array:
                yield (*path, field)
            if field.struct is not None:
                yield from arrays(field.struct, version, (*path, field))


def cheapest(
    cls: type[Message], top: type[Message], version: int, path: tuple[Field, ...], tag: bytes | None
) -> Message:
    """The message in which the array at the end of a path has many elements of the fewest bytes."""
    made = cls()
    for field in made.struct.fields:
        if field.is_array and field.nullable != NEVER and version in field.versions and field.tag is None:
            setattr(made, field.name, [])  # an empty list costs more than None and as many bytes
    if not path:
        made.unknown_tags = tag
        return made
    first, *rest = path
    if first.struct is None:
        value = {"string": "", "bytes": b"", "uuid": bytes(16), "bool": False, "float64": 0.0}.get(first.type, 0)
        setattr(made, first.name, [value] * ELEMENTS)
    else:
        element = cheapest(getattr(top, first.struct.name), top, version, tuple(rest), tag)
        setattr(made, first.name, [element] * (1 if rest else ELEMENTS) if first.is_array else element)
    return made


def size_bytes(value: object, seen: set[int]) -> int:
    """What a decoded value and all that only it holds take."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    total = sys.getsizeof(value)
    if isinstance(value, list):
        return total + sum(size_bytes(item, seen) for item in value)
    if isinstance(value, Message):
        total += sum(size_bytes(getattr(value, field.name), seen) for field in value.struct.fields)
        return total + size_bytes(value.unknown_tags, seen)
    return total


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_memory_stays_below_64_times_the_frame(cls: type[Message]) -> None:
    for version in (cls.shape.versions.first, cls.shape.versions.last):
        for path in arrays(cls.shape.body, version):
            for tag in (None, b"\x77\x00") if cls.shape.is_flexible(version) else (None,):
                data = encode_bytes(cheapest(cls, cls, version, path, tag), version)
                used = size_bytes(decode_at(cls, version, data, 0)[0], set())
                assert used <= MEMORY_FACTOR_MAX * len(data) + 1024, (version, path[-1].name, used / len(data))


@pytest.mark.parametrize("version", [4, 12])
def test_work_follows_the_bytes_and_not_what_they_claim(version: int) -> None:
    """Counted in calls of the reader that explains errors: a million claimed elements cost nothing."""
    flexible = FetchRequest.shape.is_flexible(version)
    count = b"\xc1\x84\x3d" if flexible else (999_999).to_bytes(4)
    start = bytes(17) if version == 4 else bytes(25)
    for tail in (count, count * 40):
        with pytest.raises(ProtocolError, match="elements need"):
            decode(FetchRequest, version, start + tail)
