"""Index files: Kafka's bytes, lookups like those of a plain list, damage found at load, memory bounded."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.index import Index, IndexCache, IndexDamaged
from headrace.storage.local_disk import LocalDisk
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex
from headrace.testing.disk import FaultyDisk

KAFKA = Path(__file__).parent.parent / "fixtures" / "kafka"
BASE = 2**40
PATH = "t-0/00000000000000000000.index"

Pairs: TypeAlias = list[tuple[int, int]]
growing = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=60).map(sorted)


def offset_index(entries: Pairs) -> OffsetIndex:
    index = OffsetIndex(BASE)
    for offset, position in entries:
        index.append(BASE + offset, position)
    return index


def stored(content: bytes) -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory("t-0")
    disk.replace(PATH, content)
    return disk


def write_out(disk: FaultyDisk, index: Index) -> None:
    file = disk.open(PATH, create=True)
    index.persist(file)
    file.close()


# Bytes worked out by hand from Kafka's formats


def test_an_offset_entry_is_a_relative_offset_and_a_position() -> None:
    assert offset_index([(1, 0x53), (0x0A0B0C0D, 0x7FFFFFFF)]).encode().hex() == "00000001000000530a0b0c0d7fffffff"


def test_a_time_entry_is_a_timestamp_and_a_relative_offset() -> None:
    index = TimeIndex(BASE)
    index.append_if_later(0x0000018BCFE56801, BASE + 1)
    index.append_if_later(0x7FFFFFFFFFFFFFFF, BASE + 0x01020304)
    assert index.encode().hex() == "0000018bcfe56801000000017fffffffffffffff01020304"


def test_an_aborted_transaction_is_34_bytes() -> None:
    index = TransactionIndex(0)
    index.append(AbortedTransaction(producer_id=1001, first_offset=0, last_offset=18, last_stable_offset=3))
    assert TransactionIndex.ENTRY_BYTES == 34
    assert index.encode().hex() == ("000000000000000003e9000000000000000000000000000000120000000000000003")


def kafka_indexes() -> list[tuple[str, type[Index]]]:
    kinds: dict[str, type[Index]] = {
        ".index": OffsetIndex,
        ".timeindex": TimeIndex,
        ".txnindex": TransactionIndex,
    }
    found = sorted(path for path in KAFKA.glob("*/*") if path.suffix in kinds)
    return [(str(path.relative_to(KAFKA)), kinds[path.suffix]) for path in found]


@pytest.mark.skipif(not KAFKA.exists(), reason="no folders of a real Kafka")
def test_the_index_files_of_a_real_kafka_are_read_and_written_byte_for_byte() -> None:
    disk = LocalDisk(str(KAFKA))
    entries = 0
    for path, kind in kafka_indexes():
        index = kind.load(disk, path, int(Path(path).stem))
        assert index.encode() == disk.read(path), path
        entries += len(index)
    assert entries > 100


# Lookups


@given(growing, growing, st.integers(-5, 2**31 + 5))
def test_an_offset_is_found_as_in_a_plain_list(offsets: list[int], positions: list[int], target: int) -> None:
    entries = list(zip(offsets, positions, strict=False))
    index = offset_index(entries)
    before = [(BASE + offset, position) for offset, position in entries if offset <= target]
    assert index.lookup(BASE + target) == (before[-1] if before else (BASE, 0))
    after = [(BASE + offset, position) for offset, position in entries if offset >= target]
    assert index.first_from(BASE + target) == (after[0] if after else None)
    assert index.last_offset == BASE + (entries[-1][0] if entries else 0)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3))), st.integers(-2, 110))
def test_a_timestamp_is_found_as_in_a_plain_list(appended: Pairs, target: int) -> None:
    index = TimeIndex(BASE)
    model: Pairs = []
    offset = BASE
    for timestamp, step in appended:
        offset += step
        index.append_if_later(timestamp, offset)
        if not model or timestamp > model[-1][0]:
            model.append((timestamp, offset))
    assert [index[entry] for entry in range(len(index))] == model
    assert index.last_entry == (model[-1] if model else (-1, BASE))
    before = [entry for entry in model if entry[0] <= target]
    assert index.lookup(target) == (before[-1] if before else (-1, BASE))


@st.composite
def aborted_transactions(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Transactions of up to four producers, interleaved, as a log would have them."""
    open_since: dict[int, int] = {}
    aborted = []
    for offset in range(draw(st.integers(0, 60))):
        producer = draw(st.integers(0, 3))
        if producer in open_since and draw(st.booleans()):
            first = open_since.pop(producer)
            if draw(st.booleans()):
                aborted.append(
                    AbortedTransaction(producer, first, offset, min(open_since.values(), default=offset + 1))
                )
        else:
            open_since.setdefault(producer, offset)
    return aborted


@given(aborted_transactions(), st.integers(0, 60), st.integers(0, 60))
def test_aborted_transactions_of_a_range_are_all_that_overlap_it(
    aborted: list[AbortedTransaction], start: int, size: int
) -> None:
    index = TransactionIndex(0)
    for transaction in aborted:
        index.append(transaction)
    assert list(index) == aborted
    end = start + size
    found, complete = index.aborted_in(start, end)
    overlapping = [entry for entry in aborted if entry.last_offset >= start and entry.first_offset < end]
    assert found == overlapping, "what was not looked at begins at or after the end"
    assert complete == any(entry.last_stable_offset >= end for entry in aborted if entry.last_offset >= start)


# Truncation, and the file behind


@given(growing, st.lists(st.one_of(st.integers(0, 40), st.just("persist")), max_size=20))
def test_after_any_cuts_and_appends_the_file_has_what_memory_has(offsets: list[int], steps: list[int | str]) -> None:
    disk = stored(b"")
    index = OffsetIndex(0)
    model: Pairs = []
    for number, step in enumerate(steps):
        if isinstance(step, str):
            write_out(disk, index)
            assert OffsetIndex.load(disk, PATH, 0).encode() == index.encode()
        elif step % 2:
            index.truncate_to(step * 10)
            model = [entry for entry in model if entry[0] < step * 10]
        else:
            entry = (max((entry[0] for entry in model), default=0) + 1 + step, (number + 1) * 4096)
            index.append(*entry)
            model.append(entry)
        assert [index[entry] for entry in range(len(index))] == model
    write_out(disk, index)
    write_out(disk, index)
    assert disk.read(PATH) == index.encode()


@given(aborted_transactions(), st.integers(0, 60))
def test_a_truncated_transaction_index_has_the_markers_before_the_offset(
    aborted: list[AbortedTransaction], offset: int
) -> None:
    index = TransactionIndex(0)
    for transaction in aborted:
        index.append(transaction)
    index.truncate_to(offset)
    assert list(index) == [entry for entry in aborted if entry.last_offset < offset]


def test_truncating_a_time_index_drops_the_entries_from_the_offset_on() -> None:
    index = TimeIndex(100)
    for timestamp, offset in ((5, 100), (7, 103), (9, 109)):
        index.append_if_later(timestamp, offset)
    index.truncate_to(103)
    assert index.last_entry == (5, 100)
    index.append_if_later(6, 103)
    assert len(index) == 2


# Limits


def test_a_full_index_says_so_before_the_entry_that_would_not_fit() -> None:
    index = offset_index([(1, 1), (2, 2)])
    assert not index.is_full(24)
    assert index.is_full(23)
    times = TimeIndex(0)
    times.append_if_later(1, 1)
    assert not times.is_full(36), "one entry and the one kept back for the roll"
    assert times.is_full(35)


def test_the_entries_of_both_indexes_take_at_most_20_bytes() -> None:
    assert OffsetIndex.ENTRY_BYTES + TimeIndex.ENTRY_BYTES == 20
    disk = stored(offset_index([(number, number) for number in range(1, 10001)]).encode())
    index = OffsetIndex.load(disk, PATH, 0)
    held = memoryview(index._offsets).nbytes + memoryview(index._positions).nbytes
    assert held == 8 * 10000
    assert index.memory_bytes >= held


# Damage


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex, TransactionIndex])
def test_a_missing_index_is_damaged(kind: type[Index]) -> None:
    with pytest.raises(IndexDamaged, match=r"/disk/t-0/0+\.index is missing; it is rebuilt"):
        kind.load(FaultyDisk(), PATH, 0)


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex, TransactionIndex])
def test_an_index_that_ends_in_the_middle_of_an_entry_is_damaged(kind: type[Index]) -> None:
    with pytest.raises(IndexDamaged, match="no whole entries"):
        kind.load(stored(bytes(kind.ENTRY_BYTES - 1)), PATH, 0)


def test_an_index_that_was_preallocated_and_not_trimmed_is_damaged() -> None:
    with pytest.raises(IndexDamaged, match="out of order"):
        OffsetIndex.load(stored(offset_index([(1, 1)]).encode() + bytes(8)), PATH, BASE)


def test_an_unknown_version_of_an_aborted_transaction_is_damaged() -> None:
    index = TransactionIndex(0)
    index.append(AbortedTransaction(1, 0, 1, 2))
    content = bytearray(index.encode())
    content[1] = 7
    with pytest.raises(IndexDamaged, match="version 7"):
        TransactionIndex.load(stored(bytes(content)), PATH, 0)


@given(st.data())
def test_hazard_8_a_flipped_bit_is_found_unless_it_only_moves_one_entry_between_its_neighbours(
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(2, 30))
    entries = [(number * 100, number * 4096) for number in range(1, count + 1)]
    content = bytearray(offset_index(entries).encode())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    try:
        index = OffsetIndex.load(stored(bytes(content)), PATH, BASE)
    except IndexDamaged:
        return
    changed = bit // 64
    for number in range(count):
        if number != changed:
            assert index[number] == (BASE + entries[number][0], entries[number][1])
    low = entries[changed - 1] if changed else (-1, -1)
    high = entries[changed + 1] if changed + 1 < count else (2**31, 2**31)
    offset, position = index[changed]
    assert low[0] < offset - BASE < high[0]
    assert low[1] < position < high[1]


# The cache


def test_the_cache_stays_within_its_budget_and_drops_what_was_used_longest_ago() -> None:
    one = offset_index([(number, number) for number in range(1, 101)])
    cache = IndexCache(budget_bytes=3 * one.memory_bytes)
    loads: list[str] = []

    def get(key: str) -> None:
        def load() -> OffsetIndex:
            loads.append(key)
            return offset_index([(number, number) for number in range(1, 101)])

        cache.get(key, load)
        assert cache.used_bytes <= cache.budget_bytes

    for key in "abcabcdab":
        get(key)
    assert "".join(loads) == "abcdab"
    assert len(cache) == 3
    cache.forget("a")
    cache.forget("never there")
    assert cache.used_bytes == 2 * one.memory_bytes
    assert (cache.hits, cache.misses) == (3, len(loads))


def test_an_index_larger_than_the_budget_is_used_and_alone() -> None:
    cache = IndexCache(budget_bytes=10)
    large = offset_index([(1, 1)])
    assert cache.get("large", lambda: large) is large
    assert len(cache) == 1
    cache.get("other", lambda: offset_index([]))
    assert len(cache) == 1


def test_what_could_not_be_loaded_is_not_kept() -> None:
    cache = IndexCache(1000)

    def load() -> OffsetIndex:
        raise IndexDamaged("x", "is missing")

    with pytest.raises(IndexDamaged):
        cache.get("a", load)
    assert len(cache) == 0
    assert cache.get("a", lambda: offset_index([])) is not None


@given(st.integers(0, 2**16), st.integers(1023, 2100), st.integers(0, 3), st.integers(0, 2), st.randoms())
def test_one_entry_out_of_order_is_found_wherever_it_is(
    start: int, count: int, width: int, harm: int, chance: random.Random
) -> None:
    """Entries are compared by the thousand: the borders between, and the sign bits, are nothing special."""
    offsets = [start + entry * (1 + width) for entry in range(count)]
    times = [2**40 + entry * (1 + width * 2**31) for entry in range(count)]
    at = chance.randrange(1, count)
    assert OffsetIndex.take(packed(">ii", offsets, offsets), 0)[1] is None
    assert TimeIndex.take(packed(">qi", times, offsets), 0)[1] is None
    stays = [*offsets[:at], offsets[at - 1], *offsets[at + 1 :]]
    assert TimeIndex.take(packed(">qi", times, stays), 0)[1] is None
    # The same again, one less, or negative.
    wrong = [-1 - harm, offsets[at - 1], offsets[at - 1] - 1][harm]
    spoilt = [*offsets[:at], wrong, *offsets[at + 1 :]]
    wrong_times = [*times[:at], [-1 - times[at], times[at - 1], times[at - 1] - 1][harm], *times[at + 1 :]]
    assert OffsetIndex.take(packed(">ii", spoilt, offsets), 0)[1] is not None
    assert OffsetIndex.take(packed(">ii", offsets, spoilt), 0)[1] is not None
    assert TimeIndex.take(packed(">qi", wrong_times, offsets), 0)[1] is not None
    if harm != 1:
        assert TimeIndex.take(packed(">qi", times, spoilt), 0)[1] is not None


def packed(form: str, first: list[int], second: list[int]) -> bytes:
    return b"".join(map(struct.Struct(form).pack, first, second))
