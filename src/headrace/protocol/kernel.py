# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The one walker over the records of a batch.

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
from headrace.protocol.kernel_types import Column, Columns, HeaderColumns, Record, Retained
from headrace.protocol.kernel_writer import rebase

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from headrace.protocol.kernel_types import Buffer, Headers

__all__ = ["COMPILED", "Records"]

COMPILED: bool = cython.compiled

INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
NO_TIMESTAMP = cython.declare(cython.longlong, -1)
RECORD_SIZE_BYTES_MIN = cython.declare(
    cython.longlong, 7
)  # a byte each for length, attributes, timestamp, ..., headers
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
    tail_at: cython.Py_ssize_t
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

    def section(self) -> memoryview:
        """The bytes, as they were handed in."""
        return memoryview(self.view)

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
        tail_positions: cython.int[::1] = found.tail_positions
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
            tail_positions[i] = self.tail_at
            i += 1
        return found

    def outline(self) -> array[int]:
        """What compaction asks: for each record its offset, its key's position and length, and its value's length."""
        found: array[int] = array("q", (0,)) * (4 * self.count)
        out: cython.longlong[::1] = found
        i: cython.Py_ssize_t = 0
        self.rewind()
        while self.advance():
            out[i] = self.offset
            out[i + 1] = self.key_at
            out[i + 2] = self.key_size
            out[i + 3] = self.value_size
            i += 4
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
        """The least and the greatest timestamp. Records without one (-1) do not count; without any it is (-1, -1)."""
        least: cython.longlong = NO_TIMESTAMP
        greatest: cython.longlong = NO_TIMESTAMP
        self.rewind()
        while self.advance():
            if self.timestamp != NO_TIMESTAMP:
                if least == NO_TIMESTAMP or self.timestamp < least:
                    least = self.timestamp
                if greatest == NO_TIMESTAMP or self.timestamp > greatest:
                    greatest = self.timestamp
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
        if base_timestamp is not None:
            return rebase(self.columns(), mask, base_timestamp)
        out = bytearray(self.end)
        kept, size, greatest = self.copy_kept(mask, out)
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
                size = self.copy_run(out, size, run, self.start)
                run = -1
            i += 1
        if run >= 0:
            size = self.copy_run(out, size, run, self.end)
        return kept, size, greatest

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def copy_run(
        self, out: cython.uchar[::1], at: cython.Py_ssize_t, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        if cython.compiled:
            memcpy(cython.address(out[at]), self.data + start, end - start)
        else:
            out[at : at + end - start] = self.view[start:end]
        return at + end - start

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

        self.tail_at = self.position
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
