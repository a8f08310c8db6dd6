# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The last offset of each key, in a fixed amount of memory: what compaction decides by.

Compiled like the record kernel, and the same file runs as it stands. 24 bytes a key: 16 of a hash in place of the key,
and the offset. Two keys with one hash would cost the older one its record, so the hash is one that nobody can collide
on purpose (SipHash-2-4 with 128 bits, under a secret drawn for each cleaning), and that does not by chance: among a
billion keys with a probability of 10^-21.

The table is open and ordered: entries stand in the order of their hashes, each at the place that its hash points to or
in an unbroken run behind it. So a search for a key that is not there, which is the usual case, ends at the first larger
hash, and the table may be filled to nine tenths and more.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy, memmove

if TYPE_CHECKING:
    from array import array

    from headrace.protocol.kernel_types import Buffer

__all__ = ["COMPILED", "ENTRY_BYTES", "SECRET_BYTES", "OffsetMap"]

COMPILED: bool = cython.compiled

ENTRY_BYTES = 24
SECRET_BYTES = 16

WORDS = cython.declare(cython.Py_ssize_t, 3)  # of an entry: two of the hash, and the offset + 1 (0: empty)
SLOTS_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
SPILL_MAX = cython.declare(cython.Py_ssize_t, 4096)
SHIFT_MAX = cython.declare(cython.Py_ssize_t, 1 << 16)

_halves = Struct("<QQ").unpack


@cython.cclass
class OffsetMap:
    """Offsets by key. `secret` are 16 random bytes."""

    view: cython.ulonglong[::1]
    table: cython.p_ulonglong
    data: cython.p_const_uchar
    buckets: cython.ulonglong
    slots: cython.Py_ssize_t
    most: cython.Py_ssize_t
    count: cython.Py_ssize_t
    secret: bytes
    # how the hash begins
    start_0: cython.ulonglong
    start_1: cython.ulonglong
    start_2: cython.ulonglong
    start_3: cython.ulonglong
    # the hash of the key at hand
    high: cython.ulonglong
    low: cython.ulonglong

    def __init__(self, size_bytes: int, load_factor: float, secret: bytes) -> None:
        slots = min(size_bytes // ENTRY_BYTES, int(SLOTS_MAX))
        if slots < 1 or not 0 < load_factor <= 1 or len(secret) != SECRET_BYTES:
            raise ValueError(f"no map of {size_bytes} bytes filled to {load_factor} with {len(secret)} secret bytes")
        # What its hash puts near the end goes on behind it. Memory that is never written to is never taken.
        spill = min(int(SPILL_MAX), slots // 16)
        self.view = memoryview(bytearray(slots * ENTRY_BYTES)).cast("Q")
        if cython.compiled:
            self.table = cython.address(self.view[0])
        else:
            self.table = self.view
        self.slots = slots
        self.buckets = slots - spill
        self.most = max(1, int(slots * load_factor))
        self.count = 0
        self.secret = secret
        first, second = _halves(secret)
        self.start_0 = first ^ 0x736F6D6570736575
        self.start_1 = second ^ 0x646F72616E646F6D ^ 0xEE
        self.start_2 = first ^ 0x6C7967656E657261
        self.start_3 = second ^ 0x7465646279746573

    def __len__(self) -> int:
        return self.count

    @property
    def capacity(self) -> int:
        """How many keys it takes, unless their hashes crowd."""
        return self.most

    @property
    def size_bytes(self) -> int:
        return self.slots * ENTRY_BYTES

    def add(self, section: Buffer, outline: array[int], start_offset: int) -> int:
        """Takes in the keys of a batch, but for records before an offset and those without a key.

        `section` are the bytes of its records, `outline` what the kernel says of them. Returns how many of the records
        are dealt with: fewer than all when the map is full.
        """
        rows: cython.const[cython.longlong][::1] = outline
        count: cython.Py_ssize_t = len(outline) // 4
        start: cython.longlong = start_offset
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        self.look_at(section)
        for i in range(count):
            if rows[at + 2] >= 0 and rows[at] >= start:
                self.digest_of(rows[at + 1], rows[at + 2])
                if not self.put(rows[at]):
                    return i
            at += 4
        return count

    def keep(
        self, section: Buffer, outline: array[int], end_offset: int, keep_tombstones: bool, mask: bytearray
    ) -> tuple[int, int]:
        """Sets `mask[i]` to 1 for the records of a batch that stay, and to 0 for the others.

        Those at and behind `end_offset`, up to where the keys were taken in, all stay. Before it a record stays that is
        the last of its key, if it is no tombstone or these are kept. Returns how many stay, and how many of those are
        tombstones before `end_offset`.
        """
        rows: cython.const[cython.longlong][::1] = outline
        out: cython.uchar[::1] = mask
        count: cython.Py_ssize_t = len(outline) // 4
        end: cython.longlong = end_offset
        with_tombstones: cython.bint = keep_tombstones
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        kept: cython.Py_ssize_t = 0
        tombstones: cython.Py_ssize_t = 0
        if len(mask) < count:
            raise ValueError(f"a mask of {len(mask)} for {count} records")
        self.look_at(section)
        for i in range(count):
            out[i] = 1
            if rows[at] < end:
                if rows[at + 2] < 0 or (rows[at + 3] < 0 and not with_tombstones):
                    out[i] = 0
                else:
                    self.digest_of(rows[at + 1], rows[at + 2])
                    if rows[at] < self.find():
                        out[i] = 0
                    elif rows[at + 3] < 0:
                        tombstones += 1
            kept += out[i]
            at += 4
        return kept, tombstones

    def get(self, key: Buffer) -> int:
        """The offset of a key; -1 when it is not known."""
        self.look_at(key)
        self.digest_of(0, len(key))
        return self.find()

    def digest(self, key: Buffer) -> bytes:
        """The hash of a key."""
        self.look_at(key)
        self.digest_of(0, len(key))
        return Struct("<QQ").pack(self.high, self.low)

    # The table

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def home(self) -> cython.Py_ssize_t:
        """Where the hash at hand points to. It grows with the hash."""
        return ((self.high >> 32) * self.buckets) >> 32

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def seek(self) -> cython.Py_ssize_t:
        """The first slot that is empty or has the hash at hand or a larger one; if none has, the number of slots."""
        at: cython.Py_ssize_t = self.home()
        word: cython.Py_ssize_t = at * WORDS
        high: cython.ulonglong = self.high
        low: cython.ulonglong = self.low
        while at < self.slots:
            if self.table[word + 2] == 0 or self.table[word] > high:
                break
            if self.table[word] == high and self.table[word + 1] >= low:
                break
            at += 1
            word += WORDS
        return at

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_here(self, at: cython.Py_ssize_t) -> cython.bint:
        word: cython.Py_ssize_t = at * WORDS
        return (
            at < self.slots
            and self.table[word + 2] != 0
            and self.table[word] == self.high
            and self.table[word + 1] == self.low
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def find(self) -> cython.longlong:
        """The offset under the hash at hand; -1 when there is none."""
        at: cython.Py_ssize_t = self.seek()
        if self.is_here(at):
            return self.table[at * WORDS + 2] - 1
        return -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def put(self, offset: cython.longlong) -> cython.bint:
        """Puts an offset under the hash at hand. False when there is no room for another one."""
        at: cython.Py_ssize_t = self.seek()
        free: cython.Py_ssize_t
        last: cython.Py_ssize_t
        if not self.is_here(at):
            if self.count >= self.most:
                return False
            free = at
            last = self.slots if self.slots - at < SHIFT_MAX else at + SHIFT_MAX
            while free < last and self.table[free * WORDS + 2] != 0:
                free += 1
            if free >= last:
                return False
            self.shift(at, free)
            self.table[at * WORDS] = self.high
            self.table[at * WORDS + 1] = self.low
            self.count += 1
        self.table[at * WORDS + 2] = offset + 1
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def shift(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        """Moves the entries of a run by one slot."""
        if end > start:
            if cython.compiled:
                memmove(
                    cython.address(self.table[(start + 1) * WORDS]),
                    cython.address(self.table[start * WORDS]),
                    (end - start) * WORDS * 8,
                )
            else:
                self.table[(start + 1) * WORDS : (end + 1) * WORDS] = self.table[start * WORDS : end * WORDS]

    # The hash

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def look_at(self, section: cython.const[cython.uchar][::1]) -> cython.void:
        """Keys are taken from these bytes, which the caller holds."""
        if cython.compiled:
            self.data = cython.address(section[0])
        else:
            self.data = section

    @cython.cfunc
    @cython.exceptval(check=False)
    def digest_of(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.void:
        """The hash of a key becomes the one at hand. Not compiled it is another one, native too: no answer shows it."""
        v0: cython.ulonglong
        v1: cython.ulonglong
        v2: cython.ulonglong
        v3: cython.ulonglong
        word: cython.ulonglong
        left: cython.Py_ssize_t
        step: cython.int
        rounds: cython.int
        if not cython.compiled:
            key = blake2b(self.data[at : at + size], digest_size=16, key=self.secret)
            self.high, self.low = _halves(key.digest())
            return
        v0, v1, v2, v3 = self.start_0, self.start_1, self.start_2, self.start_3
        left = size
        step = 0
        while step < 3:
            # 0: the words of the key, the last one filled up and with the size; 1 and 2: the two halves of the answer
            if step == 0:
                word = 0
                if left >= 8:
                    memcpy(cython.address(word), self.data + at, 8)
                elif left > 0:
                    memcpy(cython.address(word), self.data + at, left)
                if left < 8:
                    word |= cython.cast(cython.ulonglong, size & 0xFF) << 56
                at += 8
                rounds = 2
                v3 ^= word
            else:
                rounds = 4
                if step == 1:
                    v2 ^= 0xEE
                else:
                    v1 ^= 0xDD
            while rounds > 0:
                v0 += v1
                v1 = (v1 << 13) | (v1 >> 51)
                v1 ^= v0
                v0 = (v0 << 32) | (v0 >> 32)
                v2 += v3
                v3 = (v3 << 16) | (v3 >> 48)
                v3 ^= v2
                v0 += v3
                v3 = (v3 << 21) | (v3 >> 43)
                v3 ^= v0
                v2 += v1
                v1 = (v1 << 17) | (v1 >> 47)
                v1 ^= v2
                v2 = (v2 << 32) | (v2 >> 32)
                rounds -= 1
            if step == 0:
                v0 ^= word
                left -= 8
                if left < 0:
                    step = 1
            else:
                if step == 1:
                    self.high = v0 ^ v1 ^ v2 ^ v3
                else:
                    self.low = v0 ^ v1 ^ v2 ^ v3
                step += 1
