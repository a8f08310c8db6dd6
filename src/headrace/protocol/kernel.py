# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The one walker over the records of a batch, and the one writer of them.

Written in Cython's pure-Python mode: compiled where there is a C compiler, and the same file runs as it stands where
there is none. Whatever looks inside a batch (compaction, key checks, lookup by timestamp, consumers, Spark's columns)
does it here, and nothing outside walks records.

The bytes are the records section of a batch, uncompressed, and may be hostile: every read is bounded by its record,
every record by the section, and whatever does not fit is a ProtocolError. C integers wrap and Python's do not, so
each value is bounded before it is used; a property test holds both forms to the same answers.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headrace.errors import ProtocolError
from headrace.protocol.kernel_types import Column, Columns, Encoded, HeaderColumns, Record, Retained

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.protocol.kernel_types import Buffer, Fields, Headers

__all__ = ["COMPILED", "Records", "encode", "encode_columns", "gather", "validity"]

COMPILED: bool = cython.compiled

INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
NO_TIMESTAMP = cython.declare(cython.longlong, -1)
RECORD_SIZE_BYTES_MIN = cython.declare(
    cython.longlong, 7
)  # a byte each for length, attributes, timestamp, ..., headers
TIMESTAMP_GROWTH_BYTES_MAX = cython.declare(cython.longlong, 13)  # a varlong of 10 for 1, and 4 more for the length
VARINT_SHIFT_MAX = cython.declare(cython.int, 28)
VARLONG_SHIFT_MAX = cython.declare(cython.int, 63)

_new_record = tuple.__new__


@cython.cclass
class Records:
    """The records section of one batch. Each method walks it once, and raises ProtocolError if it is not sound.

    `fixed_timestamp` is for batches with LogAppendTime: `base_timestamp` is then the timestamp of every record.
    """

    view: cython.const[cython.uchar][::1]
    data: cython.p_const_uchar
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    base_offset: cython.longlong
    base_timestamp: cython.longlong
    fixed_timestamp: cython.bint
    # the cursor, and what it found of the current record
    position: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    left: cython.Py_ssize_t
    start: cython.Py_ssize_t
    attributes_at: cython.Py_ssize_t
    offset_at: cython.Py_ssize_t
    offset: cython.longlong
    timestamp: cython.longlong
    key_at: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    value_at: cython.Py_ssize_t
    value_size: cython.Py_ssize_t
    headers_at: cython.Py_ssize_t
    header_count: cython.Py_ssize_t

    def __init__(
        self,
        data: Buffer,
        count: int,
        base_offset: int = 0,
        base_timestamp: int = 0,
        fixed_timestamp: bool = False,
    ) -> None:
        size = len(data)
        if size > INT32_MAX:
            raise ProtocolError(f"The records of a batch take {size} bytes; a batch holds at most {INT32_MAX}.")
        if count < 0 or count * RECORD_SIZE_BYTES_MIN > size:
            raise ProtocolError(f"A batch says that it has {count} records, which {size} bytes can't hold.")
        if base_offset < 0:
            raise ProtocolError(f"A batch says that its base offset is {base_offset}; offsets begin at 0.")
        if cython.compiled:
            self.view = data
            self.data = cython.address(self.view[0])
        else:
            self.view = self.data = data if type(data) is memoryview else memoryview(data)
        self.end = size
        self.count = count
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.fixed_timestamp = fixed_timestamp

    def __len__(self) -> int:
        return self.count

    def check(self) -> None:
        """Only walk: a section that passes can be read."""
        self.rewind()
        while self.advance():
            pass

    def decode(self) -> list[Record]:
        """All records as Python objects."""
        found: list[Record] = []
        self.rewind()
        while self.advance():
            key = self.take(self.key_at, self.key_size)
            value = self.take(self.value_at, self.value_size)
            headers: Headers = self.take_headers() if self.header_count else ()
            found.append(_new_record(Record, (self.offset, self.timestamp, key, value, headers)))
        return found

    def keys(self) -> list[bytes | None]:
        found: list[bytes | None] = []
        self.rewind()
        while self.advance():
            found.append(self.take(self.key_at, self.key_size))
        return found

    def offsets(self) -> array[int]:
        found: array[int] = array("q", (0,)) * self.count
        out: cython.longlong[::1] = found
        i: cython.Py_ssize_t = 0
        self.rewind()
        while self.advance():
            out[i] = self.offset
            i += 1
        return found

    def timestamps(self) -> array[int]:
        found: array[int] = array("q", (0,)) * self.count
        out: cython.longlong[::1] = found
        i: cython.Py_ssize_t = 0
        self.rewind()
        while self.advance():
            out[i] = self.timestamp
            i += 1
        return found

    def columns(self) -> Columns:
        """Where everything lies, in arrays."""
        found = Columns(memoryview(self.view), self.count)
        record_positions: cython.int[::1] = found.record_positions
        offsets: cython.longlong[::1] = found.offsets
        timestamps: cython.longlong[::1] = found.timestamps
        key_positions: cython.int[::1] = found.key_positions
        key_lengths: cython.int[::1] = found.key_lengths
        value_positions: cython.int[::1] = found.value_positions
        value_lengths: cython.int[::1] = found.value_lengths
        header_positions: cython.int[::1] = found.header_positions
        header_counts: cython.int[::1] = found.header_counts
        i: cython.Py_ssize_t = 0
        self.rewind()
        while self.advance():
            record_positions[i] = self.start
            offsets[i] = self.offset
            timestamps[i] = self.timestamp
            key_positions[i] = self.key_at
            key_lengths[i] = self.key_size
            value_positions[i] = self.value_at
            value_lengths[i] = self.value_size
            header_positions[i] = self.headers_at
            header_counts[i] = self.header_count
            i += 1
        return found

    def header_columns(self) -> HeaderColumns:
        """The headers of all records, in arrays."""
        counts: array[int] = array("i", (0,)) * self.count
        header_counts: cython.int[::1] = counts
        record: cython.Py_ssize_t = 0
        total: cython.Py_ssize_t = 0
        self.rewind()
        while self.advance():
            header_counts[record] = self.header_count
            record += 1
            total += self.header_count
        names = Column(memoryview(self.view), array("i", (0,)) * total, array("i", (0,)) * total)
        values = Column(names.data, array("i", (0,)) * total, array("i", (0,)) * total)
        name_positions: cython.int[::1] = names.positions
        name_lengths: cython.int[::1] = names.lengths
        value_positions: cython.int[::1] = values.positions
        value_lengths: cython.int[::1] = values.lengths
        i: cython.Py_ssize_t = 0
        after: cython.Py_ssize_t
        left: cython.Py_ssize_t
        self.rewind()
        while self.advance():
            after = self.position
            self.position = self.headers_at
            left = self.header_count
            while left:
                name_lengths[i] = self.size(0)
                name_positions[i] = self.position
                self.position += name_lengths[i]
                value_lengths[i] = self.size(-1)
                value_positions[i] = self.position
                if value_lengths[i] > 0:
                    self.position += value_lengths[i]
                i += 1
                left -= 1
            self.position = after
        return HeaderColumns(counts, names, values)

    def first_without_key(self) -> int:
        """The index of the first record that has no key, which a compacted topic refuses; -1 if all have one."""
        found: cython.Py_ssize_t = -1
        i: cython.Py_ssize_t = 0
        self.rewind()
        while self.advance():
            if found < 0 and self.key_size < 0:
                found = i
            i += 1
        return found

    def is_dense(self) -> bool:
        """The offsets go up by one from the base offset, as a producer must send them."""
        dense: cython.bint = True
        expected: cython.longlong = self.base_offset
        self.rewind()
        while self.advance():
            if self.offset != expected:
                dense = False
            expected += 1
        return dense

    def timestamp_bounds(self) -> tuple[int, int]:
        """The least and the greatest timestamp; (-1, -1) of an empty section."""
        least: cython.longlong = NO_TIMESTAMP
        greatest: cython.longlong = NO_TIMESTAMP
        first: cython.bint = True
        self.rewind()
        while self.advance():
            if first or self.timestamp < least:
                least = self.timestamp
            if first or self.timestamp > greatest:
                greatest = self.timestamp
            first = False
        return least, greatest

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is at least as late as `timestamp`."""
        wanted: cython.longlong = timestamp
        self.rewind()
        while self.advance():
            if self.timestamp >= wanted:
                return self.offset, self.timestamp
        return None

    def latest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the greatest timestamp."""
        offset: cython.longlong = 0
        greatest: cython.longlong = 0
        first: cython.bint = True
        self.rewind()
        while self.advance():
            if first or self.timestamp > greatest:
                offset = self.offset
                greatest = self.timestamp
                first = False
        return None if first else (offset, greatest)

    def retain(self, mask: Buffer, base_timestamp: int | None = None) -> Retained:
        """Keep record i where `mask[i]` is not zero, with its offset and timestamp.

        Without a new `base_timestamp` the kept bytes stay as they are; with one (a delete horizon takes its place,
        KIP-534) each record gets a new timestamp delta.
        """
        if len(mask) != self.count:
            raise ValueError(f"a mask of {len(mask)} for {self.count} records")
        out = bytearray(self.end if base_timestamp is None else self.end + self.count * TIMESTAMP_GROWTH_BYTES_MAX)
        kept: cython.Py_ssize_t
        size: cython.Py_ssize_t
        greatest: cython.longlong
        if base_timestamp is None:
            kept, size, greatest = self.copy_kept(mask, out)
        else:
            kept, size, greatest = self.rewrite_kept(mask, out, base_timestamp)
        del out[size:]
        return Retained(out, kept, greatest)

    @cython.cfunc
    def copy_kept(self, mask: cython.const[cython.uchar][::1], out: cython.uchar[::1]) -> tuple[int, int, int]:
        kept: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = 0
        greatest: cython.longlong = NO_TIMESTAMP
        run: cython.Py_ssize_t = -1  # where the records begin that were kept one after another
        i: cython.Py_ssize_t = 0
        self.rewind()
        while self.advance():
            if mask[i]:
                kept += 1
                if self.timestamp > greatest:
                    greatest = self.timestamp
                if run < 0:
                    run = self.start
            elif run >= 0:
                _copy(out, size, self.view, run, self.start - run)
                size += self.start - run
                run = -1
            i += 1
        if run >= 0:
            _copy(out, size, self.view, run, self.end - run)
            size += self.end - run
        return kept, size, greatest

    @cython.cfunc
    def rewrite_kept(
        self, mask: cython.const[cython.uchar][::1], out: cython.uchar[::1], base: cython.longlong
    ) -> tuple[int, int, int]:
        target: cython.p_uchar = cython.address(out[0]) if cython.compiled else out
        kept: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = 0
        greatest: cython.longlong = NO_TIMESTAMP
        i: cython.Py_ssize_t = 0
        delta: cython.longlong
        rest: cython.Py_ssize_t
        self.rewind()
        while self.advance():
            if mask[i]:
                kept += 1
                if self.timestamp > greatest:
                    greatest = self.timestamp
                delta = _difference(self.timestamp, base)
                rest = self.position - self.offset_at
                size = _put_varint(target, size, 1 + _varint_size(delta) + rest)
                target[size] = self.data[self.attributes_at]
                size = _put_varint(target, size + 1, delta)
                _copy(out, size, self.view, self.offset_at, rest)
                size += rest
            i += 1
        return kept, size, greatest

    # The cursor

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def rewind(self) -> cython.void:
        self.position = 0
        self.left = self.count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def advance(self) -> cython.int:
        """Read the next record's frame. 1 if there is one, 0 at the end, which must be the end of the bytes."""
        size: cython.longlong
        left: cython.longlong
        delta: cython.longlong
        if self.left == 0:
            if self.position != self.end:
                raise self.wrong("bytes are left after the last record")
            return 0
        self.start = self.position
        self.limit = self.end
        size = self.varint(VARINT_SHIFT_MAX)
        if size < RECORD_SIZE_BYTES_MIN - 1 or size > self.end - self.position:
            raise self.wrong("the record's length is not true")
        self.attributes_at = self.position
        self.limit = self.position + size
        self.position += 1

        delta = self.varint(VARLONG_SHIFT_MAX)
        if self.fixed_timestamp:
            self.timestamp = self.base_timestamp
        elif (
            delta > INT64_MAX - self.base_timestamp
            if self.base_timestamp >= 0
            else delta < -INT64_MAX - 1 - self.base_timestamp
        ):
            raise self.wrong("the timestamp is out of range")
        else:
            self.timestamp = self.base_timestamp + delta

        self.offset_at = self.position
        delta = self.varint(VARINT_SHIFT_MAX)
        if delta < 0 or delta > INT64_MAX - self.base_offset:
            raise self.wrong("the offset is out of range")
        self.offset = self.base_offset + delta

        self.key_size = self.size(-1)
        self.key_at = self.position
        if self.key_size > 0:
            self.position += self.key_size
        self.value_size = self.size(-1)
        self.value_at = self.position
        if self.value_size > 0:
            self.position += self.value_size

        left = self.varint(VARINT_SHIFT_MAX)
        if left < 0 or left > (self.limit - self.position) // 2:
            raise self.wrong("the number of headers is not true")
        self.header_count = left
        self.headers_at = self.position
        while left:
            size = self.size(0)  # not inside the next line: Python reads the position before the call, C after it
            self.position += size
            size = self.size(-1)
            if size > 0:
                self.position += size
            left -= 1
        if self.position != self.limit:
            raise self.wrong("the record's length is not true")
        self.left -= 1
        return 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2, check=False)
    def size(self, least: cython.longlong) -> cython.Py_ssize_t:
        """A length of what follows within the record: not negative, or -1 for null where `least` allows it."""
        size: cython.longlong = self.varint(VARINT_SHIFT_MAX)
        if size < least or size > self.limit - self.position:
            raise self.wrong("a length is not true")
        return size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-0x7FFFFFFFFFFFFFFF, check=True)
    def varint(self, shift_max: cython.int) -> cython.longlong:
        """A zigzag varint before `limit`, of at most 5 bytes (`shift_max` 28) or 10 bytes (63)."""
        data: cython.p_const_uchar = self.data
        at: cython.Py_ssize_t = self.position
        shift: cython.int = 0
        byte: cython.ulonglong
        raw: cython.ulonglong = 0
        while at < self.limit:
            byte = data[at]
            at += 1
            if byte < 0x80:
                if shift == shift_max and byte > (0x0F if shift_max == VARINT_SHIFT_MAX else 0x01):
                    break
                raw |= byte << shift
                self.position = at
                return (raw >> 1) ^ -(raw & 1)
            if shift == shift_max:
                break
            raw |= (byte & 0x7F) << shift
            shift += 7
        raise self.wrong("a varint is too long or is cut")

    @cython.cfunc
    def wrong(self, what: str) -> object:
        index = self.count - self.left
        return ProtocolError(
            f"Record {index} of {self.count} at byte {self.position} of its batch can't be read: {what}."
        )

    @cython.cfunc
    @cython.inline
    def take(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> object:
        if size < 0:
            return None
        if cython.compiled:
            return self.data[at : at + size]
        return bytes(self.view[at : at + size])

    @cython.cfunc
    def take_headers(self) -> object:
        headers = []
        after: cython.Py_ssize_t = self.position
        left: cython.Py_ssize_t = self.header_count
        size: cython.Py_ssize_t
        self.position = self.headers_at
        while left:
            size = self.size(0)
            name = str(self.take(self.position, size), "utf-8", "replace")
            self.position += size
            size = self.size(-1)
            headers.append((name, self.take(self.position, size)))
            if size > 0:
                self.position += size
            left -= 1
        self.position = after
        return headers


# Writing


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
