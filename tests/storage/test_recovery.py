"""Opening a log after an unclean stop: what is cut, what is never cut, and what is rebuilt (hazard 8)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage import lookup
from headrace.storage.log import Log
from headrace.storage.recovery import Saved
from headrace.storage.scan import LogDamaged
from headrace.testing.disk import FaultyDisk, Platter
from tests.storage.batches import START_MS, batch
from tests.storage.logs import SMALL, new_log, open_at, reopened, values_in

FIRST = "t-0/00000000000000000000.log"


def filled(count: int = 12, size: int = 100) -> Log:
    log = new_log()
    for number in range(count):
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        content = batch(b"%d" % number + b"v" * size, timestamps=[START_MS + number], key=b"k", **producer)
        log.append_as_leader(memoryview(content), number // 5, START_MS + number)
    return log


def platter(log: Log) -> Platter:
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    return disk.platter


def active_path(log: Log) -> str:
    return log.segments.active.path()


@given(st.integers(1, 5000))
def test_hazard_8_a_tail_torn_at_any_byte_is_cut_to_the_last_whole_batch(cut: int) -> None:
    log = filled()
    values = values_in(log)
    node = platter(log).node(active_path(log))
    base_offset = log.segments.active.base_offset
    del node.cached[len(node.cached) - cut % (len(node.cached) + 1) :]
    log = reopened(log, clean=False)
    assert values_in(log) == values[: log.log_end_offset]
    assert log.log_end_offset >= base_offset
    assert log.epochs.end_offset_for(log.epochs.latest, log.log_end_offset).end_offset == log.log_end_offset
    next_sequence = log.producers.producers[7].next_sequence
    assert next_sequence == log.log_end_offset, "producers know what is there, and no more"


def test_hazard_8_a_damaged_last_batch_is_the_tail_and_cut_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = filled()
    values = values_in(log)
    path = active_path(log)
    platter(log).flip_bit(path, log.segments.active.size_bytes - 10)
    with caplog.at_level(logging.WARNING):
        log = reopened(log, clean=False, recovery_point=0)
    assert values_in(log) == values[:-1]
    assert f"/disk/{path} is cut at byte" in caplog.text
    assert "fails its CRC32C" in caplog.text


@given(st.integers(0, 100_000), st.integers(0, 7), st.booleans())
def test_hazard_8_a_flipped_bit_with_sound_batches_behind_it_is_never_cut(where: int, bit: int, below: bool) -> None:
    log = filled(30)
    segments = [segment for segment in log.segments if not segment.is_active]
    segment = segments[where % len(segments)]
    position = where % segment.size_bytes
    first_batch_bytes = segments[0].size_bytes // 5
    if 12 <= position % first_batch_bytes < 16:
        return  # perhaps a leader epoch, which nothing can check
    path, size = segment.path(), segment.size_bytes
    values = values_in(log)
    platter(log).flip_bit(path, position, bit)
    content = bytes(platter(log).node(path).cached)
    recovery_point = log.log_end_offset if below else 0
    try:
        again = reopened(log, clean=False, recovery_point=recovery_point)
    except LogDamaged as damaged:
        assert damaged.path == f"/disk/{path}"
        assert damaged.position <= max(position, damaged.position)
        assert damaged.end <= size
        assert bytes(platter(log).node(path).cached) == content
    else:
        # Behind the recovery point nothing is looked at; a leader epoch, or a base offset at a segment's end, is no
        # damage that could be seen. Nothing was cut all the same.
        assert again.log_end_offset == len(values)
        assert len(platter(log).node(path).cached) == size


@pytest.mark.parametrize("bit", [8, 17, 25, 30])
@pytest.mark.parametrize("zeros", [0, 5000], ids=["", "preallocated"])
def test_hazard_8_a_last_batch_with_a_flipped_bit_in_its_base_offset_is_cut(
    bit: int, zeros: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The base offset is not under the CRC32C: the log would end far behind its end, and its next offsets be wrong."""
    log = filled()
    values = values_in(log)
    path = active_path(log)
    flip_base_offset(log, bit)
    platter(log).node(path).cached.extend(bytes(zeros))
    log = reopened(log, clean=False, recovery_point=0)
    assert log.log_end_offset == len(values) - 1
    assert values_in(log) == values[:-1]
    assert f"/disk/{path} is cut at byte" in caplog.text
    assert "one bit of the first is wrong" in caplog.text


def test_hazard_8_a_durable_last_batch_with_a_flipped_bit_in_its_base_offset_is_damage() -> None:
    log = filled()
    flip_base_offset(log, 20)
    with pytest.raises(LogDamaged, match="one bit of the first is wrong.*give up everything from offset 11 on"):
        reopened(log, clean=False, recovery_point=12)


@pytest.mark.parametrize("first", ["batch", "segment"])
@pytest.mark.parametrize("gap", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize("behind", [1, 2, 3])
def test_a_hole_that_a_leader_has_is_no_damage_to_a_follower_of_it(gap: int, first: str, behind: int) -> None:
    """A topic that was compacted once has holes, also where it is replicated anew, and is not compacted any more."""
    log = new_log()
    for offset in [0, 1, *range(2 + gap, 2 + gap + behind)]:
        content = batch(b"%d" % offset + b"v" * (1000 if first == "segment" else 10), base_offset=offset)
        log.append_as_follower(memoryview(content), 0, START_MS)
    values = values_in(log)
    assert values_in(reopened(log, clean=False, recovery_point=0)) == values


def test_a_hole_before_the_last_batch_of_a_compacted_topic_is_no_damage() -> None:
    log = new_log(SMALL.replace(cleanup_policy=("compact",)))
    for offset in (0, 1, 10):
        log.append_as_follower(memoryview(batch(b"%d" % offset, base_offset=offset)), 0, START_MS)
    assert reopened(log, clean=False, recovery_point=0).log_end_offset == 11


def flip_base_offset(log: Log, bit: int) -> None:
    """Of the last batch."""
    segment = log.segments.active
    found = lookup.locate(segment, log.log_end_offset - 1)
    assert found is not None
    platter(log).flip_bit(segment.path(), found.position + 7 - bit // 8, bit % 8)


@pytest.mark.parametrize("durable", [True, False])
def test_hazard_8_the_advice_for_damage_in_the_middle_says_what_is_given_up(
    durable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(30)
    values = values_in(log)
    second, third = log.segments[1], log.segments[2]
    platter(log).flip_bit(second.path(), second.size_bytes - 10)
    recovery_point = 30 if durable else 0
    saved: dict[str, Any] = {"clean": False, "recovery_point": recovery_point, "suspect_offset": 0}
    lost = third.base_offset - 1
    given_up = rf"offsets {lost} to {lost}, which readers" if durable else rf"everything from offset {lost} on"
    with pytest.raises(LogDamaged, match=f"else give up {given_up}.* by `truncate -s") as damaged:
        reopened(log, **saved)
    del platter(log).node(second.path()).cached[damaged.value.position :]
    log = reopened(log, **saved)
    assert values_in(log) == ([*values[:lost], *values[lost + 1 :]] if durable else values[:lost])
    assert (f"offsets {lost} to {lost} are not there, and readers pass over them" in caplog.text) == durable


def test_hazard_8_damage_below_the_recovery_point_is_no_tail_even_at_the_end() -> None:
    log = filled()
    log.flush(lambda error: None)
    path = active_path(log)
    platter(log).flip_bit(path, log.segments.active.size_bytes - 10)
    with pytest.raises(LogDamaged, match=f"/disk/{path} is damaged in bytes .* fails its CRC32C.*truncate -s"):
        reopened(log, clean=False, recovery_point=log.log_end_offset)


def test_hazard_8_a_segment_whose_end_was_lost_ends_the_log() -> None:
    """Its name and those after it were durable, its last bytes were not."""
    log = filled(30)
    values = values_in(log)
    second = log.segments[1]
    end = second.base_offset
    node = platter(log).node(second.path())
    del node.cached[len(node.cached) // 5 * 3 :]  # three of its five batches are left
    log = reopened(log, clean=False, recovery_point=0)
    assert log.log_end_offset == end + 3
    assert values_in(log) == values[: end + 3]
    log.append_as_leader(memoryview(batch(b"goes on")), 9, START_MS)
    log = reopened(log, clean=False, recovery_point=0)
    assert values_in(log) == [*values[: end + 3], (end + 3, b"goes on")]


def test_hazard_8_pages_lost_in_the_middle_of_what_was_not_synced_end_the_log() -> None:
    log = open_at(FaultyDisk(), SMALL.replace(segment_bytes=1 << 20))
    for number in range(40):
        log.append_as_leader(memoryview(batch(b"%d" % number + b"v" * 900)), 0, START_MS)
    values = values_in(log)
    platter(log).node(FIRST).cached[8192:12288] = bytes(4096)
    log = reopened(log, clean=False, recovery_point=0)
    assert 0 < log.log_end_offset < 12
    assert values_in(log) == values[: log.log_end_offset]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("harm", ["missing", "torn", "spoilt"])
def test_whatever_can_be_rebuilt_is_rebuilt_with_a_warning_that_names_it(
    suffix: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(30)
    values = values_in(log)
    producers = {key: producer.recent() for key, producer in log.producers}
    log.write_out()
    name = sorted(name for name in log.place.disk.names("t-0") if name.endswith(suffix))[-1]
    node = platter(log).node(f"t-0/{name}")
    if harm == "missing":
        platter(log).vanish(f"t-0/{name}")
    elif harm == "torn":
        del node.cached[-5:]
    else:
        node.cached[1] ^= 0xFF
    with caplog.at_level(logging.WARNING):
        log = reopened(log, clean=False, is_clean=True, recovery_point=30)
        assert values_in(log) == values
        assert log.by_timestamp(START_MS + 29) == (START_MS + 29, 29, 5)
        assert {key: producer.recent() for key, producer in log.producers} == producers
    assert f"/disk/t-0/{name}" in caplog.text


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("has_producers", [True, False])
def test_lost_snapshots_are_told_of_when_there_are_producers(
    is_clean: bool, has_producers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(30) if has_producers else new_log()
    if not has_producers:
        for _ in range(30):
            log.append_as_leader(memoryview(batch(b"v" * 100)), 0, START_MS)
    log.roll(START_MS)  # so that the last segment is empty
    producers = {key: producer.recent() for key, producer in log.producers}
    log.write_out()
    for name in log.place.disk.names("t-0"):
        if name.endswith(".snapshot"):
            platter(log).vanish(f"t-0/{name}")
    log = reopened(log, clean=False, is_clean=is_clean, recovery_point=30)
    assert {key: producer.recent() for key, producer in log.producers} == producers
    assert ("/disk/t-0/00000000000000000030.snapshot is missing" in caplog.text) == has_producers


@pytest.mark.parametrize("harm", ["missing", "torn", "spoilt"])
def test_leader_epochs_are_read_from_the_batches_when_their_file_is_damaged(
    harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(30)
    epochs = log.epochs.entries()
    log.write_out()
    node = platter(log).node("t-0/leader-epoch-checkpoint")
    if harm == "missing":
        platter(log).vanish("t-0/leader-epoch-checkpoint")
    elif harm == "torn":
        del node.cached[-5:]
    else:
        node.cached[0:1] = b"x"
    for is_clean in (True, False):
        with caplog.at_level(logging.WARNING):
            again = reopened(log, clean=False, is_clean=is_clean, recovery_point=30)
        assert again.epochs.entries() == epochs
        assert "/disk/t-0/leader-epoch-checkpoint" in caplog.text


def test_a_log_that_lost_all_its_data_goes_on_at_its_start() -> None:
    log = filled(30)
    log.set_high_watermark(30)
    log.delete_before(20)
    for segment in log.segments:
        platter(log).vanish(segment.path())
    log = reopened(log, clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    log = filled(30)
    log.set_high_watermark(30)
    log.delete_before(28)
    platter(log).node(log.segments[0].path()).cached.clear()
    log = reopened(log, clean=False, recovery_point=0)
    assert (log.log_start_offset, log.log_end_offset) == (28, 28)


@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_segment_that_is_missing_after_a_clean_stop_is_damage_and_its_indexes_stay(number: int) -> None:
    log = filled(30)
    log.write_out()
    path = log.segments[number].path()
    platter(log).vanish(path)
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    left = sorted(disk.names("t-0"))
    for _ in range(2):
        disk = disk.restart()
        with pytest.raises(LogDamaged, match=f"/disk/{path} is damaged .*the file is missing, and .*index was left"):
            open_at(disk, saved=Saved(is_clean=True, recovery_point=30))
        assert sorted(disk.names("t-0")) == left


def test_a_last_segment_that_was_emptied_after_a_clean_stop_ends_the_log_where_it_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = filled(30)
    values = values_in(log)
    log.write_out()
    last = log.segments.active
    platter(log).node(last.path()).cached.clear()
    log = reopened(log, clean=False, is_clean=True, recovery_point=30)
    assert log.log_end_offset == last.base_offset < 30
    assert values_in(log) == values[: last.base_offset]
    assert f"/disk/{last.path()} was emptied after a clean stop" in caplog.text
    assert log.producers.producers[7].next_sequence == last.base_offset


def test_an_index_of_no_segment_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    log = filled(30)
    disk = log.place.disk
    for name in ("00000000000000000999.index", "00000000000000000999.log.deleted", "leader-epoch-checkpoint.tmp"):
        disk.open(f"t-0/{name}", create=True).close()
    log = reopened(log)
    assert not any("999" in name or name.endswith(".tmp") for name in log.place.disk.names("t-0"))
    assert "00000000000000000999.index is an index of no segment" in caplog.text


def test_what_was_verified_is_reported_as_it_goes() -> None:
    log = filled(30)
    size = log.size_bytes
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    verified: list[int] = []
    open_at(disk.restart(), advanced=verified.append)
    assert sum(verified) == size
