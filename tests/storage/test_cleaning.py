"""What compaction keeps and what it drops, by Kafka's rules; `test_cleaning_model` holds the sum of them to a model."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import LogConfig, TimestampType
from headrace.protocol.batch import Batch
from headrace.protocol.compression import Compression
from headrace.protocol.control import build_marker
from headrace.protocol.records import records_of
from headrace.storage import cleaning, names, offset_map
from headrace.storage.cleaner import cleanable_of, job_for
from headrace.storage.cleaning import clean
from headrace.storage.cleaning_job import Cleaned, CleaningJob, Replacement, Worked, decode_line, encode_step
from headrace.storage.lookup import headers, read_batch
from headrace.storage.producer_state import Origin
from headrace.storage.transaction_index import AbortedTransaction
from headrace.testing.disk import FaultyDisk
from tests.storage.cleaning import COMPACT, DAY_MS, KEYS, START_MS, Compacted, codec, keyed
from tests.storage.test_offset_map import PLAIN

HOUR_MS = 3_600_000


def compacted(**changes: Any) -> Compacted:
    return Compacted(config=COMPACT.replace(**changes))


def batches_in(real: Compacted) -> list[Batch]:
    """All batches, whole, markers and headers without records too."""
    return [
        read_batch(segment, position, header.size_bytes)
        for segment in real.log.segments
        for position, header in headers(segment)
    ]


def values_in(real: Compacted) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in real.committed()]


# -------------------------------------------------------------------------------------------------------------- records


def test_the_last_record_of_a_key_stays_where_it_was() -> None:
    real = Compacted()
    for number in range(20):
        real.put((KEYS[number % 3], b"%d" % number))
    real.roll()
    real.clean()
    assert values_in(real) == [(17, b"17"), (18, b"18"), (19, b"19")]
    assert real.log.clean_offset == 20
    assert (real.log.log_start_offset, real.log.log_end_offset) == (0, 20)


def test_the_active_segment_is_not_touched_and_its_keys_do_not_count() -> None:
    real = Compacted()
    real.put((b"a", b"old"))
    real.put((b"a", b"older"))
    real.roll()
    real.put((b"a", b"new"))
    real.clean()
    assert values_in(real) == [(1, b"older"), (2, b"new")]


def test_records_without_a_key_are_dropped() -> None:
    """They come from when the topic was not compacted; an append refuses them now."""
    real = Compacted()
    real.log.configure(LogConfig(segment_bytes=700))
    real.put((None, b"nobody's"), (b"a", b"1"))
    real.log.configure(COMPACT)
    real.roll()
    real.clean()
    assert values_in(real) == [(1, b"1")]


def test_a_log_that_has_nothing_to_drop_is_not_written_anew() -> None:
    real = Compacted()
    real.put((b"a", b"1"), (b"b", b"2"))
    real.roll()
    before = real.log.segments[0]
    real.clean()
    assert real.log.segments[0] is before
    assert real.log.clean_offset == 2


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_that_loses_records_keeps_its_codec(compression: Compression) -> None:
    real = Compacted()
    pairs = [(b"key %d" % number, b"value " * 5) for number in range(10)]
    real.put(*pairs, compression=compression)
    real.put((b"key 3", b"new"))
    real.roll()
    real.clean()
    first = batches_in(real)[0]
    assert first.compression is compression
    assert first.record_count == 9
    assert (first.base_offset, first.last_offset) == (0, 9)
    assert [record[:4] for record in records_of(first, 1 << 20).decode()] == [
        (number, START_MS + number, *pair) for number, pair in enumerate(pairs) if number != 3
    ]


def test_a_batch_with_append_time_keeps_it() -> None:
    real = compacted(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    real.put((b"a", b"1"), (b"b", None), (b"c", b"3"))
    real.now_ms += 5
    real.put((b"a", b"2"))
    real.roll()
    real.clean()
    assert [record[:2] for record in real.committed()] == [(1, START_MS), (2, START_MS), (3, START_MS + 5)]


@pytest.mark.parametrize("keys_at_once", [1, 2, 7])
def test_more_keys_than_the_memory_holds_take_several_passes(keys_at_once: int) -> None:
    real = Compacted(log_cleaner_dedupe_buffer_size=24 * keys_at_once, log_cleaner_io_buffer_load_factor=1.0)
    for number in range(60):
        real.put((b"key %d" % (number % 20), b"%d" % number))
    real.roll()
    real.clean()
    assert values_in(real) == [(number, b"%d" % number) for number in range(40, 60)]
    assert real.cleaner.cleanings >= 60 / keys_at_once / 20
    assert real.cleaner.last["t", 0].keys <= keys_at_once


def test_small_segments_become_one_and_their_snapshots_go() -> None:
    real = compacted(segment_bytes=100_000)
    for number in range(10):
        real.put((b"a", b"%d" % number), (b"%d" % number, b""))
        real.roll()
    real.clean()
    assert [segment.base_offset for segment in real.log.segments] == [0, 20]
    assert sorted(real.log.snapshots) == [20]
    assert [name for name in real.disk.names("t-0") if names.parse_segment_file(name)] == [
        "00000000000000000000.index",
        "00000000000000000000.index.deleted",
        "00000000000000000000.log",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex",
        "00000000000000000000.timeindex.deleted",
        *[
            f"{2 * number:020}{suffix}.deleted"
            for number in range(1, 10)
            for suffix in (".index", ".log", ".snapshot", ".timeindex")
        ],
        "00000000000000000020.log",
        "00000000000000000020.snapshot",
    ]
    real.log.sweep()
    assert not [name for name in real.disk.names("t-0") if name.endswith(".deleted")]


def test_a_cleaned_segment_keeps_the_age_of_the_last_that_it_was_made_of() -> None:
    real = compacted(segment_bytes=100_000)
    for number in range(3):
        real.now_ms += 1000
        real.put((b"a", b"%d" % number))
        real.roll()
    modified_ms = real.log.segments[-2].modified_ms
    real.clean()
    assert real.log.segments[0].modified_ms == modified_ms
    assert real.disk.stat("t-0/00000000000000000000.log").modified_ms == modified_ms


def test_offsets_are_found_by_time_after_a_cleaning() -> None:
    real = Compacted()
    for number in range(30):
        real.put((KEYS[number % 5], b"%d" % number))
        real.now_ms += 10
    real.roll()
    real.clean()
    found = real.log.by_timestamp(START_MS + 100)
    assert found is not None
    assert (found.timestamp, found.offset) == (START_MS + 250, 25)
    latest = real.log.latest()
    assert latest is not None
    assert (latest.timestamp, latest.offset) == (START_MS + 290, 29)


def test_the_latest_record_is_found_where_only_the_header_of_a_later_batch_is_left() -> None:
    real = Compacted()
    real.put((b"a", b"1"))
    real.now_ms += 1000
    real.put((b"b", b"late"), producer=1)
    real.now_ms -= 500
    real.put((b"b", b"2"))
    real.roll()
    real.clean()
    latest = real.log.latest()
    assert latest is not None
    assert (latest.timestamp, latest.offset) == (START_MS + 500, 2)


def test_a_batch_that_grows_beyond_max_message_bytes_is_written_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    content = keyed(tuple((b"%d" % number, None) for number in range(20)), START_MS)
    real = compacted(max_message_bytes=len(content))
    real.log.append_as_leader(memoryview(content), 0, START_MS)
    real.log.set_high_watermark(20)
    real.roll()
    real.clean()
    (batch,) = batches_in(real)
    assert batch.size_bytes > len(content)
    assert "1 batches that compaction made longer than max.message.bytes" in caplog.text
    assert len(real.committed()) == 20


# ----------------------------------------------------------------------------------------------------------- tombstones


def test_a_tombstone_stays_for_delete_retention_ms_after_the_first_cleaning_that_meets_it() -> None:
    real = Compacted()
    real.put((b"a", b"1"))
    real.put((b"a", None))
    real.now_ms += 100 * DAY_MS  # how old it is does not matter
    real.put((b"b", b"1"))
    real.roll()
    real.clean()
    assert values_in(real) == [(1, None), (2, b"1")]
    (marked,) = (batch for batch in batches_in(real) if batch.has_delete_horizon)
    assert marked.delete_horizon_ms == real.now_ms + DAY_MS
    assert records_of(marked, 1 << 20).decode()[0].timestamp == START_MS

    real.now_ms += DAY_MS - 1
    real.put((b"b", b"2"))
    real.roll()
    real.clean()
    assert values_in(real) == [(1, None), (3, b"2")]

    real.now_ms += 1
    real.put((b"b", b"3"))
    real.roll()
    real.clean()
    assert values_in(real) == [(4, b"3")]


def test_the_time_of_a_tombstone_does_not_begin_before_older_records_are_gone() -> None:
    """Else a later cleaning could drop both at once, and a reader that saw the record would never see it deleted."""
    real = Compacted(log_cleaner_dedupe_buffer_size=24, log_cleaner_io_buffer_load_factor=1.0)
    real.put((b"x", b"1"))
    real.put((b"a", b"1"))
    real.put((b"a", None))
    real.roll()
    log = real.log
    job = job_for(log, cleanable_of(log, real.now_ms), real.cleaner._config, 1, real.now_ms, bytes(16))
    steps = list(clean(job, real.disk))
    assert isinstance(steps[-1], Cleaned)
    assert steps[-1].end_offset == 1
    assert not any(isinstance(step, Replacement) for step in steps), "only the key x fits, so nothing changes yet"


def test_a_tombstone_of_a_key_that_comes_back_goes_at_once() -> None:
    real = Compacted()
    for value in (b"1", None, b"2"):
        real.put((b"a", value))
    real.roll()
    real.clean()
    assert values_in(real) == [(2, b"2")]


# --------------------------------------------------------------------------------------------------------- transactions


def test_records_of_aborted_transactions_are_dropped_and_do_not_replace_others() -> None:
    real = Compacted()
    real.put((b"a", b"committed"))
    real.put((b"a", b"aborted"), (b"b", b"aborted"), producer=1, transactional=True)
    real.put((b"c", b"plain"))
    real.end(1, commit=False)
    real.roll()
    real.clean()
    assert values_in(real) == [(0, b"committed"), (3, b"plain")]
    assert [batch.record_count for batch in batches_in(real) if batch.producer_id == 1] == [0, 1]


def test_aborted_records_are_dropped_before_their_marker_can_be() -> None:
    """The marker is in the active segment, so its transaction is only in the index there."""
    real = Compacted()
    real.put((b"a", b"committed"))
    real.put((b"a", b"aborted"), producer=1, transactional=True)
    real.roll()
    real.end(1, commit=False)
    real.clean()
    assert values_in(real) == [(0, b"committed")]
    assert real.log.clean_offset == 2
    assert real.log.aborted_in(0, 3) == [AbortedTransaction(1, 1, 2, 3)]


def test_nothing_at_or_behind_the_last_stable_offset_is_touched() -> None:
    real = compacted(segment_bytes=300)
    real.put((b"a", b"1"))
    real.roll()
    real.put((b"a", b"2"))
    real.put((b"a", b"open"), producer=1, transactional=True)
    for number in range(5):
        real.put((b"a", b"later %d" % number))
    real.roll()
    before = [bytes(batch.view) for batch in batches_in(real) if batch.base_offset]
    real.clean()
    assert [bytes(batch.view) for batch in batches_in(real) if batch.base_offset] == before
    assert real.log.clean_offset == 1, "segments that the open transaction reaches into stay as they are"
    real.end(1, commit=False)
    real.roll()
    real.clean()
    assert values_in(real) == [(7, b"later 4")]


def test_a_marker_goes_when_its_records_are_gone_and_delete_retention_ms_has_passed() -> None:
    real = Compacted()
    for producer, commit in ((1, True), (2, False)):
        real.put((b"a", b"by %d" % producer), producer=producer, transactional=True)
        real.end(producer, commit=commit)
        real.put((b"x", b""), producer=producer)  # so that the batch in the transaction is not its last
    real.put((b"a", b"last"))
    markers = []
    for _ in range(4):
        real.roll()
        real.clean()
        markers.append([(b.producer_id, b.delete_horizon_ms) for b in batches_in(real) if b.is_control])
        real.now_ms += DAY_MS
        real.put((b"y", b""))
    assert markers == [
        [(1, None), (2, None)],  # batches of them were there when this cleaning began
        [(1, START_MS + 2 * DAY_MS), (2, START_MS + 2 * DAY_MS)],
        [],
        [],
    ]
    assert real.log.aborted_in(0, real.log.log_end_offset) == []
    assert real.log.last_stable_offset == real.log.log_end_offset


def test_an_aborted_transaction_is_in_the_index_as_long_as_its_marker_is_needed() -> None:
    real = Compacted()
    real.put((b"a", b"aborted"), producer=1, transactional=True)
    real.end(1, commit=False)
    real.put((b"b", b""))
    entries = []
    for _ in range(3):
        real.roll()
        real.clean()
        entries.append(real.log.aborted_in(0, 1))
        real.put((b"b", b""))
    # The header of its batch stays, because it is the last one of the producer; so the marker and the entry stay too.
    assert entries == [[AbortedTransaction(1, 0, 1, 2)]] * 3
    real.put((b"b", b""), producer=1)
    for expected in ([AbortedTransaction(1, 0, 1, 2)], []):
        real.roll()
        real.clean()
        assert real.log.aborted_in(0, 1) == expected
        real.put((b"b", b""))


# ------------------------------------------------------------------------------------------------------------ producers


def lost_snapshots(real: Compacted) -> Compacted:
    """After a crash, with no snapshot of producers: all is read from the batches."""
    assert isinstance(real.disk, FaultyDisk)
    for name in real.disk.names("t-0"):
        if name.endswith(names.SNAPSHOT):
            real.disk.platter.vanish(f"t-0/{name}")
    return real.restart()


def test_hazard_7_a_producer_goes_on_when_all_its_records_were_compacted() -> None:
    real = Compacted()
    for number in range(3):
        real.put((b"a", b"%d" % number), producer=7)
    last = real.put((b"a", b"x"), (b"a", b"y"), producer=7)
    real.put((b"a", b"by another"))
    real.roll()
    real.clean()
    (header,) = (batch for batch in batches_in(real) if batch.producer_id == 7)
    assert (header.record_count, header.base_offset, header.last_sequence) == (0, last, 4)
    again = lost_snapshots(real)
    again.put((b"a", b"next"), producer=7)
    retry = keyed(((b"a", b"x"), (b"a", b"y")), START_MS, producer_id=8, producer_epoch=0, base_sequence=0)
    again.log.append_as_leader(memoryview(retry), 0, START_MS)


def test_hazard_7_the_last_batch_is_still_known_as_a_duplicate() -> None:
    real = Compacted()
    content = bytes(keyed(((b"a", b"x"),), START_MS, producer_id=7, producer_epoch=0, base_sequence=0))
    first = real.log.append_as_leader(memoryview(bytearray(content)), 0, START_MS)
    real.put((b"a", b"by another"))
    real.roll()
    real.clean()
    again = lost_snapshots(real)
    appended = again.log.append_as_leader(memoryview(bytearray(content)), 0, START_MS)
    assert appended.is_duplicate
    assert appended.first_offset == first.first_offset


def test_the_header_of_a_producer_that_is_no_longer_known_goes() -> None:
    real = Compacted()
    real.put((b"a", b"1"), producer=7)
    real.put((b"a", b"2"))
    real.roll()
    real.log.producers.remove_expired(START_MS, 10)
    real.log.producers.remove_expired(START_MS + 10, 10)
    real.clean()
    assert [batch.producer_id for batch in batches_in(real)] == [-1]


def test_the_marker_that_fences_a_producer_stays_whole() -> None:
    """Its epoch is all that is known of the producer: without it, a zombie of an older epoch would be let in."""
    real = Compacted()
    real.put((b"a", b"1"), producer=7, transactional=True)
    bumped = build_marker(committed=False, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=START_MS)
    real.log.append_as_leader(memoryview(bumped), 0, START_MS, Origin.COORDINATOR)
    real.log.set_high_watermark(real.log.log_end_offset)
    for _ in range(4):
        real.put((b"a", b"x"))
        real.roll()
        real.clean()
        real.now_ms += 2 * DAY_MS
    assert [batch.record_count for batch in batches_in(real) if batch.producer_id == 7] == [1]
    again = lost_snapshots(real)
    assert again.log.producers.producers[7].epoch == 1


# ------------------------------------------------------------------------------------------------------------- the job


def test_a_job_and_its_steps_come_back_as_they_were() -> None:
    real = Compacted()
    real.put((b"a", b"1"), producer=3, transactional=True)
    real.end(3, commit=False)
    real.put((b"a", b"1"), producer=4)
    real.roll()
    log = real.log
    job = job_for(log, cleanable_of(log, START_MS), real.cleaner._config, 2, START_MS, bytes(range(16)))
    job = replace(job, aborted_after=[AbortedTransaction(1, 2, 3, 4)], last_epochs={5: 6})
    assert CleaningJob.decode(job.encode()) == job
    for step in (Replacement(0, [0, 5], 100, 7, True), Cleaned(5, 1, 10, 20)):
        assert decode_line(encode_step(step)) == step


@given(st.integers(0, 2**32))
def test_the_files_are_the_same_without_a_compiler(seed: int) -> None:
    chance = random.Random(seed)
    real = Compacted()
    for number in range(40):
        pairs = [(chance.choice(KEYS), chance.choice([None, b"%d" % number])) for _ in range(chance.randint(1, 4))]
        real.put(*pairs, compression=codec(chance.randrange(5)))
    real.roll()
    job = job_for(real.log, cleanable_of(real.log, START_MS), real.cleaner._config, 1, START_MS, bytes(16))
    written = []
    for form in (offset_map.OffsetMap, PLAIN):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaning, "OffsetMap", form)
            steps = list(clean(job, real.disk))
        files = [name for name in real.disk.names("t-0") if name.endswith(names.CLEANED)]
        written.append((steps, [(name, real.disk.read(f"t-0/{name}")) for name in files]))
    assert written[0] == written[1]


def test_each_step_is_bounded() -> None:
    real = Compacted()
    for number in range(400):
        real.put((b"%d" % (number % 50), b"." * 50))
    real.roll()
    log = real.log
    config = real.cleaner._config
    job = replace(job_for(log, cleanable_of(log, START_MS), config, 1, START_MS, bytes(16)), io_buffer_bytes=2000)
    steps = [step for step in clean(job, real.disk) if isinstance(step, Worked)]
    assert len(steps) > 2 * log.size_bytes / 2000
    assert all(step.bytes_read <= 1000 + 200 for step in steps)
    assert sum(step.bytes_read for step in steps) >= log.size_bytes


def test_a_job_for_which_there_is_no_memory_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(cleaning, "OffsetMap", none_left)
    real = Compacted()
    real.put((b"a", b"1"))
    real.roll()
    real.clean()
    aside = real.cleaner.set_aside["t", 0]
    assert "lower log.cleaner.dedupe.buffer.size" in aside.reason
    assert aside.retry_ms is not None


def test_a_job_without_memory_for_a_key_says_what_to_do() -> None:
    real = Compacted(log_cleaner_dedupe_buffer_size=23)
    real.put((b"a", b"1"))
    real.roll()
    real.clean()
    assert "raise log.cleaner.dedupe.buffer.size" in real.cleaner.set_aside["t", 0].reason
