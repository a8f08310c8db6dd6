"""What a walk over a segment's file finds, and what it makes of the bytes where it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.disk import File
from headrace.storage.scan import CHUNK_BYTES, PAGE_BYTES, SECTOR_BYTES, Damage, SegmentScan
from headrace.testing.disk import FaultyDisk
from tests.storage.batches import batch, run


def file_of(content: bytes | bytearray) -> File:
    file = FaultyDisk().open("segment", create=True)
    file.write(0, [content])
    return file


def walk(content: bytes | bytearray, base_offset: int = 0) -> tuple[list[int], SegmentScan]:
    scan = SegmentScan(file_of(content), len(content), base_offset)
    return [found.base_offset for found in scan.batches()], scan


def batches(count: int, size: int = 40, start: int = 0) -> list[bytearray]:
    return [batch(bytes([65 + n % 26]) * size, base_offset=start + n) for n in range(count)]


@pytest.mark.parametrize("size", [0, 40, 5000, CHUNK_BYTES // 3, CHUNK_BYTES + 100])
def test_every_batch_is_found_whatever_its_size(size: int) -> None:
    content = run(*batches(7, size))
    offsets, scan = walk(content)
    assert offsets == list(range(7))
    assert (scan.position, scan.next_offset, scan.problem, scan.damage()) == (len(content), 7, None, None)


def test_the_bytes_read_are_reported_as_they_come() -> None:
    content = run(*batches(5, CHUNK_BYTES // 2))
    scan = SegmentScan(file_of(content), len(content), 0)
    reads: list[int] = []
    assert len(list(scan.batches(reads.append))) == 5
    assert sum(reads) == len(content)
    assert len(reads) <= 2 + len(content) // (CHUNK_BYTES // 2)


@given(st.integers(0, 10_000))
def test_a_tail_cut_at_any_byte_ends_with_the_batch_before(cut: int) -> None:
    parts = batches(6)
    content = run(*parts)
    cut %= len(content)
    whole = sum(1 for n in range(1, 7) if len(run(*parts[:n])) <= cut)
    offsets, scan = walk(content[:cut])
    assert offsets == list(range(whole))
    assert scan.position == len(run(*parts[:whole]))
    damage = scan.damage()
    if any(content[scan.position : cut]):
        assert damage == Damage(scan.position, cut, damage.reason if damage else "", False, True)
    else:
        assert damage is None  # nothing, or the first zeros of a base offset


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_in_the_middle_is_damage_with_sound_batches_behind_it(position: int, bit: int) -> None:
    parts = batches(6)
    content = run(*parts)
    position %= len(run(*parts[:-1]))  # not in the last batch: nothing would follow it
    content[position] ^= 1 << bit
    number = next(n for n in range(6) if len(run(*parts[: n + 1])) > position)
    in_batch = position - len(run(*parts[:number]))
    offsets, scan = walk(content)
    assert offsets[:number] == list(range(number))
    damage = scan.damage()
    if 12 <= in_batch < 16:
        assert damage is None  # the leader epoch, which nothing can check
        return
    assert damage is not None
    # A base offset that went up is only a gap, until the next batch.
    assert damage.position == len(run(*parts[: number + (in_batch < 8 and len(offsets) > number)]))
    assert damage.is_followed
    assert not damage.is_lost_write


def test_a_length_that_was_spoilt_is_no_tail_that_was_cut_short() -> None:
    content = run(*batches(3))
    last_at = len(run(*batches(2)))
    content[last_at + 9] ^= 1  # 64 KiB more than there are
    damage = walk(content)[1].damage()
    assert damage is not None
    assert not damage.is_lost_write


def test_the_zeros_of_a_preallocated_file_are_its_end_and_no_damage() -> None:
    content = run(*batches(3))
    offsets, scan = walk(content + bytes(10_000))
    assert offsets == [0, 1, 2]
    assert scan.position == len(content)
    assert scan.damage() is None


def test_a_page_lost_to_a_crash_is_told_from_damage() -> None:
    parts = batches(12, 1000)
    content = run(*parts)
    content[PAGE_BYTES : 2 * PAGE_BYTES] = bytes(PAGE_BYTES)
    offsets, scan = walk(content)
    assert offsets == [0, 1, 2]
    damage = scan.damage()
    assert damage is not None
    assert damage.is_followed
    assert damage.is_lost_write
    assert damage.end % len(parts[0]) == 0


def test_the_last_page_of_a_file_may_be_lost_too_though_it_is_not_full() -> None:
    """A batch begins a few bytes before it, so that its length is there, and other batches follow it up to the end."""
    first = batches(1, PAGE_BYTES - 200)[0]
    content = run(first, *batches(3, 500, start=1))
    lost_at = PAGE_BYTES if len(first) < PAGE_BYTES - 12 else 2 * PAGE_BYTES
    assert PAGE_BYTES - 200 < len(first) < lost_at - 12
    content[lost_at:] = bytes(len(content) - lost_at)
    offsets, scan = walk(content)
    assert offsets == [0]
    damage = scan.damage()
    assert damage is not None
    assert not damage.is_followed
    assert damage.is_lost_write


@pytest.mark.parametrize("count", range(1, 21))
def test_a_page_that_had_only_the_first_bytes_of_a_batch_may_be_lost_too(count: int) -> None:
    """What was in the page before them had been written already. Some of these bytes the CRC does not cover."""
    start = 0x0102030405060708
    first = of_size(PAGE_BYTES - count, start)
    content = run(first, *batches(3, 500, start=start + 1))
    content[PAGE_BYTES - count : PAGE_BYTES] = bytes(count)
    offsets, scan = walk(content, base_offset=start)
    assert offsets == [start]
    damage = scan.damage()
    assert damage is not None
    assert damage.position == PAGE_BYTES - count
    assert damage.is_followed
    assert damage.is_lost_write


@pytest.mark.parametrize("count", range(1, 8))
def test_a_page_that_was_lost_may_end_in_the_first_bytes_of_a_sound_batch(count: int) -> None:
    """Which are zeros in any case, up to the lowest byte of its offset."""
    [first] = batches(1)
    content = run(first, of_size(2 * PAGE_BYTES - count - len(first), 1), *batches(2, 500, start=2))
    content[PAGE_BYTES : 2 * PAGE_BYTES] = bytes(PAGE_BYTES)
    offsets, scan = walk(content)
    assert offsets == [0]
    damage = scan.damage()
    assert damage is not None
    assert damage.is_followed
    assert damage.is_lost_write


@pytest.mark.parametrize("count", range(8))
def test_a_sector_that_was_lost_may_end_in_the_first_bytes_of_a_sound_batch(count: int) -> None:
    """And the rest of its page was written."""
    [first] = batches(1)
    end = 3 * SECTOR_BYTES - count
    content = run(first, of_size(end - len(first), 1), *batches(2, 500, start=2))
    content[2 * SECTOR_BYTES : 3 * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    offsets, scan = walk(content)
    assert offsets == [0]
    damage = scan.damage()
    assert damage is not None
    assert (damage.position, damage.end) == (len(first), end)
    assert damage.is_followed
    assert damage.is_lost_write


def test_a_few_zeros_at_the_end_of_a_damaged_batch_are_no_lost_sector() -> None:
    first, second, third = batches(3, 500)
    content = run(first, second, third)
    content[len(first) + 100] ^= 1
    content[len(first) + len(second) - 8 : len(first) + len(second)] = bytes(8)
    damage = walk(content)[1].damage()
    assert damage is not None
    assert damage.is_followed
    assert not damage.is_lost_write


def of_size(size_bytes: int, offset: int) -> bytearray:
    """A batch of one record, of this size."""
    for value_bytes in range(size_bytes - 100, size_bytes):
        found = batches(1, value_bytes, start=offset)[0]
        if len(found) == size_bytes:
            return found
    raise AssertionError("sizes jump where a varint grows")


def test_offsets_that_go_back_are_no_sound_batches() -> None:
    offsets, scan = walk(run(*batches(3, start=10), *batches(1, start=5)), base_offset=10)
    assert offsets == [10, 11, 12]
    assert scan.problem == "they have offsets 5 to 5, and 13 is next"


def test_gaps_between_offsets_are_what_compaction_leaves() -> None:
    offsets, scan = walk(run(*batches(2), *batches(2, start=100)))
    assert offsets == [0, 1, 100, 101]
    assert scan.problem is None
