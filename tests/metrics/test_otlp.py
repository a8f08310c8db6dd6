"""What clients push is read as it was written, and hostile bytes are refused in bounded time."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.metrics.otlp import BUCKETS_MAX, LABELS_MAX, NAME_CHARACTERS_MAX, POINTS_MAX, Point, read_metrics
from headrace.metrics.table import Kind
from tests.metrics.pushes import field, gauge, histogram, message, metric, number_point, push, sum_of


def test_a_gauge_a_counter_and_a_histogram_are_read() -> None:
    pushed = read_metrics(
        push(
            metric("a.gauge", gauge(number_point(1.5, topic="t"))),
            metric("a.sum", sum_of(number_point(-7), number_point(8, a="b"), monotonic=True, delta=True)),
            metric("a.level", sum_of(number_point(3), monotonic=False)),
            metric("a.histogram", histogram([0.5, 2.0], [1, 2, 3], 9.5, node="1")),
            resource={"client_rack": "r1"},
        )
    )
    assert pushed.resource == (("client_rack", "r1"),)
    assert [(found.name, found.kind, found.is_delta) for found in pushed.metrics] == [
        ("a.gauge", Kind.GAUGE, False),
        ("a.sum", Kind.COUNTER, True),
        ("a.level", Kind.GAUGE, False),
        ("a.histogram", Kind.HISTOGRAM, False),
    ]
    assert pushed.metrics[0].points == [Point((("topic", "t"),), 1.5)]
    assert [point.value for point in pushed.metrics[1].points] == [-7, 8]
    assert pushed.metrics[3].points == [Point((("node", "1"),), 9.5, 6, (0.5, 2.0), (1, 2, 3))]


def test_attributes_of_every_simple_type_are_texts() -> None:
    values = [
        field(1, b"text"),
        field(2, 1),
        field(3, (1 << 64) - 5),
        field(4, struct.pack("<d", 0.5), wire_type=1),
        field(5, b""),
    ]
    point = b"".join(field(7, field(1, f"k{n}".encode()) + field(2, value)) for n, value in enumerate(values))
    (found,) = read_metrics(push(metric("m", gauge(point)))).metrics
    assert found.points[0].labels == (("k0", "text"), ("k1", "true"), ("k2", "-5"), ("k3", "0.5"), ("k4", ""))


def test_what_is_not_known_is_skipped() -> None:
    strange = field(99, b"x") + field(98, 7) + field(97, bytes(8), wire_type=1) + field(96, bytes(4), wire_type=5)
    pushed = read_metrics(strange + push(metric("m", gauge(number_point(1) + strange)) + strange) + strange)
    assert [found.points[0].value for found in pushed.metrics] == [1]


def test_kinds_that_have_no_place_are_counted() -> None:
    assert read_metrics(push(metric("m", field(10, b"")), metric("n", field(11, b"")))).unsupported == 2


def test_long_texts_are_cut() -> None:
    (found,) = read_metrics(push(metric("é" * 5000, gauge(number_point(1, **{"k" * 999: "v" * 9999}))))).metrics
    assert len(found.name) == NAME_CHARACTERS_MAX
    assert [(len(name), len(value)) for name, value in found.points[0].labels] == [(NAME_CHARACTERS_MAX,) * 2]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (push(metric("m", gauge(*[number_point(1)] * (POINTS_MAX + 1)))), "data points"),
        (push(metric("m", gauge(number_point(1, **{f"k{n}": "" for n in range(LABELS_MAX + 1)})))), "attributes"),
        (push(metric("m", histogram(list(range(BUCKETS_MAX + 1)), [1] * (BUCKETS_MAX + 2), 1))), "buckets"),
        (push(metric("m", histogram([1.0], [1, 2, 3], 1))), "do not fit"),
        (push(metric("m", histogram([2.0, 1.0], [1, 2, 3], 1))), "ascend"),
        (push(metric("m", histogram([float("nan")], [1, 2], 1))), "ascend"),
        (b"\x0a", "ends too soon"),
        (b"\x0a\xff\xff\xff\xff\x0f", "ends too soon"),
        (b"\xff" * 11, "ten bytes"),
        (b"\x0b", "wire type 3"),
        (b"\x08\x01", "a message or a text belongs"),
        (push(metric("m", gauge(field(4, b"1234", wire_type=5)))), "eight bytes"),
        (push(metric("m", field(7, field(2, b"x")))), "no number"),
        (push(metric("m", field(9, field(1, field(6, b"123"))))), "eight bytes each"),
        (push(field(1, b"\xff\xfe") + gauge(number_point(1))), "UTF-8"),
    ],
)
def test_what_is_no_push_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        read_metrics(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        read_metrics(data)


WHOLE = push(
    metric("a.gauge", gauge(number_point(1.5, topic="t"))),
    metric("a.sum", sum_of(number_point(-7), monotonic=True, delta=True)),
    metric("a.histogram", histogram([0.5, 2.0], [1, 2, 3], 9.5, node="1")),
)


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_any_damage_is_read_or_refused(position: int, byte: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[position] = byte
    for data in (bytes(damaged), WHOLE[:position], message(damaged)):
        with contextlib.suppress(ProtocolError):
            read_metrics(data)
