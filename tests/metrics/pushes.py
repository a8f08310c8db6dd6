"""Pushes of clients, written by hand in OpenTelemetry's protocol."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes | bytearray, wire_type: int | None = None) -> bytes:
    """A number as a varint, bytes with their length; or, with a wire type, as they are."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if wire_type is not None:
        return varint(number << 3 | wire_type) + bytes(value)
    return varint(number << 3 | 2) + varint(len(value)) + bytes(value)


def message(data: bytes | bytearray) -> bytes:
    """As the only part of a push."""
    return field(1, field(2, field(2, data)))


def _attributes(number: int, labels: Mapping[str, str]) -> bytes:
    return b"".join(
        field(number, field(1, name.encode()) + field(2, field(1, value.encode()))) for name, value in labels.items()
    )


def number_point(value: float, **labels: str) -> bytes:
    whole = isinstance(value, int)
    packed = field(6, struct.pack("<q", value), 1) if whole else field(4, struct.pack("<d", value), 1)
    return field(3, struct.pack("<Q", 1), 1) + packed + _attributes(7, labels)


def gauge(*points: bytes) -> bytes:
    return field(5, b"".join(field(1, point) for point in points))


def sum_of(*points: bytes, monotonic: bool, delta: bool = False) -> bytes:
    content = b"".join(field(1, point) for point in points)
    return field(7, content + field(2, 1 if delta else 2) + field(3, int(monotonic)))


def histogram(
    bounds: Sequence[float], counts: Sequence[int], total: float, *, delta: bool = False, **labels: str
) -> bytes:
    point = field(4, struct.pack("<Q", sum(counts)), 1) + field(5, struct.pack("<d", total), 1)
    point += field(6, struct.pack(f"<{len(counts)}Q", *counts)) + field(7, struct.pack(f"<{len(bounds)}d", *bounds))
    return field(9, field(1, point + _attributes(9, labels)) + field(2, 1 if delta else 2))


def metric(name: str, content: bytes, text: str = "") -> bytes:
    return field(1, name.encode()) + (field(2, text.encode()) if text else b"") + content


def push(*metrics: bytes, resource: Mapping[str, str] | None = None) -> bytes:
    content = field(1, _attributes(1, resource or {})) + field(2, b"".join(field(2, one) for one in metrics))
    return field(1, content)
