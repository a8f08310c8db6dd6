"""What the kernel takes and gives: records one by one, or many as columns without an object for each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from headrace.named_tuple import NamedTuple

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]
Fields = tuple[Buffer | None, Buffer | None, Headers, int]  # key, value, headers, timestamp
Row = tuple[bytes, bytes | None, tuple[()], int]  # one without headers


class Record(NamedTuple):
    """A record as Python objects, for programs that want them one by one."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Retained(NamedTuple):
    """What `Records.retain` kept: the section's bytes, how many records, and their greatest timestamp (-1: none)."""

    data: bytearray
    record_count: int
    max_timestamp: int


class Encoded(NamedTuple):
    """A section made of records: its bytes, and what the header of its batch says about them."""

    data: bytearray
    record_count: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int


class Column(NamedTuple):
    """Byte strings of many records without an object for each: `lengths[i]` bytes at `positions[i]`, -1 for null.

    The arrays are of 32-bit integers ("i"), as they come from `Columns` or from numpy.
    """

    data: Buffer
    positions: array[int]
    lengths: array[int]


class HeaderColumns(NamedTuple):
    """The headers of many records: how many each record has, and the names and values of all, one after another."""

    counts: array[int]
    names: Column
    values: Column


class Columns:
    """All records of a section as arrays, one item a record: no Python object per record."""

    __slots__ = (
        "count",
        "data",
        "header_counts",
        "header_positions",
        "key_lengths",
        "key_positions",
        "offsets",
        "record_positions",
        "tail_positions",
        "timestamps",
        "value_lengths",
        "value_positions",
    )

    def __init__(self, data: memoryview, count: int) -> None:
        self.data = data
        self.count = count
        self.record_positions: array[int] = array("i", (0,)) * count
        self.offsets: array[int] = array("q", (0,)) * count
        self.timestamps: array[int] = array("q", (0,)) * count
        self.key_positions: array[int] = array("i", (0,)) * count
        self.key_lengths: array[int] = array("i", (0,)) * count
        self.value_positions: array[int] = array("i", (0,)) * count
        self.value_lengths: array[int] = array("i", (0,)) * count
        self.header_positions: array[int] = array("i", (0,)) * count
        self.header_counts: array[int] = array("i", (0,)) * count
        self.tail_positions: array[int] = array("i", (0,)) * count  # what comes after a record's timestamp

    @property
    def keys(self) -> Column:
        return Column(self.data, self.key_positions, self.key_lengths)

    @property
    def values(self) -> Column:
        return Column(self.data, self.value_positions, self.value_lengths)
