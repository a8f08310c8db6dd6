"""The log of a partition, as those above it use it: leaders, followers, readers, coordinators."""

from __future__ import annotations

import zlib

import pytest

from headrace.config import CompressionType, LogConfig, TimestampType
from headrace.errors import Error, Refused
from headrace.protocol.batch import TimestampType as StampedBy
from headrace.protocol.batch import scan
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.compression import Compression
from headrace.protocol.control import build_marker
from headrace.storage.disk import DiskError, File
from headrace.storage.flush import DirectFlusher
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.producer_state import Origin
from headrace.storage.recovery import Saved
from headrace.testing.disk import Crash, FaultyDisk
from tests.storage.batches import START_MS, batch, run
from tests.storage.logs import SMALL, new_log, open_at, records_in, reopened, values_in


def append(log: Log, content: bytearray, **more: int) -> tuple[int, int]:
    appended = log.append_as_leader(memoryview(content), more.pop("epoch", 0), more.pop("now_ms", START_MS))
    assert not more
    return appended.first_offset, appended.last_offset


def refusal(log: Log, content: bytearray, origin: Origin = Origin.CLIENT) -> Error:
    before = values_in(log), log.size_bytes
    with pytest.raises(Refused) as refused:
        log.append_as_leader(memoryview(content), 0, START_MS, origin)
    assert (values_in(log), log.size_bytes) == before
    return refused.value.error


# ------------------------------------------------------------------------------------------------------------- leaders


def test_a_leader_gives_offsets_and_its_epoch_in_place() -> None:
    log = new_log()
    assert append(log, batch(b"a", b"b"), epoch=4) == (0, 1)
    assert append(log, batch(b"c"), epoch=5) == (2, 2)
    batches = list(scan(log.read(0, 1000, 3).take()))
    assert [(found.base_offset, found.partition_leader_epoch) for found in batches] == [(0, 4), (2, 5)]
    assert log.epochs.entries() == [(4, 0), (5, 2)]
    for found in batches:
        found.verify()


def test_several_batches_of_a_coordinator_are_one_write() -> None:
    log = new_log()
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    disk.trace = []
    appended = log.append_as_leader(memoryview(run(batch(b"a"), batch(b"b", b"c"))), 0, START_MS, Origin.COORDINATOR)
    assert (appended.first_offset, appended.last_offset) == (0, 2)
    assert [call for call in disk.trace if call.startswith("write")] == ["write t-0/00000000000000000000.log"]


def test_with_log_append_time_the_leader_stamps_the_batch() -> None:
    log = new_log(SMALL.replace(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    appended = log.append_as_leader(memoryview(batch(b"a", b"b", timestamps=[1, 2])), 0, START_MS + 7)
    assert appended.log_append_time == START_MS + 7
    found = next(scan(log.read(0, 1000, 2).take()))
    found.verify()
    assert found.timestamp_type is StampedBy.LOG_APPEND_TIME
    assert [record.timestamp for record in records_in(log)] == [START_MS + 7] * 2
    assert log.latest() == (START_MS + 7, 0, 0)


def test_with_create_time_an_append_has_no_time_of_its_own() -> None:
    assert new_log().append_as_leader(memoryview(batch(b"a")), 0, START_MS).log_append_time == -1


@pytest.mark.parametrize("kind", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.UNCOMPRESSED])
def test_a_topic_with_a_codec_of_its_own_recompresses(kind: CompressionType) -> None:
    log = new_log(SMALL.replace(compression_type=kind))
    values = [b"abc" * 50, b"def" * 50]
    append(log, batch(*values, compression=Compression.ZSTD))
    append(log, batch(*values))
    wanted = {"gzip": Compression.GZIP, "lz4": Compression.LZ4, "uncompressed": Compression.NONE}[kind.value]
    assert {found.compression for found in scan(log.read(0, 5000, 4).take())} == {wanted}
    assert [value for _, value in values_in(log)] == values * 2


def test_what_breaks_a_rule_of_the_topic_is_refused_with_kafkas_error() -> None:
    small = new_log(SMALL.replace(max_message_bytes=200))
    assert refusal(small, batch(b"x" * 200)) is Error.MESSAGE_TOO_LARGE
    assert refusal(new_log(), batch(b"x" * 1000)) is Error.RECORD_LIST_TOO_LARGE
    compacted = new_log(SMALL.replace(cleanup_policy=("compact",)))
    assert refusal(compacted, batch(b"x", key=None)) is Error.INVALID_RECORD
    assert refusal(new_log(), batch(b"x", timestamps=[START_MS + 3_600_001])) is Error.INVALID_TIMESTAMP
    gap = build([(b"k", b"v", (), START_MS)] * 3, offset_deltas=[0, 1, 5])
    gap[23:27] = (2).to_bytes(4)  # its header says that there is none
    gap[17:21] = crc32c(gap[21:]).to_bytes(4)
    assert refusal(compacted, gap) is Error.INVALID_RECORD
    strict = new_log(SMALL.replace(message_timestamp_before_max_ms=1000))
    assert refusal(strict, batch(b"a", b"b", timestamps=[START_MS, START_MS - 1001])) is Error.INVALID_TIMESTAMP
    append(strict, batch(b"a", b"b", timestamps=[START_MS, START_MS - 1000]))


RECORD = bytes([0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([0])
UNREADABLE = {
    "a length that is too great": bytes([2 * len(RECORD) + 2]) + RECORD,
    "a length that is too small": bytes([2 * len(RECORD) - 2]) + RECORD,
    "a length below 0": bytes([1]) + RECORD,
    "a key that is too long": bytes([2 * len(RECORD), 0, 0, 0, 90]) + RECORD[4:],
    "a key of length -2": bytes([2 * len(RECORD), 0, 0, 0, 3]) + RECORD[4:],
    "headers below 0": bytes([2 * len(RECORD)]) + RECORD[:-1] + bytes([1]),
    "headers that are not there": bytes([2 * len(RECORD)]) + RECORD[:-1] + bytes([6]),
    "a header without a name": bytes([2 * len(RECORD) + 4]) + RECORD[:-1] + bytes([2, 1, 1]),
    "a byte after the record": bytes([2 * len(RECORD)]) + RECORD + bytes(1),
    "an offset of ten bytes": bytes([2 * len(RECORD) + 18, 0, 0]) + b"\x80" * 9 + bytes(1) + RECORD[3:],
}
OPENED = {
    "compacted": SMALL.replace(cleanup_policy=("compact",)),
    "old timestamps": SMALL.replace(message_timestamp_before_max_ms=1000),
    "recompressed": SMALL.replace(compression_type=CompressionType.LZ4),
}


def batch_around(section: bytes, codec: int = 0) -> bytearray:
    """A batch of one record, or of what is said to be one, with a header and a checksum that are right."""
    content = bytearray(build([(b"k", b"v", (), START_MS)])[:61]) + section
    content[8:12] = (len(content) - 12).to_bytes(4)
    content[22] = codec
    content[17:21] = crc32c(content[21:]).to_bytes(4)
    return content


@pytest.mark.parametrize("topic", OPENED)
def test_what_can_not_be_read_inside_of_a_batch_is_refused_for_good(topic: str) -> None:
    # CORRUPT_MESSAGE would be tried again until the producer's delivery.timeout.ms is over.
    log = new_log(OPENED[topic])
    append(log, batch_around(bytes([2 * len(RECORD)]) + RECORD))
    for name, section in UNREADABLE.items():
        assert refusal(log, batch_around(section)) is Error.INVALID_RECORD, name
        assert refusal(log, batch_around(bytes(zlib.compress(section, wbits=31)), 1)) is Error.INVALID_RECORD, name
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.ZSTD):
        assert refusal(log, batch_around(b"can't be decompressed", codec)) is Error.INVALID_RECORD
    small = new_log(OPENED[topic], options=LogOptions(decompressed_bytes_max=100))
    assert refusal(small, batch(bytes(1000), compression=Compression.GZIP)) is Error.INVALID_RECORD
    spoilt = batch(b"abc", compression=Compression.GZIP)
    spoilt[-3] ^= 1
    assert refusal(log, spoilt) is Error.CORRUPT_MESSAGE


def test_what_is_no_sound_batch_is_refused() -> None:
    log = new_log()
    append(log, batch(b"there"))
    spoilt = batch(b"abc")
    spoilt[-3] ^= 1
    assert refusal(log, spoilt) is Error.CORRUPT_MESSAGE
    assert refusal(log, batch(b"abc")[:-1]) is Error.INVALID_RECORD
    assert refusal(log, run(batch(b"a"), batch(b"b"))) is Error.INVALID_RECORD
    assert refusal(log, bytearray()) is Error.INVALID_RECORD
    assert refusal(log, bytearray(), Origin.COORDINATOR) is Error.INVALID_RECORD
    assert refusal(log, run(batch(b"a"), spoilt), Origin.COORDINATOR) is Error.CORRUPT_MESSAGE
    marker = build_marker(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=START_MS)
    assert refusal(log, marker) is Error.INVALID_RECORD


# ------------------------------------------------------------------------------------------------ idempotence, hazard 7


def produce(log: Log, sequence: int, value: bytes = b"v", *, transactional: bool = False) -> tuple[int, bool]:
    content = batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=transactional)
    appended = log.append_as_leader(memoryview(content), 0, START_MS)
    return appended.first_offset, appended.is_duplicate


@pytest.mark.parametrize("between", ["nothing", "clean", "crash", "rolled", "snapshots lost", "truncated"])
def test_hazard_7_a_retry_is_recognised_whatever_happened_in_between(between: str) -> None:
    log = new_log()
    for sequence in range(8):
        assert produce(log, sequence, b"v" * 60) == (sequence, False)
    match between:
        case "clean":
            log = reopened(log)
        case "crash":
            log = reopened(log, clean=False)
        case "rolled":
            log.roll(START_MS)
            log = reopened(log, clean=False, recovery_point=log.log_end_offset)
        case "snapshots lost":
            disk = log.place.disk
            assert isinstance(disk, FaultyDisk)
            for name in disk.names("t-0"):
                if name.endswith(".snapshot"):
                    disk.platter.vanish(f"t-0/{name}")
            log = reopened(log, clean=False)
        case "truncated":
            assert produce(log, 8) == (8, False)
            log.truncate_to(8, START_MS)
    for sequence in range(3, 8):
        assert produce(log, sequence, b"v" * 60) == (sequence, True)
    assert values_in(log) == [(sequence, b"v" * 60) for sequence in range(8)]
    assert produce(log, 8) == (8, False)


def test_hazard_7_what_a_truncation_cut_may_be_sent_again() -> None:
    log = new_log()
    for sequence in range(6):
        produce(log, sequence)
    log.truncate_to(3, START_MS)
    assert produce(log, 3) == (3, False)
    with pytest.raises(Refused) as refused:
        produce(log, 5)
    assert refused.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_hazard_7_producers_of_deleted_records_stay_known() -> None:
    log = new_log()
    for sequence in range(30):
        produce(log, sequence, b"v" * 60)
    log.set_high_watermark(30)
    log.configure(SMALL.replace(retention_bytes=0))
    log.retain(START_MS)
    assert log.log_start_offset == 30
    log = reopened(log, clean=False, recovery_point=30)
    assert produce(log, 29, b"v" * 60) == (29, True)
    assert produce(log, 30) == (30, False)


# ------------------------------------------------------------------------------------------------------- transactions


def end(log: Log, *, committed: bool) -> None:
    marker = build_marker(
        committed=committed, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=START_MS
    )
    log.append_as_leader(memoryview(marker), 0, START_MS, Origin.COORDINATOR)


def test_the_last_stable_offset_waits_for_the_end_of_the_oldest_transaction() -> None:
    log = new_log()
    append(log, batch(b"before"))
    produce(log, 0, transactional=True)
    append(log, batch(b"after"))
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 1
    end(log, committed=True)
    assert log.last_stable_offset == 1, "the marker is not below the high watermark"
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 4


def test_aborted_transactions_are_found_across_segments() -> None:
    log = new_log(LogConfig(segment_bytes=300, index_interval_bytes=100))
    sequence = 0
    aborted = []
    for number in range(12):
        first = log.log_end_offset
        for _ in range(3):
            produce(log, sequence, transactional=True)
            sequence += 1
        if number % 3 == 0:
            aborted.append((7, first, log.log_end_offset, log.log_end_offset + 1))
        end(log, committed=number % 3 != 0)
    assert len(log.segments) > 10
    for clean in (None, True, False):
        if clean is not None:
            log = reopened(log, clean=clean)
        assert log.aborted_in(0, log.log_end_offset) == aborted
        assert log.aborted_in(1, 2) == aborted[:1], "its marker comes later, and it reaches back"
        assert log.aborted_in(4, 12) == []
        assert log.aborted_in(12, 13) == aborted[1:2]


def test_a_damaged_transaction_index_is_rebuilt_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = new_log()
    for sequence in range(12):
        produce(log, sequence, b"v" * 60, transactional=True)
        if sequence % 2:
            end(log, committed=False)
    aborted = log.aborted_in(0, log.log_end_offset)
    assert len(aborted) == 6
    log = reopened(log)
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    spoilt = [name for name in disk.names("t-0") if name.endswith(".txnindex")]
    for name in spoilt:
        del disk.platter.node(f"t-0/{name}").cached[-1]
    log = reopened(log, clean=False, is_clean=True)
    assert log.aborted_in(0, log.log_end_offset) == aborted
    assert all(f"/disk/t-0/{name} has" in caplog.text for name in spoilt)


@pytest.mark.parametrize("then", ["read", "appended to", "truncated"])
@pytest.mark.parametrize("left_bytes", [0, 33])
def test_an_emptied_or_cut_transaction_index_is_rebuilt_whoever_asks_first(
    then: str, left_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log()
    for sequence in range(12):
        produce(log, sequence, b"v" * 60, transactional=True)
        if sequence % 2:
            end(log, committed=False)
    aborted = log.aborted_in(0, log.log_end_offset)
    log = reopened(log)
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    spoilt = [name for name in disk.names("t-0") if name.endswith(".txnindex")]
    for name in spoilt:
        del disk.platter.node(f"t-0/{name}").cached[left_bytes:]
    log = reopened(log, clean=False, is_clean=True)
    if then == "appended to":
        produce(log, 12)
    elif then == "truncated":
        log.truncate_to(log.log_end_offset - 1, START_MS)
        aborted.pop()
    assert log.aborted_in(0, log.log_end_offset) == aborted
    assert all(f"/disk/t-0/{name} " in caplog.text for name in spoilt)


def test_no_transaction_index_stays_where_nothing_is_aborted_any_more(caplog: pytest.LogCaptureFixture) -> None:
    log = new_log()
    produce(log, 0, transactional=True)
    end(log, committed=False)
    log = reopened(log)
    log.truncate_to(1, START_MS)
    log = reopened(log)
    assert not [name for name in log.place.disk.names("t-0") if name.endswith(".txnindex")]
    assert log.aborted_in(0, 1) == []
    assert not caplog.records


# ----------------------------------------------------------------------------------------------------------- followers


def test_a_follower_keeps_offsets_epochs_and_gaps() -> None:
    log = new_log()
    content = run(
        batch(b"a", base_offset=5, partition_leader_epoch=1),
        batch(b"b", b"c", base_offset=9, partition_leader_epoch=2),
        batch(b"cut", base_offset=11, partition_leader_epoch=2)[:-5],
    )
    appended = log.append_as_follower(memoryview(content), 2, START_MS)
    assert appended is not None
    assert (appended.first_offset, appended.last_offset) == (5, 10)
    assert values_in(log) == [(5, b"a"), (9, b"b"), (10, b"c")]
    assert log.epochs.entries() == [(1, 5), (2, 9)]
    assert log.log_end_offset == 11


def test_a_follower_takes_nothing_of_a_later_epoch_than_it_follows() -> None:
    log = new_log()
    content = run(
        batch(b"a", base_offset=0, partition_leader_epoch=1), batch(b"b", base_offset=1, partition_leader_epoch=3)
    )
    log.append_as_follower(memoryview(content), 2, START_MS)
    assert values_in(log) == [(0, b"a")]
    assert log.append_as_follower(memoryview(content)[:40], 2, START_MS) is None


def test_a_follower_refuses_offsets_that_go_back() -> None:
    log = new_log()
    log.append_as_follower(memoryview(batch(b"a", base_offset=4)), 2, START_MS)
    with pytest.raises(Refused, match="sent offsets 4 to 4, and 5 is next"):
        log.append_as_follower(memoryview(batch(b"b", base_offset=4)), 2, START_MS)


def test_a_follower_takes_more_at_once_than_a_segment_holds() -> None:
    log = new_log()
    content = run(*(batch(b"v" * 200, base_offset=number) for number in range(20)))
    log.append_as_follower(memoryview(content), 0, START_MS)
    assert [offset for offset, _ in values_in(log)] == list(range(20))
    assert len(log.segments) > 4
    assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)


# -------------------------------------------------------------------------------------------------------------- rolling


def test_a_segment_is_closed_by_size_by_time_and_by_a_full_index() -> None:
    by_size = new_log(SMALL.replace(segment_ms=10**12))
    by_time = new_log(SMALL.replace(segment_bytes=10**6, segment_ms=100))
    by_index = new_log(SMALL.replace(segment_bytes=10**6, index_interval_bytes=10, segment_index_bytes=40))
    for number in range(12):
        for log in (by_size, by_time, by_index):
            append(log, batch(b"v" * 100, timestamps=[START_MS + number * 40]), now_ms=START_MS + number * 40)
    assert [segment.base_offset for segment in by_time.segments] == [0, 3, 6, 9]
    assert [segment.base_offset for segment in by_size.segments] == [0, 5, 10]
    assert [segment.base_offset for segment in by_index.segments] == [0, 3, 6, 9], "two entries and the last one"


def test_a_roll_by_time_is_jittered_so_that_partitions_do_not_roll_together() -> None:
    jitters: list[int] = []

    def jitter_ms(most: int) -> int:
        jitters.append(most)
        return 60

    log = new_log(
        SMALL.replace(segment_bytes=10**6, segment_ms=100, segment_jitter_ms=70),
        options=LogOptions(jitter_ms=jitter_ms),
    )
    for number in range(4):
        append(log, batch(b"v", timestamps=[START_MS + number * 30]), now_ms=START_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert set(jitters) == {70}


def test_without_timestamps_a_roll_by_time_counts_from_the_creation() -> None:
    log = new_log(SMALL.replace(segment_bytes=10**6, segment_ms=100), now_ms=START_MS)
    for now_ms in (START_MS, START_MS + 100, START_MS + 101):
        append(log, batch(b"v", timestamps=[-1]), now_ms=now_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_time_goes_on_counting_from_the_first_batch_after_a_restart() -> None:
    log = new_log(SMALL.replace(segment_bytes=10**6, segment_ms=100))
    append(log, batch(b"v", timestamps=[START_MS]))
    log = reopened(log)
    append(log, batch(b"v", timestamps=[START_MS + 101]))
    assert len(log.segments) == 2


# -------------------------------------------------------------------------------------------------------------- reading


def test_a_read_gives_pieces_of_files_over_segments_and_at_least_one_batch() -> None:
    log = new_log()
    for number in range(12):
        append(log, batch(b"%d" % number + b"v" * 150))
    fetched = log.read(1, 10_000, 12)
    assert len(fetched.pieces) == len(log.segments)
    assert fetched.size_bytes == sum(piece.size_bytes for piece in fetched.pieces)
    assert [found.base_offset for found in scan(fetched.take())] == list(range(1, 12))
    one = log.read(3, 1, 12)
    assert [found.base_offset for found in scan(one.take())] == [3]
    none = log.read(3, 1, 12, min_one_batch=False)
    assert none.size_bytes == 1
    none.release()


def test_a_read_stops_before_the_offset_that_bounds_it() -> None:
    log = new_log()
    for number in range(12):
        append(log, batch(b"a%d" % number, b"b%d" % number))
    for end_offset in range(0, 24, 2):
        assert [offset for offset, _ in values_in(log, 0, end_offset)] == list(range(end_offset))
    assert log.read(4, 1000, 4).pieces == []
    assert log.read(6, 1000, 4).pieces == [], "the high watermark of a new leader may be below what a reader has"
    assert [found.base_offset for found in scan(log.read(0, 1000, 5).take())] == [0, 2], "a batch is below it or not"


@pytest.mark.parametrize("offset", [-1, 2, 13, 10**15])
def test_an_offset_that_is_not_there_is_out_of_range(offset: int) -> None:
    log = new_log()
    for _ in range(12):
        append(log, batch(b"v"))
    log.set_high_watermark(12)
    log.delete_before(3)
    with pytest.raises(Refused, match=r"t-0 has offsets 3 to 12, and") as refused:
        log.read(offset, 1000, 12)
    assert refused.value.error is Error.OFFSET_OUT_OF_RANGE
    assert log.read(12, 1000, 12).size_bytes == 0


@pytest.mark.parametrize("what", ["retained away", "truncated", "closed by others", "folder renamed"])
def test_a_reader_in_the_middle_keeps_its_file(what: str) -> None:
    log = new_log()
    for number in range(12):
        append(log, batch(b"%d" % number + b"v" * 150))
    fetched = log.read(0, 10_000, 12)
    match what:
        case "retained away":
            log.set_high_watermark(12)
            log.configure(SMALL.replace(retention_bytes=0))
            log.retain(START_MS)
            assert log.sweep() > 0
        case "truncated":
            log.truncate_fully(50, START_MS)
            log.sweep()
        case "closed by others":
            for segment in log.segments:
                segment.close_file()
        case "folder renamed":
            log.place.disk.rename("t-0", "t-0.gone")
            log.place.folder = "t-0.gone"
            log.close()
    assert [found.base_offset for found in scan(fetched.take())] == list(range(12))
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    log.close()
    assert disk.open_files == 0


def test_lookups_do_not_read_more_when_more_is_stored() -> None:
    """The cost of a lookup follows the interval of the index, not the log."""
    reads = []
    for count in (200, 1600):
        log = new_log(LogConfig(segment_bytes=20_000, index_interval_bytes=1000))
        for number in range(count):
            append(log, batch(b"v" * 60, timestamps=[START_MS + number]), now_ms=START_MS + number)
        log.by_timestamp(START_MS)  # loads what is kept
        for segment in log.segments:
            assert segment.offset_index is not None
            assert segment.time_index is not None
        disk = log.place.disk
        assert isinstance(disk, FaultyDisk)
        disk.trace = []
        for number in range(0, count, count // 20):
            log.read(number, 1000, number + 1).release()
            assert log.by_timestamp(START_MS + number) == (START_MS + number, number, 0)
        reads.append(sum(call.startswith("read") for call in disk.trace) / 20)
    assert reads[1] <= reads[0] + 0.5


# ------------------------------------------------------------------------------------------------------------- flushing


def test_a_flush_is_due_by_the_number_of_records_or_by_time() -> None:
    log = new_log(SMALL.replace(flush_messages=3, flush_ms=100))
    append(log, batch(b"a", b"b"))
    assert not log.is_flush_due(50)
    assert log.is_flush_due(100)
    append(log, batch(b"c"))
    assert log.is_flush_due(0)
    log.flush(lambda error: None)
    assert not log.is_flush_due(1_000)
    assert log.flushed_offset == 3


def test_a_flush_that_a_truncation_overtakes_promises_nothing_of_what_comes_after() -> None:
    class Late(DirectFlusher):
        """Says later what it synced."""

        def __init__(self, disk: FaultyDisk) -> None:
            super().__init__(disk)
            self.waiting: list[object] = []

        def sync(self, file: File, waiting: object) -> None:
            file.datasync()
            self.waiting.append(waiting)

    disk = FaultyDisk()
    flusher = Late(disk)
    log = open_at(disk, flusher=flusher)
    for value in (b"a", b"b", b"c"):
        append(log, batch(value))
    told: list[DiskError | None] = []
    log.flush(told.append)
    log.truncate_to(1, START_MS)
    append(log, batch(b"other"))
    for waiting in flusher.waiting:
        waiting(None)  # type: ignore[operator]
    assert told == [None]
    assert log.flushed_offset == 1


def test_a_write_that_fails_for_another_reason_than_room_takes_the_log_offline() -> None:
    log = new_log()
    append(log, batch(b"there"))
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    disk.faults.errors_at_calls[disk.calls + 1] = DiskError
    with pytest.raises(Refused, match="could not be read or written"):
        append(log, batch(b"fails"))
    assert log.offline is not None
    assert refusal(log, batch(b"more")) is Error.KAFKA_STORAGE_ERROR
    assert values_in(log) == [(0, b"there")], "it still reads"


def test_a_roll_that_fails_on_a_full_disk_leaves_the_log_as_it_was() -> None:
    log = new_log()
    while log.segments.active.size_bytes < 800:
        append(log, batch(b"v" * 100))
    values = values_in(log)
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    for room in (0, 10, 40, 60):
        disk.faults.capacity_bytes = disk.platter.used_bytes() + room
        assert refusal(log, batch(b"v" * 100)) is Error.KAFKA_STORAGE_ERROR
        assert log.offline is None
    disk.faults.capacity_bytes = 1 << 30
    append(log, batch(b"v" * 100))
    assert len(log.segments) == 2
    log = reopened(log, clean=False)
    assert values_in(log) == [*values, (len(values), b"v" * 100)]


def test_on_a_full_disk_all_that_is_past_its_time_goes_but_the_active_segment() -> None:
    """The next one has no room before that."""
    log = new_log()
    while len(log.segments) < 4:
        append(log, batch(b"v" * 100))
    end = log.log_end_offset
    log.set_high_watermark(end)
    disk, later_ms = log.place.disk, START_MS + 30 * 24 * 3600 * 1000
    assert isinstance(disk, FaultyDisk)
    disk.faults.capacity_bytes = disk.platter.used_bytes()
    assert log.retain(later_ms) == 3
    log.sweep()
    assert log.retain(later_ms) == 1, "there is room now"
    assert (log.log_start_offset, log.log_end_offset, log.offline) == (end, end, None)


def test_the_batch_of_a_buffer_that_can_not_be_written_is_not_taken() -> None:
    with pytest.raises((TypeError, ValueError)):
        new_log().append_as_leader(memoryview(bytes(batch(b"v"))), 0, START_MS)


@pytest.mark.parametrize("power_lost", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize("offset", [5, 1000])
def test_a_crash_while_all_is_dropped_leaves_the_old_log_or_its_new_start(offset: int, power_lost: bool) -> None:
    seen = set()
    for calls in range(1, 200):
        log = new_log()
        for _ in range(30):
            log.append_as_leader(memoryview(batch(b"v" * 100)), 0, START_MS)
        log.flush(lambda error: None)
        log.set_high_watermark(30)
        log.delete_before(5)
        disk = log.place.disk
        assert isinstance(disk, FaultyDisk)
        disk.faults.crash_at_call = disk.calls + calls
        try:
            log.truncate_fully(offset, START_MS)
        except Crash:
            again = open_at(disk.restart(power_lost=power_lost), saved=Saved(False, 30, 2, 30))
            seen.add((again.log_start_offset, again.log_end_offset))
        else:
            break
    assert calls > 20
    assert (2, 30) in seen
    assert (offset, offset) in seen
    # Of the old log a shorter one may be left; an empty one only begins where the new one does.
    assert all(start == 2 < end <= 30 or start == end == offset for start, end in seen), seen
