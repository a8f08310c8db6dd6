"""The metrics of OpenTelemetry's protocol, as clients push them (KIP-714): a protobuf message, read by hand.

Only the fields that we tell are read, and the others skipped. Whatever the bytes are, the work is bounded by their
number: each field is looked at once, nesting is as deep as the schema is, and what counts is limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct, iter_unpack
from typing import Final, TypeAlias

from headrace.errors import ProtocolError
from headrace.metrics.table import Kind
from headrace.plain import field, plain

NAME_CHARACTERS_MAX: Final = 255
LABELS_MAX: Final = 32
BUCKETS_MAX: Final = 200
POINTS_MAX: Final = 5000

DELTA: Final = 1
_DOUBLE: Final = Struct("<d")
_SFIXED64: Final = Struct("<q")
_FIXED64: Final = Struct("<Q")

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5

Value: TypeAlias = int | memoryview
"""Of a field: a varint, or the bytes of it."""
Labels: TypeAlias = tuple[tuple[str, str], ...]


@plain
class Point:
    """One value, with its labels by name. A histogram's `value` is its sum."""

    labels: Labels
    value: float
    count: int = 0
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    """Of each bucket, the last one without a bound."""


@plain
class PushedMetric:
    name: str
    text: str
    kind: Kind
    is_delta: bool
    """The values are what was added since the last push."""
    points: list[Point] = field(default_factory=list)


@plain
class Pushed:
    """What one push holds."""

    resource: Labels = ()
    metrics: list[PushedMetric] = field(default_factory=list)
    unsupported: int = 0
    """Metrics of a kind that is not read."""
    points: int = 0


def read_metrics(data: bytes | bytearray | memoryview) -> Pushed:
    """Raises ProtocolError when it is no such message."""
    pushed = Pushed()
    for number, value in _fields(memoryview(data)):
        if number == 1:
            for inner, part in _fields(_bytes(value)):
                if inner == 1:
                    pushed.resource = _attributes(_bytes(part), 1)
                elif inner == 2:
                    for innermost, metric in _fields(_bytes(part)):
                        if innermost == 2:
                            _read_metric(_bytes(metric), pushed)
    return pushed


def _read_metric(data: memoryview, pushed: Pushed) -> None:
    name = text = ""
    content: tuple[int, memoryview] | None = None
    for number, value in _fields(data):
        if number == 1:
            name = _text(_bytes(value))
        elif number == 2:
            text = _text(_bytes(value))
        elif number in (5, 7, 9, 10, 11):
            content = number, _bytes(value)
    if content is None or not name:
        return
    what, body = content
    if what > 9:  # exponential histograms and summaries
        pushed.unsupported += 1
        return
    is_delta = is_monotonic = False
    points = []
    for number, value in _fields(body):
        if number == 1:
            pushed.points += 1
            if pushed.points > POINTS_MAX:
                raise ProtocolError(f"a push of more than {POINTS_MAX} data points")
            points.append(_histogram_point(_bytes(value)) if what == 9 else _number_point(_bytes(value)))
        elif number == 2 and what != 5:
            is_delta = _varint(value) == DELTA
        elif number == 3 and what == 7:
            is_monotonic = bool(_varint(value))
    kind = Kind.HISTOGRAM if what == 9 else Kind.COUNTER if is_monotonic else Kind.GAUGE
    pushed.metrics.append(PushedMetric(name, text, kind, is_delta, points))


def _number_point(data: memoryview) -> Point:
    labels: list[tuple[str, str]] = []
    result: float = 0
    for number, value in _fields(data):
        if number == 4:
            (result,) = _DOUBLE.unpack(_eight(value))
        elif number == 6:
            (result,) = _SFIXED64.unpack(_eight(value))
        elif number == 7:
            _add_label(labels, _bytes(value))
    return Point(_sorted(labels), result)


def _histogram_point(data: memoryview) -> Point:
    labels: list[tuple[str, str]] = []
    count, total = 0, 0.0
    bounds: list[float] = []
    counts: list[int] = []
    for number, value in _fields(data):
        if number == 4:
            (count,) = _FIXED64.unpack(_eight(value))
        elif number == 5:
            (total,) = _DOUBLE.unpack(_eight(value))
        elif number == 6:
            counts += [found[0] for found in iter_unpack("<Q", _packed(value))]
        elif number == 7:
            bounds += [found[0] for found in iter_unpack("<d", _packed(value))]
        elif number == 9:
            _add_label(labels, _bytes(value))
        if len(counts) > BUCKETS_MAX or len(bounds) > BUCKETS_MAX:
            raise ProtocolError(f"a histogram of more than {BUCKETS_MAX} buckets")
    if counts and len(counts) != len(bounds) + 1:
        raise ProtocolError("a histogram whose buckets and bounds do not fit")
    if not counts:
        bounds, counts = [], [count]
    if any(low >= high for low, high in pairwise(bounds)) or any(b != b for b in bounds):
        raise ProtocolError("a histogram whose bounds do not ascend")
    return Point(_sorted(labels), total, sum(counts), tuple(bounds), tuple(counts))


# ---------------------------------------------------------------------------------------------------------- attributes


def _attributes(data: memoryview, wanted: int) -> Labels:
    labels: list[tuple[str, str]] = []
    for number, value in _fields(data):
        if number == wanted:
            _add_label(labels, _bytes(value))
    return _sorted(labels)


def _add_label(labels: list[tuple[str, str]], data: memoryview) -> None:
    key, text = "", ""
    for number, value in _fields(data):
        if number == 1:
            key = _text(_bytes(value))
        elif number == 2:
            text = _any_value(_bytes(value))
    if key:
        labels.append((key, text))
        if len(labels) > LABELS_MAX:
            raise ProtocolError(f"more than {LABELS_MAX} attributes")


def _sorted(labels: list[tuple[str, str]]) -> Labels:
    return tuple(sorted(dict(labels).items()))


def _any_value(data: memoryview) -> str:
    for number, value in _fields(data):
        if number == 1:
            return _text(_bytes(value))
        if number == 2:
            return "true" if _varint(value) else "false"
        if number == 3:
            found = _varint(value)
            return str(found - (1 << 64) if found >> 63 else found)
        if number == 4:
            return repr(_DOUBLE.unpack(_eight(value))[0])
    return ""  # arrays and the like have no place in a label


# ------------------------------------------------------------------------------------------------------------ the wire


def _fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """The fields of a message, one after another."""
    position, end = 0, len(data)
    while position < end:
        key, position = _read_varint(data, position)
        wire_type = key & 7
        if wire_type == _VARINT:
            value, position = _read_varint(data, position)
            yield key >> 3, value
            continue
        if wire_type == _BYTES:
            size, position = _read_varint(data, position)
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if wire_type == _EIGHT_BYTES else 4
        else:
            raise ProtocolError(f"a protobuf field of wire type {wire_type}")
        if size > end - position:
            raise ProtocolError("a protobuf message that ends too soon")
        yield key >> 3, data[position : position + size]
        position += size


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position
            shift += 7
            if shift > 63:
                raise ProtocolError("a protobuf number of more than ten bytes")
    except IndexError:
        raise ProtocolError("a protobuf message that ends too soon") from None


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise ProtocolError("a protobuf number where a message or a text belongs")
    return value


def _eight(value: Value) -> memoryview:
    if isinstance(value, int) or len(value) != 8:
        raise ProtocolError("a protobuf field that is not of eight bytes")
    return value


def _packed(value: Value) -> memoryview:
    found = _bytes(value)
    if len(found) % 8:
        raise ProtocolError("a protobuf list that is not of eight bytes each")
    return found


def _varint(value: Value) -> int:
    if not isinstance(value, int):
        raise ProtocolError("a protobuf field that is no number")
    return value


def _text(data: memoryview) -> str:
    try:
        text = bytes(data[: 4 * NAME_CHARACTERS_MAX + 4]).decode("utf-8", "strict" if len(data) <= 1024 else "ignore")
    except UnicodeDecodeError:
        raise ProtocolError("a protobuf text that is not UTF-8") from None
    return text[:NAME_CHARACTERS_MAX]
