"""A time index that can't be right is rebuilt before anybody goes by it: a lookup by time, or retention."""

from __future__ import annotations

import logging
import struct

import pytest

from headrace.storage.log import Log
from headrace.storage.scan import LogDamaged
from headrace.testing.disk import FaultyDisk
from tests.storage.batches import START_MS, batch
from tests.storage.logs import SMALL, new_log, reopened

HOUR_MS = 3_600_000
COUNT = 40


def filled(times: list[int] | None = None) -> Log:
    """A record for each time, in batches of their own, after a clean stop."""
    log = new_log(SMALL.replace(retention_ms=HOUR_MS))
    for time in [START_MS + number for number in range(COUNT)] if times is None else times:
        log.append_as_leader(memoryview(batch(b"v" * 100, timestamps=[time])), 3, START_MS)
    log.set_high_watermark(log.log_end_offset)
    log.write_out()
    return log


def contents(log: Log, suffix: str = ".timeindex") -> dict[str, bytearray]:
    """Of the files with a suffix, as they are, to be changed."""
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    paths = sorted(f"t-0/{name}" for name in disk.names("t-0") if name.endswith(suffix))
    return {path: disk.platter.node(path).cached for path in paths}


def after_clean_stop(log: Log) -> Log:
    return reopened(log, clean=False, is_clean=True, recovery_point=log.log_end_offset)


def spoil(content: bytearray, harm: str) -> None:
    if harm == "zeros":
        content[:] = bytes(len(content))
    elif harm == "one zero entry":
        content[:] = bytes(12)
    elif harm == "last entry zero":
        content[-12:] = bytes(12)
    elif harm == "emptied":
        content.clear()
    elif harm == "last entry cut":
        del content[-12:]
    else:
        del content[-5:]


HARMS = ["zeros", "one zero entry", "last entry zero", "emptied", "last entry cut", "torn"]


@pytest.mark.parametrize("harm", HARMS)
def test_retention_deletes_nothing_by_the_word_of_a_damaged_index(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    log = filled()
    files = contents(log)
    for content in files.values():
        spoil(content, harm)
    log = after_clean_stop(log)
    with caplog.at_level(logging.WARNING):
        assert log.retain(START_MS + HOUR_MS) == 0
        assert log.log_start_offset == 0
    assert next(iter(files)) in caplog.text
    assert log.retain(START_MS + COUNT + HOUR_MS) == len(files), "by their true age they go"


@pytest.mark.parametrize("harm", HARMS)
def test_lookups_by_time_find_a_damaged_index_out_and_name_it(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    log = filled()
    files = contents(log)
    assert len(files) > 3
    for content in files.values():
        spoil(content, harm)
    log = after_clean_stop(log)
    with caplog.at_level(logging.WARNING):
        for number in range(COUNT):
            assert log.by_timestamp(START_MS + number) == (START_MS + number, number, 3)
        assert log.by_timestamp(START_MS + COUNT) is None
        assert log.latest() == (START_MS + COUNT - 1, COUNT - 1, 3)
    assert all(path in caplog.text for path in files)
    caplog.clear()
    log = after_clean_stop(log)
    assert log.latest() == (START_MS + COUNT - 1, COUNT - 1, 3)
    assert not caplog.records, "it was mended for good"


def test_an_entry_that_only_its_own_batch_contradicts_is_found_before_a_deletion() -> None:
    # The newest record is in the middle of its segment: neither the first nor the last batches are as late.
    log = filled([START_MS + HOUR_MS * (number == 2) for number in range(20)])
    path, content = next(iter(contents(log).items()))
    timestamp, relative = struct.unpack(">qi", content[-12:])
    assert (path, timestamp, relative) == ("t-0/00000000000000000000.timeindex", START_MS + HOUR_MS, 2)
    content[-12:] = struct.pack(">qi", START_MS + 1, 2)
    log = after_clean_stop(log)
    assert log.retain(START_MS + HOUR_MS + 10) == 0
    assert log.retain(START_MS + 2 * HOUR_MS + 10) > 0


def test_an_empty_time_index_of_records_without_timestamps_is_no_damage(caplog: pytest.LogCaptureFixture) -> None:
    log = filled([-1] * 20)
    files = contents(log)
    assert not any(files.values())
    log = after_clean_stop(log)
    assert log.by_timestamp(0) is None
    assert log.latest() == (-1, 0, 3)
    assert not caplog.records


def test_zeros_in_the_place_of_no_timestamps_are_found_out(caplog: pytest.LogCaptureFixture) -> None:
    log = filled([-1] * 20)
    for content in contents(log).values():
        content[:] = bytes(12)
    log = after_clean_stop(log)
    assert log.latest() == (-1, 0, 3)
    assert "00000000000000000000.timeindex has another timestamp than its batch" in caplog.text


def test_sound_indexes_are_believed_and_opening_reads_no_batch(caplog: pytest.LogCaptureFixture) -> None:
    log = filled([START_MS + number * 7 % 30 for number in range(COUNT)])
    count = len(log.segments)
    log = after_clean_stop(log)
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    assert disk.open_files == 0
    assert log.retain(START_MS + 40 + HOUR_MS) == count
    assert not caplog.records


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("interval", [100, 500, 4096])
@pytest.mark.parametrize("is_appended_to", [False, True])
def test_lookups_by_time_are_right_after_a_rebuild_whatever_the_interval(
    suffix: str, interval: int, is_appended_to: bool
) -> None:
    log = new_log(SMALL.replace(segment_bytes=1 << 20, index_interval_bytes=500))
    for number in range(100):
        log.append_as_leader(memoryview(batch(b"v" * 200, timestamps=[START_MS + number])), 3, START_MS)
    log.write_out()
    for content in contents(log, suffix).values():
        del content[-1]
    log.configure(log.config.replace(index_interval_bytes=interval))
    log = after_clean_stop(log)
    if is_appended_to:  # which takes the indexes out of the cache
        log.append_as_leader(memoryview(batch(b"v" * 200, timestamps=[START_MS + 100])), 3, START_MS)
    for number in range(log.log_end_offset):
        assert log.by_timestamp(START_MS + number) == (START_MS + number, number, 3)


def test_a_rebuilt_index_has_the_interval_of_its_topic() -> None:
    log = filled()
    whole = {path: bytes(content) for path, content in contents(log, "index").items()}
    for content in contents(log).values():
        content.clear()
    log = after_clean_stop(log)
    assert log.latest() is not None
    assert {path: bytes(content) for path, content in contents(log, "index").items()} == whole


def test_no_index_is_made_of_the_sound_part_of_a_damaged_segment() -> None:
    log = filled()
    path, data = next(iter(contents(log, ".log").items()))
    data[len(data) // 2] ^= 1
    for content in contents(log).values():
        content.clear()
    before = {name: bytes(content) for name, content in contents(log, "index").items()}
    log = after_clean_stop(log)
    with pytest.raises(LogDamaged, match=f"{path} is damaged in bytes .* fails its CRC32C"):
        log.latest()
    assert log.retain(START_MS + 9 * HOUR_MS) == 0, "nobody can say how old it is"
    assert {name: bytes(content) for name, content in contents(log, "index").items()} == before
