"""The map of keys, in both forms: it knows what a dict knows, in the memory it was given, and says when it is full."""

from __future__ import annotations

import struct
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.kernel import Records
from headrace.protocol.kernel_types import Buffer
from headrace.protocol.kernel_writer import encode
from headrace.storage import offset_map
from headrace.storage.offset_map import ENTRY_BYTES, OffsetMap
from tests.plain_forms import plain_form

SECRET = bytes(range(16))
SOURCE = Path(offset_map.__file__).parent


PLAIN: type[OffsetMap] = plain_form("storage/offset_map.py").OffsetMap
FORMS = [pytest.param(PLAIN, id="plain")]
if offset_map.COMPILED:
    FORMS.append(pytest.param(OffsetMap, id="compiled"))

both_forms = pytest.mark.parametrize("form", FORMS)
keys = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"a", b"b", b"c"]))
pairs = st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=5))), min_size=1, max_size=60)


def batch_of(pairs: list[tuple[bytes | None, bytes | None]], base_offset: int = 0) -> tuple[Buffer, array[int]]:
    """The records section and its outline."""
    encoded = encode([(key, value, (), 0) for key, value in pairs])
    records = Records(encoded.data, encoded.record_count, base_offset)
    return records.section(), records.outline()


@both_forms
@given(pairs, st.integers(0, 70), st.integers(0, 70), st.booleans())
def test_it_decides_as_a_dict_does(
    form: type[OffsetMap], records: list[tuple[bytes | None, bytes | None]], start: int, end: int, tombstones: bool
) -> None:
    content = batch_of(records, 5)
    known = form(ENTRY_BYTES * 1000, 0.9, SECRET)
    assert known.add(*content, start) == len(records)
    last = {key: i + 5 for i, (key, _) in enumerate(records) if key is not None and i + 5 >= start}
    assert len(known) == len(last)
    for key, _ in records:
        if key is not None:
            assert known.get(key) == last.get(key, -1)
    mask = bytearray(b"\7" * len(records))
    kept, kept_tombstones = known.keep(*content, end, tombstones, mask)
    expected = [
        i + 5 >= end or (key is not None and i + 5 >= last.get(key, -1) and (value is not None or tombstones))
        for i, (key, value) in enumerate(records)
    ]
    assert list(mask) == expected
    assert kept == sum(expected)
    assert kept_tombstones == sum(
        stays and value is None and i + 5 < end
        for i, (stays, (_, value)) in enumerate(zip(expected, records, strict=True))
    )


@both_forms
@pytest.mark.parametrize("load_factor", [0.01, 0.5, 0.9, 1.0])
def test_it_takes_what_fits_and_says_where_it_stopped(form: type[OffsetMap], load_factor: float) -> None:
    records: list[tuple[bytes | None, bytes | None]] = [(b"%d" % i, b"") for i in range(3000)]
    known = form(ENTRY_BYTES * 1000, load_factor, SECRET)
    taken = known.add(*batch_of(records), 0)
    assert taken == len(known) <= known.capacity == max(1, int(1000 * load_factor))
    assert taken > 0.9 * known.capacity
    assert [known.get(key) for key, _ in records if key] == [*range(taken), *[-1] * (3000 - taken)]
    again = batch_of(records[:taken], 10_000)
    assert known.add(*again, 0) == taken, "a full map still takes keys that it knows"
    assert known.get(b"7") == 10_007


@both_forms
def test_the_smallest_map_takes_a_key(form: type[OffsetMap]) -> None:
    known = form(ENTRY_BYTES, 0.01, SECRET)
    assert known.add(*batch_of([(b"a", b""), (b"a", b""), (b"b", b"")]), 0) == 2
    assert (known.get(b"a"), known.get(b"b")) == (1, -1)


@both_forms
def test_what_makes_no_sense_is_refused(form: type[OffsetMap]) -> None:
    for size_bytes, load_factor, secret in ((23, 0.9, SECRET), (240, 0.0, SECRET), (240, 1.1, SECRET), (240, 1, b"")):
        with pytest.raises(ValueError, match="no map of"):
            form(size_bytes, load_factor, secret)
    with pytest.raises(ValueError, match="a mask of 0 for 1"):
        form(240, 0.9, SECRET).keep(*batch_of([(b"a", b"")]), 0, True, bytearray())


@both_forms
def test_the_hash_depends_on_the_secret(form: type[OffsetMap]) -> None:
    """Who knows no secret can't choose keys that collide, and so make others lose records."""
    digests = {form(240, 0.9, bytes([i]) * 16).digest(b"key") for i in range(50)}
    assert len(digests) == 50
    assert len({form(240, 0.9, SECRET).digest(bytes(i)) for i in range(50)}) == 50


@pytest.mark.skipif(not offset_map.COMPILED, reason="this machine runs the map as it stands, with another hash")
@given(st.binary(max_size=100))
def test_the_hash_is_siphash(key: bytes) -> None:
    assert OffsetMap(240, 0.9, SECRET).digest(key) == siphash_128(key, SECRET)


def test_the_reference_is_siphash() -> None:
    """By the first answers that its authors publish for 128 bits."""
    assert siphash_128(b"", SECRET).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert siphash_128(b"\0", SECRET).hex() == "da87c1d86b99af44347659119b22fc45"


def test_the_file_runs_where_cython_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cython", None)
    known = plain_form("storage/offset_map.py").OffsetMap(240, 0.9, SECRET)
    known.add(*batch_of([(b"a", b"")], 9), 0)
    assert known.get(b"a") == 9


def test_the_stub_says_what_the_file_says() -> None:
    from tests.protocol.test_kernel import interface

    assert interface(SOURCE / "offset_map.pyi") == interface(SOURCE / "offset_map.py")


def siphash_128(key: bytes, secret: bytes) -> bytes:
    """SipHash-2-4 with 128 bits, written down as its paper does."""
    mask = 2**64 - 1
    k0, k1 = struct.unpack("<QQ", secret)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & mask

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    def folded() -> Any:
        return v[0] ^ v[1] ^ v[2] ^ v[3]

    padded = key + bytes(-(len(key) + 1) % 8) + bytes([len(key) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = folded()
    v[1] ^= 0xDD
    rounds(4)
    return struct.pack("<QQ", first, folded())
