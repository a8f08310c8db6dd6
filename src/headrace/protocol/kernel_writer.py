# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The one writer of records: from objects, from columns, and from records that compaction keeps.

Compiled like `kernel`, and the same file runs as it stands. It also copies columns into the layout that Arrow has.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headrace.errors import ProtocolError
from headrace.protocol.kernel_types import Column, Columns, Encoded, HeaderColumns, Retained

try:
    import cython
except ImportError:
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.protocol.kernel_types import Buffer, Fields, Row

__all__ = ["COMPILED", "encode", "encode_columns", "encode_rows", "gather", "rebase", "validity"]

COMPILED: bool = cython.compiled

INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
NO_TIMESTAMP = cython.declare(cython.longlong, -1)
HEADER_SIZE_BYTES = cython.declare(cython.longlong, 61)
LOG_OVERHEAD_BYTES = cython.declare(cython.longlong, 12)
MAGIC = cython.declare(cython.longlong, 2)
NOBODY = cython.declare(cython.longlong, -1)  # what stands where there is no producer, or no epoch yet
TIMESTAMP_GROWTH_BYTES_MAX = cython.declare(cython.longlong, 13)  # a varlong of 10 for 1, and 4 more for the length


def encode(
    records: Iterable[Fields], base_timestamp: int | None = None, offset_deltas: Sequence[int] | None = None
) -> Encoded:
    """The records section of (key, value, headers, timestamp)s.

    The base timestamp is the first record's unless given, as clients do it; offset deltas go up by one unless given.
    """
    prepared: list[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int, int, int]] = []
    total: cython.longlong = 0
    size: cython.longlong
    delta: cython.longlong
    offset_delta: cython.longlong = -1
    greatest = int(NO_TIMESTAMP)
    for key, value, headers, timestamp in records:
        if base_timestamp is None:
            base_timestamp = timestamp
        delta = _difference(timestamp, base_timestamp)
        if timestamp > greatest:
            greatest = timestamp
        if offset_deltas is None:
            offset_delta += 1
        else:
            given = offset_deltas[len(prepared)]
            if not offset_delta < given <= 0x7FFFFFFF:
                raise ValueError(f"offset delta {given} does not follow {offset_delta}")
            offset_delta = given
        key = _as_bytes(key)
        value = _as_bytes(value)
        encoded_headers = []
        size = (
            1
            + _varint_size(delta)
            + _varint_size(offset_delta)
            + _sized(key)
            + _sized(value)
            + _varint_size(len(headers))
        )
        for name, content in headers:
            encoded_name = name.encode()
            content = _as_bytes(content)
            size += _sized(encoded_name) + _sized(content)
            encoded_headers.append((encoded_name, content))
        prepared.append((key, value, encoded_headers, delta, offset_delta, size))
        total += _varint_size(size) + size
        if total > INT32_MAX:
            raise ValueError("the records do not fit in one batch, which holds at most 2 GB")
    out = bytearray(total)
    if total:
        _write(prepared, out)
    return Encoded(
        out, len(prepared), max(0, offset_delta), NO_TIMESTAMP if base_timestamp is None else base_timestamp, greatest
    )


def encode_rows(rows: list[Row]) -> bytearray:
    """The whole batch of records without headers, but for its checksum: neither compressed nor of a producer.

    For who writes small batches by the thousands, at least a record each, of keys and values that are bytes.
    """
    count: cython.Py_ssize_t = len(rows)
    i: cython.Py_ssize_t
    total: cython.longlong = HEADER_SIZE_BYTES
    size: cython.longlong
    sizes: list[int] = []
    if not count:
        raise ValueError("a batch needs at least one record")
    base_timestamp = greatest = rows[0][3]
    for i in range(count):
        key, value, _, timestamp = rows[i]
        if timestamp > greatest:
            greatest = timestamp
        size = 1 + _varint_size(_difference(timestamp, base_timestamp)) + _varint_size(i) + _sized(key) + _sized(value)
        sizes.append(size + 1)
        total += _varint_size(size + 1) + size + 1
    if total > INT32_MAX:
        raise ValueError("the records do not fit in one batch, which holds at most 2 GB")
    out = bytearray(total)
    _write_rows(rows, sizes, out, base_timestamp, greatest)
    return out


def encode_columns(
    keys: Column | None,
    values: Column | None,
    timestamps: array[int],
    headers: HeaderColumns | None = None,
    *,
    start: int = 0,
    size_bytes_max: int = 0x7FFFFFFF,
) -> Encoded:
    """The records section of the rows from `start` on, as many as fit in `size_bytes_max` but at least one.

    `record_count` of the answer says how many were taken. No Python object is made per row.
    """
    rows = Rows(keys, values, timestamps, headers)
    if not 0 <= start <= len(timestamps):
        raise ValueError(f"there is no row {start} in {len(timestamps)}")
    count, size, greatest = rows.measure(start, size_bytes_max)
    out = bytearray(size)
    if count:
        rows.write(out, start, count)
    base_timestamp = timestamps[start] if count else -1
    return Encoded(out, count, max(0, count - 1), base_timestamp, greatest)


def rebase(columns: Columns, mask: Buffer, base_timestamp: int) -> Retained:
    """The records whose byte in `mask` is not zero, with timestamps that count from another base."""
    count = columns.count
    if len(mask) != count:
        raise ValueError(f"a mask of {len(mask)} for {count} records")
    out = bytearray(len(columns.data) + count * TIMESTAMP_GROWTH_BYTES_MAX)
    kept, size, greatest = _rebase(columns, mask, out, base_timestamp)
    del out[size:]
    return Retained(out, kept, greatest)


@cython.cfunc
def _rebase(
    columns: Columns, mask: cython.const[cython.uchar][::1], out: cython.uchar[::1], base: cython.longlong
) -> tuple[int, int, int]:
    data: cython.const[cython.uchar][::1] = columns.data
    starts: cython.const[cython.int][::1] = columns.record_positions
    tails: cython.const[cython.int][::1] = columns.tail_positions
    times: cython.const[cython.longlong][::1] = columns.timestamps
    target: cython.p_uchar = cython.address(out[0]) if cython.compiled else out
    count: cython.Py_ssize_t = columns.count
    total: cython.Py_ssize_t = len(columns.data)
    kept: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = 0
    greatest: cython.longlong = NO_TIMESTAMP
    i: cython.Py_ssize_t
    delta: cython.longlong
    tail: cython.longlong
    for i in range(count):
        if mask[i]:
            kept += 1
            if times[i] > greatest:
                greatest = times[i]
            delta = _difference(times[i], base)
            tail = (starts[i + 1] if i + 1 < count else total) - tails[i]
            size = _put_varint(target, size, 1 + _varint_size(delta) + tail)
            target[size] = 0  # attributes, which nobody uses yet
            size = _put_varint(target, size + 1, delta)
            _copy(out, size, data, tails[i], tail)
            size += tail
    return kept, size, greatest


def gather(column: Column, out: bytearray | memoryview, at: int, ends: array[int], first: int) -> int:
    """Copy the byte strings of a column one after another into `out` from `at` on; nulls take no room.

    `ends[first + i]` becomes the end of item i: with `ends` one further than the items, that is Arrow's layout of
    binary columns, and many batches can fill one. Returns the end of the last.
    """
    source: cython.const[cython.uchar][::1] = column.data
    positions: cython.const[cython.int][::1] = column.positions
    lengths: cython.const[cython.int][::1] = column.lengths
    target: cython.uchar[::1] = out
    marks: cython.int[::1] = ends
    count: cython.Py_ssize_t = len(column.lengths)
    here: cython.longlong = at
    mark: cython.Py_ssize_t = first
    room: cython.longlong = len(out)
    i: cython.Py_ssize_t
    length: cython.longlong
    if here < 0 or mark < 0 or len(column.positions) != count or mark + count > len(ends):
        raise ValueError("the arrays do not fit each other")
    for i in range(count):
        length = lengths[i]
        if length > 0:
            if positions[i] < 0 or positions[i] > len(source) - length:
                raise ValueError(f"item {i} lies outside of its data")
            if length > room - here:
                raise ValueError("the column does not fit into the buffer")
            _copy(target, here, source, positions[i], length)
            here += length
        marks[mark + i] = here
    return here


def validity(lengths: array[int], bitmap: bytearray | memoryview, first: int) -> int:
    """Set bit `first + i` of Arrow's validity bitmap for every item that is not null. Returns how many are null."""
    items: cython.const[cython.int][::1] = lengths
    bits: cython.uchar[::1] = bitmap
    count: cython.Py_ssize_t = len(lengths)
    bit: cython.Py_ssize_t = first
    nulls: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    if bit < 0 or bit + count > 8 * len(bitmap):
        raise ValueError("the bitmap is too small")
    for i in range(count):
        if items[i] < 0:
            nulls += 1
        else:
            bits[(bit + i) >> 3] |= 1 << ((bit + i) & 7)
    return nulls


@cython.cclass
class Rows:
    """Columns on their way into a records section: measured and checked, then written."""

    count: cython.Py_ssize_t
    times: cython.const[cython.longlong][::1]
    key_data: cython.const[cython.uchar][::1]
    key_positions: cython.const[cython.int][::1]
    key_lengths: cython.const[cython.int][::1]
    value_data: cython.const[cython.uchar][::1]
    value_positions: cython.const[cython.int][::1]
    value_lengths: cython.const[cython.int][::1]
    header_counts: cython.const[cython.int][::1]
    header_total: cython.Py_ssize_t
    name_data: cython.const[cython.uchar][::1]
    name_positions: cython.const[cython.int][::1]
    name_lengths: cython.const[cython.int][::1]
    content_data: cython.const[cython.uchar][::1]
    content_positions: cython.const[cython.int][::1]
    content_lengths: cython.const[cython.int][::1]
    header: cython.Py_ssize_t  # the first one of the row at hand

    def __init__(
        self, keys: Column | None, values: Column | None, timestamps: array[int], headers: HeaderColumns | None
    ) -> None:
        count = len(timestamps)
        zeros: array[int] = array("i", (0,)) * count
        if keys is None or values is None:
            nulls = Column(b"", zeros, array("i", (-1,)) * count)
            keys = keys or nulls
            values = values or nulls
        if headers is None:
            none = Column(b"", array("i"), array("i"))
            headers = HeaderColumns(zeros, none, none)
        self.header_total = len(headers.names.positions)
        for column, expected in (
            (keys, count),
            (values, count),
            (headers.names, self.header_total),
            (headers.values, self.header_total),
        ):
            if len(column.positions) != expected or len(column.lengths) != expected:
                raise ValueError("the columns have different lengths")
        if len(headers.counts) != count:
            raise ValueError("the columns have different lengths")
        self.count = count
        self.times = timestamps
        self.key_data, self.key_positions, self.key_lengths = keys
        self.value_data, self.value_positions, self.value_lengths = values
        self.header_counts = headers.counts
        self.name_data, self.name_positions, self.name_lengths = headers.names
        self.content_data, self.content_positions, self.content_lengths = headers.values

    @cython.cfunc
    def measure(self, start: cython.Py_ssize_t, size_bytes_max: cython.longlong) -> tuple[int, int, int]:
        """How many rows fit, the bytes that they take, and their greatest timestamp."""
        total: cython.longlong = 0
        body: cython.longlong
        size: cython.longlong
        greatest: cython.longlong = NO_TIMESTAMP
        i: cython.Py_ssize_t = start
        self.seek(start)
        while i < self.count:
            body = self.body_size(i, start)
            size = _varint_size(body) + body
            if total + size > (size_bytes_max if total else INT32_MAX):
                if total == 0:
                    raise ValueError(f"row {i} does not fit in a batch")
                break
            total += size
            if self.times[i] > greatest:
                greatest = self.times[i]
            self.header += self.header_counts[i]
            i += 1
        return i - start, total, greatest

    @cython.cfunc
    @cython.exceptval(-1)
    def seek(self, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        self.header = 0
        for i in range(row):
            if self.header_counts[i] < 0:
                raise ValueError("a row has a negative number of headers")
            self.header += self.header_counts[i]
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def body_size(self, i: cython.Py_ssize_t, start: cython.Py_ssize_t) -> cython.longlong:
        headers: cython.Py_ssize_t = self.header_counts[i]
        size: cython.longlong
        h: cython.Py_ssize_t
        if headers < 0 or headers > self.header_total - self.header:
            raise ValueError(f"row {i} has more headers than there are")
        size = 1 + _varint_size(_difference(self.times[i], self.times[start])) + _varint_size(i - start)
        size += _item_size(len(self.key_data), self.key_positions[i], self.key_lengths[i])
        size += _item_size(len(self.value_data), self.value_positions[i], self.value_lengths[i])
        size += _varint_size(headers)
        for h in range(self.header, self.header + headers):
            if self.name_lengths[h] < 0:
                raise ValueError(f"a header of row {i} has no name")
            size += _item_size(len(self.name_data), self.name_positions[h], self.name_lengths[h])
            size += _item_size(len(self.content_data), self.content_positions[h], self.content_lengths[h])
        return size

    @cython.cfunc
    def write(self, out: cython.uchar[::1], start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> object:
        target: cython.p_uchar = cython.address(out[0]) if cython.compiled else out
        at: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        h: cython.Py_ssize_t
        self.seek(start)
        for i in range(start, start + count):
            at = _put_varint(target, at, self.body_size(i, start))
            target[at] = 0  # attributes, which nobody uses yet
            at = _put_varint(target, at + 1, self.times[i] - self.times[start])
            at = _put_varint(target, at, i - start)
            at = _put_item(out, target, at, self.key_data, self.key_positions[i], self.key_lengths[i])
            at = _put_item(out, target, at, self.value_data, self.value_positions[i], self.value_lengths[i])
            at = _put_varint(target, at, self.header_counts[i])
            for h in range(self.header, self.header + self.header_counts[i]):
                at = _put_item(out, target, at, self.name_data, self.name_positions[h], self.name_lengths[h])
                at = _put_item(out, target, at, self.content_data, self.content_positions[h], self.content_lengths[h])
            self.header += self.header_counts[i]
        return None


@cython.cfunc
def _write(prepared: list, out: cython.uchar[::1]) -> object:
    target: cython.p_uchar = cython.address(out[0]) if cython.compiled else out
    at: cython.Py_ssize_t = 0
    for key, value, headers, timestamp_delta, offset_delta, size in prepared:
        at = _put_varint(target, at, size)
        target[at] = 0
        at = _put_varint(target, at + 1, timestamp_delta)
        at = _put_varint(target, at, offset_delta)
        at = _put_bytes(target, at, key)
        at = _put_bytes(target, at, value)
        at = _put_varint(target, at, len(headers))
        for name, content in headers:
            at = _put_bytes(target, at, name)
            at = _put_bytes(target, at, content)
    return None


@cython.cfunc
def _write_rows(rows: list, sizes: list, out: cython.uchar[::1], base: cython.longlong, greatest: object) -> object:
    target: cython.p_uchar = cython.address(out[0]) if cython.compiled else out
    count: cython.Py_ssize_t = len(rows)
    at: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    at = _put_int(target, at, 8, 0)  # its offset, which comes with the append
    at = _put_int(target, at, 4, len(out) - LOG_OVERHEAD_BYTES)
    at = _put_int(target, at, 4, NOBODY)  # the leader's epoch, the same
    at = _put_int(target, at, 1, MAGIC)
    at = _put_int(target, at, 4, 0)  # the checksum
    at = _put_int(target, at, 2, 0)  # attributes
    at = _put_int(target, at, 4, count - 1)
    at = _put_int(target, at, 8, base)
    at = _put_int(target, at, 8, greatest)
    at = _put_int(target, at, 8, NOBODY)  # producer id, epoch and sequence
    at = _put_int(target, at, 2, NOBODY)
    at = _put_int(target, at, 4, NOBODY)
    at = _put_int(target, at, 4, count)
    for i in range(count):
        key, value, _, timestamp = rows[i]
        at = _put_varint(target, at, sizes[i])
        target[at] = 0  # attributes, which nobody uses yet
        at = _put_varint(target, at + 1, timestamp - base)
        at = _put_varint(target, at, i)
        at = _put_bytes(target, at, key)
        at = _put_bytes(target, at, value)
        target[at] = 0  # headers
        at += 1
    return None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.longlong:
    raw: cython.ulonglong = value
    raw = (raw << 1) ^ (value >> 63)
    size: cython.longlong = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(target: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    raw: cython.ulonglong = value
    raw = (raw << 1) ^ (value >> 63)
    while raw >= 0x80:
        target[at] = (raw & 0x7F) | 0x80
        raw >>= 7
        at += 1
    target[at] = raw
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int(
    target: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    i: cython.Py_ssize_t
    for i in range(size):
        target[at + i] = (value >> (8 * (size - 1 - i))) & 0xFF
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _item_size(available: cython.longlong, position: cython.longlong, length: cython.longlong) -> cython.longlong:
    if length <= 0:
        if length < -1:
            raise ValueError("an item of a column has a negative length")
        return 1
    if position < 0 or position > available - length:
        raise ValueError("an item of a column lies outside of its data")
    return _varint_size(length) + length


@cython.cfunc
@cython.inline
def _put_item(
    out: cython.uchar[::1],
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    at = _put_varint(target, at, length)
    if length > 0:
        _copy(out, at, data, position, length)
        at += length
    return at


@cython.cfunc
@cython.inline
def _put_bytes(target: cython.p_uchar, at: cython.Py_ssize_t, content: bytes | None) -> cython.Py_ssize_t:
    if content is None:
        return _put_varint(target, at, -1)
    length: cython.Py_ssize_t = len(content)
    at = _put_varint(target, at, length)
    if cython.compiled:
        source: cython.p_const_uchar = content
        memcpy(target + at, source, length)
    else:
        target[at : at + length] = content
    return at + length


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.void:
    if cython.compiled:
        memcpy(cython.address(out[at]), cython.address(data[position]), length)
    else:
        out[at : at + length] = data[position : position + length]


@cython.cfunc
@cython.inline
@cython.exceptval(-0x7FFFFFFFFFFFFFFF, check=True)
def _difference(timestamp: cython.longlong, base: cython.longlong) -> cython.longlong:
    if timestamp < base - INT64_MAX - 1 if base >= 0 else timestamp > INT64_MAX + base:
        raise ProtocolError(f"Timestamp {timestamp} is too far from its batch's base timestamp {base} to be encoded.")
    return timestamp - base


@cython.cfunc
def _sized(content: bytes | None) -> cython.longlong:
    if content is None:
        return 1
    length: cython.longlong = len(content)
    return _varint_size(length) + length


@cython.cfunc
def _as_bytes(content: object) -> object:
    if content is None or type(content) is bytes:
        return content
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"keys, values and header values are bytes or None, not {type(content).__name__}")
    return bytes(content)
