"""The record kernel, in both forms: what goes in comes out, as objects and as columns, and hostile bytes only raise."""

from __future__ import annotations

import ast
import sys
from array import array
from itertools import compress, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol import kernel, kernel_writer
from headrace.protocol.batch_builder import build_encoded
from headrace.protocol.kernel_types import Column, Encoded, Fields, Record, Row
from tests.protocol.kernel_forms import FORMS, Form, plain_form
from tests.protocol.record_strategies import INT32_MAX, INT64_MAX, batches_of_fields, content, times

pytestmark = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


def as_records(fields: list[Fields], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + i, timestamp, key, value, list(headers) or ())  # type: ignore[arg-type]
        for i, (key, value, headers, timestamp) in enumerate(fields)
    ]


@given(batches_of_fields, st.integers(0, 2**62))
def test_what_is_encoded_is_decoded(form: Form, fields: list[Fields], base_offset: int) -> None:
    encoded = form.encode(fields)
    records = form.Records(encoded.data, encoded.record_count, base_offset, encoded.base_timestamp)
    assert records.decode() == as_records(fields, base_offset)
    assert records.keys() == [key for key, _, _, _ in fields]
    assert list(records.timestamps()) == [timestamp for *_, timestamp in fields]
    assert list(records.offsets()) == list(range(base_offset, base_offset + len(fields)))
    assert len(records) == len(fields)
    assert records.section() == encoded.data
    assert records.is_dense()
    assert encoded.max_timestamp == max(-1, *(timestamp for *_, timestamp in fields))
    assert encoded.last_offset_delta == len(fields) - 1


@given(batches_of_fields)
def test_columns_are_the_records_and_encode_to_the_same_bytes(form: Form, fields: list[Fields]) -> None:
    encoded = form.encode(fields)
    records = form.Records(encoded.data, encoded.record_count, 0, encoded.base_timestamp)
    columns, headers = records.columns(), records.header_columns()
    assert items(columns.keys) == [key for key, _, _, _ in fields]
    assert items(columns.values) == [value for _, value, _, _ in fields]
    assert list(columns.header_counts) == list(headers.counts) == [len(of_one) for _, _, of_one, _ in fields]
    flat = [header for _, _, of_one, _ in fields for header in of_one]
    assert items(headers.names) == [name.encode() for name, _ in flat]
    assert items(headers.values) == [value for _, value in flat]
    assert form.encode_columns(columns.keys, columns.values, columns.timestamps, headers) == encoded


@given(batches_of_fields, st.integers(0, 2**62))
def test_an_outline_is_four_of_the_columns(form: Form, fields: list[Fields], base_offset: int) -> None:
    encoded = form.encode(fields)
    records = form.Records(encoded.data, encoded.record_count, base_offset, encoded.base_timestamp)
    columns, outline = records.columns(), records.outline()
    assert outline[0::4] == columns.offsets
    assert [*outline[1::4]] == [*columns.key_positions]
    assert [*outline[2::4]] == [*columns.key_lengths]
    assert [*outline[3::4]] == [*columns.value_lengths]


def items(column: Column) -> list[bytes | None]:
    return [
        None if length < 0 else bytes(column.data[position : position + length])
        for position, length in zip(column.positions, column.lengths, strict=True)
    ]


@given(batches_of_fields, st.data())
def test_columns_are_encoded_in_batches_of_a_size(form: Form, fields: list[Fields], data: st.DataObject) -> None:
    encoded = form.encode(fields)
    records = form.Records(encoded.data, encoded.record_count, 0, encoded.base_timestamp)
    columns, headers = records.columns(), records.header_columns()
    size_bytes_max = data.draw(st.integers(1, len(encoded.data)))
    start = 0
    while start < len(fields):
        part: Encoded = form.encode_columns(
            columns.keys, columns.values, columns.timestamps, headers, start=start, size_bytes_max=size_bytes_max
        )
        assert part.record_count == 1 or len(part.data) <= size_bytes_max
        assert part == form.encode(fields[start : start + part.record_count])
        start += part.record_count
    assert form.encode_columns(columns.keys, columns.values, columns.timestamps, headers, start=start).record_count == 0


@given(st.lists(st.tuples(st.binary(max_size=300), content, st.just(()), times), min_size=1, max_size=12))
def test_rows_without_headers_are_encoded_to_the_same_batch_but_for_its_checksum(form: Form, rows: list[Row]) -> None:
    expected = build_encoded(form.encode(rows))
    expected[17:21] = bytes(4)
    assert form.encode_rows(rows) == expected


def test_no_rows_are_refused(form: Form) -> None:
    with pytest.raises(ValueError, match="at least one record"):
        form.encode_rows([])


def test_columns_may_be_absent(form: Form) -> None:
    times = array("q", [5, 6])
    assert form.encode_columns(None, None, times) == form.encode([(None, None, (), 5), (None, None, (), 6)])


@pytest.mark.parametrize(
    ("positions", "lengths"), [([0, 3], [2, 2]), ([-1, 0], [1, 1]), ([0, 0], [-2, 0]), ([0], [1]), ([0, 0], [5, 0])]
)
def test_columns_that_point_outside_of_their_data_are_refused(
    form: Form, positions: list[int], lengths: list[int]
) -> None:
    column = Column(b"abcd", array("i", positions), array("i", lengths))
    with pytest.raises(ValueError, match="column"):
        form.encode_columns(column, None, array("q", [1, 2]))


@given(batches_of_fields, st.data(), st.integers(-1, 2**42))
def test_retained_records_keep_offset_and_timestamp(
    form: Form, fields: list[Fields], data: st.DataObject, base_timestamp: int
) -> None:
    mask = bytes(data.draw(st.lists(st.integers(0, 1), min_size=len(fields), max_size=len(fields))))
    encoded = form.encode(fields)
    records = form.Records(encoded.data, encoded.record_count, 7, encoded.base_timestamp)
    kept = list(compress(records.decode(), mask))

    retained = records.retain(mask)
    again = form.Records(retained.data, retained.record_count, 7, encoded.base_timestamp)
    assert again.decode() == kept
    assert retained.max_timestamp == max([-1, *(record.timestamp for record in kept)])

    rebased = records.retain(mask, base_timestamp)
    again = form.Records(rebased.data, rebased.record_count, 7, base_timestamp)
    assert again.decode() == kept
    assert rebased.max_timestamp == retained.max_timestamp


def test_a_mask_of_another_length_is_refused(form: Form) -> None:
    encoded = form.encode([(b"k", b"v", (), 1)])
    for base_timestamp in (None, 5):
        with pytest.raises(ValueError, match="mask"):
            form.Records(encoded.data, 1).retain(b"\1\1", base_timestamp)


@given(batches_of_fields, st.integers(-1, 2**42))
def test_lookups_by_timestamp(form: Form, fields: list[Fields], timestamp: int) -> None:
    encoded = form.encode(fields)
    records = form.Records(encoded.data, encoded.record_count, 3, encoded.base_timestamp)
    decoded = [(record.offset, record.timestamp) for record in records.decode()]
    assert records.first_at_or_after(timestamp) == next((found for found in decoded if found[1] >= timestamp), None)
    assert records.latest() == max(decoded, key=lambda found: (found[1], -found[0]))
    stamped = [at for _, at in decoded if at != -1]
    assert records.timestamp_bounds() == ((min(stamped), max(stamped)) if stamped else (-1, -1))


def test_a_batch_with_log_append_time_has_one_timestamp(form: Form) -> None:
    encoded = form.encode([(b"k", b"v", (), 1), (b"k", b"v", (), 2)])
    records = form.Records(encoded.data, 2, 0, 1000, True)
    assert list(records.timestamps()) == [1000, 1000]
    assert records.latest() == (0, 1000)
    retained = records.retain(b"\0\1", 900)
    assert form.Records(retained.data, 1, 0, 900).decode()[0].timestamp == 1000


def test_offsets_with_gaps(form: Form) -> None:
    encoded = form.encode([(b"a", None, (), 1), (b"b", None, (), 1)], offset_deltas=[3, INT32_MAX])
    records = form.Records(encoded.data, 2, 10, 1)
    assert list(records.offsets()) == [13, 10 + INT32_MAX]
    assert not records.is_dense()
    for deltas in ([1, 1], [-1, 0], [0, INT32_MAX + 1]):
        with pytest.raises(ValueError, match="offset delta"):
            form.encode([(b"a", None, (), 1), (b"b", None, (), 1)], offset_deltas=deltas)


def test_the_first_record_without_a_key(form: Form) -> None:
    encoded = form.encode([(b"", b"v", (), 1), (None, b"v", (), 1), (None, b"v", (), 1)])
    assert form.Records(encoded.data, 3).first_without_key() == 1
    encoded = form.encode([(b"", b"v", (), 1)])
    assert form.Records(encoded.data, 1).first_without_key() == -1


def test_nothing_is_nothing(form: Form) -> None:
    records = form.Records(b"", 0)
    assert records.decode() == []
    assert records.latest() is None
    assert records.first_at_or_after(0) is None
    assert records.columns().count == 0
    assert records.retain(b"").record_count == records.retain(b"", 5).record_count == 0
    assert form.encode([]) == Encoded(bytearray(), 0, 0, -1, -1)


@pytest.mark.parametrize(
    ("base", "timestamp"), [(0, INT64_MAX), (-1, INT64_MAX - 1), (5, -INT64_MAX + 4), (-(2**63), -1)]
)
def test_timestamps_as_far_apart_as_can_be(form: Form, base: int, timestamp: int) -> None:
    encoded = form.encode([(None, None, (), timestamp)], base)
    assert list(form.Records(encoded.data, 1, 0, base).timestamps()) == [timestamp]
    columns = form.encode_columns(None, None, array("q", [base, timestamp]))
    assert list(form.Records(columns.data, 2, 0, base).timestamps()) == [base, timestamp]


@pytest.mark.parametrize(("base", "timestamp"), [(-1, INT64_MAX), (1, -(2**63)), (-(2**63), 0)])
def test_timestamps_further_apart_than_that_are_refused(form: Form, base: int, timestamp: int) -> None:
    with pytest.raises(ProtocolError, match="too far"):
        form.encode([(None, None, (), timestamp)], base)
    with pytest.raises(ProtocolError, match="too far"):
        form.encode_columns(None, None, array("q", [base, timestamp]))
    encoded = form.encode([(None, None, (), timestamp)])
    with pytest.raises(ProtocolError, match="too far"):
        form.Records(encoded.data, 1, 0, timestamp).retain(b"\1", base)


def test_header_names_that_are_not_utf8_do_not_stop_a_reader(form: Form) -> None:
    data = bytearray(form.encode([(None, None, [("ab", b"v")], 1)]).data)
    data[data.index(b"ab")] = 0xFF
    assert form.Records(data, 1).decode()[0].headers == [("\ufffdb", b"v")]


def test_only_bytes_are_encoded(form: Form) -> None:
    for wrong in ("text", 5, [1]):
        with pytest.raises(TypeError, match="bytes or None"):
            form.encode([(wrong, None, (), 1)])
    view = form.encode([(memoryview(b"key"), bytearray(b"value"), (), 1)])
    assert view == form.encode([(b"key", b"value", (), 1)])


def record(body: bytes) -> bytes:
    return bytes([len(body) * 2]) + body


GOOD = record(b"\0\0\0\1\1\0")
HOSTILE = {
    "nothing there": (b"", 1),
    "a negative count": (GOOD, -1),
    "a count of 2^31-1": (GOOD, INT32_MAX),
    "a count that is too low": (GOOD * 2, 1),
    "a count that is too high": (GOOD * 2, 3),
    "bytes without records": (GOOD, 0),
    "bytes after the last record": (GOOD + b"\0", 1),
    "a varint that never ends": (b"\xff" * 100, 1),
    "a length past the end": (b"\x7e" + b"\0" * 20, 1),
    "a length of 2^31-1": (b"\xfe\xff\xff\xff\x0f" + GOOD, 1),
    "a length of six bytes": (b"\x80\x80\x80\x80\x80\x01" + GOOD, 1),
    "a length of 33 bits": (b"\xfe\xff\xff\xff\x1f" + GOOD, 1),
    "a negative length": (b"\x01" + GOOD, 1),
    "a length of nothing": (b"\0" * 7, 1),
    "a length too short for its fields": (b"\x0a\0\0\0\1\1\0", 1),
    "a length too long for its fields": (b"\x0e\0\0\0\1\1\0\0", 1),
    "a negative offset": (record(b"\0\0\1\1\1\0"), 1),
    "an offset of 33 bits": (record(b"\0\0\xfe\xff\xff\xff\x1f\1\1\0"), 1),
    "a timestamp of eleven bytes": (record(b"\0" + b"\x80" * 10 + b"\0\0\1\1\0"), 1),
    "a timestamp of 65 bits": (record(b"\0" + b"\xff" * 9 + b"\x02\0\1\1\0"), 1),
    "a key length of -2": (record(b"\0\0\0\3\1\0"), 1),
    "a key past its record": (record(b"\0\0\0\x0e\1\0") + GOOD, 2),
    "a value length of -2": (record(b"\0\0\0\1\3\0"), 1),
    "a value past its record": (record(b"\0\0\0\1\x0e\0") + GOOD, 2),
    "a value of 2^31-1": (record(b"\0\0\0\1\xfe\xff\xff\xff\x0f\0") + GOOD, 2),
    "a negative number of headers": (record(b"\0\0\0\1\1\1"), 1),
    "headers that are not there": (record(b"\0\0\0\1\1\2"), 1),
    "2^31-1 headers": (record(b"\0\0\0\1\1\xfe\xff\xff\xff\x0f"), 1),
    "a header without a name": (record(b"\0\0\0\1\1\2\1\1"), 1),
    "a header name past its record": (record(b"\0\0\0\1\1\2\x7e\1"), 1),
    "a header value past its record": (record(b"\0\0\0\1\1\2\0\x7e"), 1),
    "a header value length of -2": (record(b"\0\0\0\1\1\2\0\3"), 1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_give_one_kind_of_error(form: Form, what: str) -> None:
    data, count = HOSTILE[what]
    for method in ("check", "decode", "keys", "offsets", "timestamps", "columns", "header_columns", "latest"):
        with pytest.raises(ProtocolError):
            getattr(form.Records(data, count), method)()
    with pytest.raises(ProtocolError):
        form.Records(data, count).retain(bytes(max(0, min(count, 3))), None)


def test_a_varint_may_be_longer_than_it_must(form: Form) -> None:
    form.Records(record(b"\0\x80\0\x80\x80\0\1\1\0"), 1).check()


def test_offsets_and_timestamps_beyond_64_bits_are_refused(form: Form) -> None:
    encoded = form.encode([(None, None, (), 10)], 5, [9])
    for base_offset, base_timestamp in ((INT64_MAX - 8, 0), (0, INT64_MAX - 4), (-1, 0)):
        with pytest.raises(ProtocolError):
            form.Records(encoded.data, 1, base_offset, base_timestamp).check()
    form.Records(encoded.data, 1, INT64_MAX - 9, INT64_MAX - 5).check()
    before = form.encode([(None, None, (), -10)], -5)
    with pytest.raises(ProtocolError):
        form.Records(before.data, 1, 0, -(2**63) + 4).check()
    form.Records(before.data, 1, 0, -(2**63) + 5).check()


@given(batches_of_fields)
def test_columns_are_gathered_into_arrows_layout(form: Form, fields: list[Fields]) -> None:
    encoded = form.encode(fields)
    values = form.Records(encoded.data, encoded.record_count, 0, encoded.base_timestamp).columns().values
    expected = [value for _, value, _, _ in fields]
    size = sum(len(value or b"") for value in expected)
    # Two batches into one column, the second after the first.
    out, ends = bytearray(2 * size), array("i", [0]) * (2 * len(fields) + 1)
    at = form.gather(values, out, 0, ends, 1)
    assert form.gather(values, out, at, ends, 1 + len(fields)) == 2 * size
    found = [bytes(out[a:b]) for a, b in pairwise(ends)]
    assert found == [value or b"" for value in expected] * 2
    bitmap = bytearray((len(fields) + 3 + 7) // 8)
    assert form.validity(values.lengths, bitmap, 3) == expected.count(None)
    bits = [bool(bitmap[i >> 3] & 1 << (i & 7)) for i in range(3, 3 + len(fields))]
    assert bits == [value is not None for value in expected]
    if size:
        with pytest.raises(ValueError, match="fit"):
            form.gather(values, out[: size - 1], 0, ends, 1)
    with pytest.raises(ValueError, match="fit"):
        form.gather(values, out, 0, ends[: len(fields)], 1)
    with pytest.raises(ValueError, match="small"):
        form.validity(values.lengths, bitmap, 8 * len(bitmap) + 1 - len(fields))


def test_the_file_runs_where_cython_is_not_installed(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cython", None)
    alone = plain_form("without Cython")
    fields: list[Fields] = [(b"k", b"v" * 200, [("h", None)], 5), (None, None, (), 3)]
    encoded = alone.encode(fields)
    assert encoded == form.encode(fields)
    records = alone.Records(encoded.data, 2, 0, 5)
    assert records.decode() == as_records(fields)
    assert records.retain(b"\0\1", 77) == form.Records(encoded.data, 2, 0, 5).retain(b"\0\1", 77)


@pytest.mark.skipif(not kernel.COMPILED, reason="this machine runs the kernel as it stands")
def test_what_is_compiled_is_not_older_than_its_source(form: Form) -> None:
    """A stale compiled module hides its source, and everything here would test the wrong one: run `make setup`."""
    for module in (kernel, kernel_writer):
        compiled = Path(str(module.__file__))
        assert (
            compiled.stat().st_mtime >= compiled.with_name(module.__name__.rpartition(".")[2] + ".py").stat().st_mtime
        )


def test_the_stub_says_what_the_file_says(form: Form) -> None:
    """mypy reads kernel.pyi, because C types mean nothing to it; names and parameters must be the file's own."""
    folder = Path(kernel_writer.__file__).parent
    for name in ("kernel", "kernel_writer"):
        assert interface(folder / f"{name}.pyi") == interface(folder / f"{name}.py")


def interface(path: Path) -> dict[str, list[str]]:
    tree = ast.parse(path.read_text())
    (exported,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in exported:
            found[node.name] = [ast.unparse(node.args), ast.unparse(node.returns or node)]
        elif isinstance(node, ast.ClassDef) and node.name in exported:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.decorator_list:
                    found[f"{node.name}.{method.name}"] = [
                        ast.unparse(method.args),
                        ast.unparse(method.returns or method),
                    ]
    return found
