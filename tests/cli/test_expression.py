"""Filters of `headrace consume`: what holds for a record, and what is no expression."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import Misused
from headrace.cli.expression import DEPTH_MAX, Expression, Seen, shown
from headrace.client import ConsumedRecord
from headrace.protocol.batch import TimestampType

NOW_MS = 1_767_268_800_000  # 2026-01-01 12:00 UTC


def record(
    value: object = None, key: bytes | None = b"k", headers: tuple[tuple[str, bytes | None], ...] = ()
) -> ConsumedRecord:
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return ConsumedRecord("orders", 1, 42, NOW_MS - 3_600_000, key, data, headers, 0, TimestampType.CREATE_TIME)


ORDER = record(
    {"total": 120.5, "items": [{"sku": "x1"}, {"sku": "y2"}], "note": None, "2nd": 1, "is_paid": False},
    headers=(("region", b"us"), ("region", b"eu"), ("trace-id", b"7"), ("empty", None)),
)


@pytest.mark.parametrize(
    "source",
    [
        "topic == 'orders' and partition == 1 and offset == 42",
        "value.total > 100 and headers.region == 'eu'",
        'value.items[1].sku == "y2"',
        "value['2nd'] == 1",
        "headers['trace-id'] == '7'",
        "not value.note and not value.nothing.at.all and value.note == null",
        "not value.is_paid and value.is_paid == false",
        "'region' in headers and 'nothing' not in headers",
        "'total' in value",
        "key in ['a', 'k'] or false",
        "offset % 2 == 0 and offset / 2 == 21 and -offset + 1 < 0 and 2 + 3 * 2 == 8",
        "value =~ '\"sku\": ?\"x\\d\"' and value !~ 'zzz'",
        "timestamp < '30m' and timestamp > '2h' and '2026-01-01' < timestamp",
        "len(value.items) == 2 and len(key) == 1",
        "upper(key) == 'K' and lower('A') == 'a' and number('1.5') == 1.5 and text(offset) == '42'",
        "size > 10",
        "!(offset == 1) && (offset == 2 || true)",
        "value.total >= 120.5 and value.total != '120.5'",
        "headers.empty == null",
        "offset / 0 == null",
    ],
)
def test_what_holds(source: str) -> None:
    assert Expression(source, now_ms=NOW_MS).holds(ORDER)


@pytest.mark.parametrize(
    "source",
    [
        "value.total > 'a'",
        "value.note > 1",
        "value.is_paid == 0",
        "key == null",
        "value.items == 'x'",
        "true == 1",
        "value.nothing =~ 'a'",
        "headers.empty !~ 'a'",
        "value.items[7]",
        "key.field",
    ],
)
def test_what_does_not_hold(source: str) -> None:
    assert not Expression(source).holds(ORDER)


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff\xfe", b"[" * 100_000, b"12"])
def test_a_value_that_is_no_json_has_no_fields(value: bytes | None) -> None:
    assert not Expression("value.a[0].b").holds(record(value))
    assert Expression("value.a == null").holds(record(value))


def test_bytes_that_are_no_text_can_be_looked_at() -> None:
    assert Expression(r"value == '\\xffa'").holds(record(b"\xffa"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "is empty"),
        ("value.total >", "it ends after 13 characters, where a field, a text in quotes or a number should be"),
        ("key = 'a'", "'=' stands at character 5, where == should be"),
        ("key == 'a' key", "'key' stands at character 12, where an operator"),
        ("vale == 1", "asks for 'vale', which is no part of a record; the nearest is value"),
        ("value.", "where the name of a field should be"),
        ("value[x]", "where a number, or a name in quotes should be"),
        ("(key", "where ')' should be"),
        ("key not 'a'", "where 'in' should be"),
        ("value =~ '('", "is no regular expression: missing )"),
        ("value =~ key", "where a regular expression in quotes should be"),
        ("timestamp > 'soon'", "'soon' is no time"),
        ("key == 'a", "stands at character 8"),
        ("__import__('os')", "asks for '__import__'"),
        ("key.__class__()", "'(' stands at character 14"),
        ("(" * (DEPTH_MAX + 1) + "1", "levels of brackets"),
        ("-" * 10_000 + "1", "levels of brackets"),
        ("[" * 10_000, "levels of brackets"),
    ],
)
def test_what_is_no_expression_is_told_with_its_place(source: str, said: str) -> None:
    with pytest.raises(Misused) as caught:
        Expression(source)
    assert said in str(caught.value)


def test_thousands_of_negations_are_no_recursion() -> None:
    assert Expression("not " * 10_001 + "false").holds(ORDER)


@given(st.text(alphabet="value.key[]()'\"0123=<>!~ andornt\\+-*/%,é", max_size=40))
def test_any_text_is_an_expression_or_wrong_use(source: str) -> None:
    try:
        expression = Expression(source)
    except Misused:
        return
    shown(expression.of(Seen(ORDER)))
