"""Where a read ends when its budget does: a part of a large batch is no use to anybody, and is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import LogConfig
from headrace.protocol.batch import scan
from headrace.storage.disk import File
from headrace.storage.log import Log
from tests.storage.batches import START_MS, batch
from tests.storage.logs import new_log

BUDGET = 1000
INTERVAL = 100
HEADER_BYTES_LOOKED_AT = 27


def log_of(sizes: list[int], segment_bytes: int = 1 << 20) -> tuple[Log, list[int]]:
    """A batch of one record with so many bytes each, and what each batch takes."""
    log = new_log(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=INTERVAL))
    taken = []
    for size in sizes:
        before = log.size_bytes
        log.append_as_leader(memoryview(batch(b"x" * size)), 0, START_MS)
        taken.append(log.size_bytes - before)
    return log, taken


def test_what_does_not_fit_of_a_large_batch_is_left_out() -> None:
    log, taken = log_of([600] * 4)
    fetched = log.read(1, BUDGET, 4)
    assert (fetched.size_bytes, fetched.found_bytes) == (taken[1], BUDGET)
    assert sum(piece.size_bytes for piece in fetched.pieces) == taken[1]
    assert fetched.sent_offset == 2 <= fetched.end_offset
    assert [found.base_offset for found in scan(fetched.take())] == [1]


def test_the_first_batch_comes_whole_also_when_it_fills_the_budget() -> None:
    log, taken = log_of([10, 2000, 10])
    fetched = log.read(1, BUDGET, 3)
    assert (fetched.size_bytes, fetched.found_bytes) == (taken[1], taken[1])


def test_less_than_half_is_left_out() -> None:
    """Where the index has entries far apart, whole batches lie behind the last one."""
    log, taken = log_of([200, 900, 50])
    assert log.read(0, BUDGET, 3, min_one_batch=False).size_bytes == BUDGET > 2 * taken[0]


def test_one_byte_of_the_next_segment_is_no_piece_of_nothing() -> None:
    log, taken = log_of([600, 600], segment_bytes=800)
    assert len(log.segments) == 2
    fetched = log.read(0, taken[0] + 1, 2)
    assert [piece.size_bytes for piece in fetched.pieces] == [taken[0], 1]
    fetched.release()


def reads_of(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is read from its files from now on."""
    kind = type(log.segments.active.file)
    read, sizes = kind.read, []

    def counted(file: File, position: int, size: int) -> bytes:
        sizes.append(size)
        return read(file, position, size)

    monkeypatch.setattr(kind, "read", counted)
    return sizes


def test_whoever_reads_on_costs_a_look_at_one_header(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = log_of([600] * 6)
    sizes = reads_of(log, monkeypatch)
    for offset in range(1, 5):
        sizes.clear()
        log.read(offset, BUDGET, 6).release()
        assert sizes == [HEADER_BYTES_LOOKED_AT]


@pytest.mark.parametrize("wrong", ["the middle of a batch", "another batch"])
def test_an_entry_that_leads_elsewhere_is_not_followed(wrong: str) -> None:
    log, taken = log_of([600] * 6)
    index = log.segments.active.offset_index
    entries = [index[number] for number in range(len(index))]
    number = [offset for offset, _ in entries].index(3)
    position = entries[number][1] + (100 if wrong == "the middle of a batch" else taken[0])
    index._positions[number] = position
    fetched = log.read(3, BUDGET, 6)
    assert next(scan(fetched.take(), partial=True)).base_offset == 3


@given(
    st.lists(st.integers(0, 1500), min_size=1, max_size=40), st.sampled_from([2000, 1 << 20]), st.integers(100, 3000)
)
def test_whoever_reads_on_gets_all_of_it(sizes: list[int], segment_bytes: int, budget: int) -> None:
    log, taken = log_of(sizes, segment_bytes)
    offset = 0
    while offset < len(sizes):
        fetched = log.read(offset, budget, len(sizes))
        assert fetched.size_bytes <= fetched.found_bytes <= max(budget, taken[offset])
        assert 2 * fetched.size_bytes >= fetched.found_bytes - 1
        end_offset, sent_offset = fetched.end_offset, fetched.sent_offset
        batches = list(scan(fetched.take(), partial=True))
        assert batches, "the first comes whole"
        assert [found.base_offset for found in batches] == list(range(offset, offset + len(batches)))
        offset += len(batches)
        assert sent_offset <= end_offset
        assert end_offset >= offset
