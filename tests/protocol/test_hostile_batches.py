"""Whatever the bytes of a batch: one kind of error, in bounded memory. The long campaign is `tests.fuzz.batches`."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol.batch import Batch, scan
from headrace.protocol.batch_builder import build
from headrace.protocol.compression import Compression
from headrace.protocol.kernel_types import Fields
from headrace.protocol.records import records_of
from tests.fuzz.batches import VARINTS, campaign, check, mend
from tests.protocol.kernel_forms import COMPILED, FORMS, PLAIN

FIELDS: list[Fields] = [(b"key", b"value", [("name", b"x"), ("name", None)], 1000), (None, None, (), 999)]


@pytest.mark.parametrize("compression", Compression)
def test_cut_at_any_byte(compression: Compression) -> None:
    data = build(FIELDS, compression=compression)
    for end in range(len(data)):
        for seed in range(4):  # with and without a checksum that was put right
            assert not check(mend(data[:end], Random(seed)), Random(seed))


@pytest.mark.parametrize("compression", Compression)
def test_any_bit_flipped(compression: Compression) -> None:
    data = build(FIELDS, compression=compression)
    for bit in range(len(data) * 8):
        data[bit >> 3] ^= 1 << (bit & 7)
        check(mend(data, Random(bit)), Random(bit))
        data[bit >> 3] ^= 1 << (bit & 7)


def test_any_varint_in_any_place() -> None:
    data = build(FIELDS)
    for at in range(61, len(data)):
        for varint in VARINTS:
            check(mend(data[:at] + varint + data[at + len(varint) :], Random(1)), Random(1))
            check(mend(data[:at] + varint + data[at:], Random(1)), Random(1))


@pytest.mark.parametrize("seed", range(6))
def test_damaged_at_random(seed: int) -> None:
    readable, done = campaign(seed, 500)
    assert 0 < readable < done


@pytest.mark.skipif(COMPILED is None, reason="this machine runs the kernel as it stands")
@given(
    st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 4, 6, 12, 14, 0x7E, 0x7F, 0x80, 0xFE, 0xFF, 0x0F]), max_size=60),
    st.integers(-1, 9),
    st.sampled_from([0, 1, 2**63 - 1, 2**62]),
    st.sampled_from([0, -1, 2**63 - 1, -(2**63), 10**12]),
)
def test_both_forms_of_the_kernel_say_the_same_of_any_bytes(
    noise: list[int], count: int, base_offset: int, base_timestamp: int
) -> None:
    assert COMPILED is not None
    said: list[object] = []
    for form in (COMPILED, PLAIN):
        try:
            records = form.Records(bytes(noise), count, base_offset, base_timestamp)
            said.append((records.decode(), records.latest(), records.retain(bytes(len(records)))))
        except ProtocolError as error:
            said.append(str(error))
    assert said[0] == said[1]


def test_a_count_that_lies_allocates_nothing() -> None:
    data = build([(None, bytes(1000), (), 1)])
    for form in FORMS:
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError):
                form.Records(data[61:], 2**31 - 1).columns()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 10_000


@pytest.mark.parametrize("headers", [0, 1, 50_000])
def test_the_smallest_records_take_at_most_64_times_their_bytes(headers: int) -> None:
    many: list[Fields] = [(None, None, [("", None)] * headers, 0)] * (50_000 if headers < 2 else 1)
    batch = Batch(memoryview(build(many)))
    tracemalloc.start()
    try:
        found = records_of(batch, 1 << 24).decode()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == len(many)
    assert peak < 64 * batch.size_bytes


def test_no_buffer_makes_a_scan_go_on_for_ever() -> None:
    random = Random(7)
    for _ in range(300):
        data = random.randbytes(random.randrange(300))
        try:
            assert len(list(scan(data, partial=True))) <= len(data) // 61
        except ProtocolError:
            continue
