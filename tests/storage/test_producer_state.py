"""Producer state: Kafka's rules for sequences, epochs and markers, snapshots, and a model that remembers everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Error, Refused
from headrace.protocol.batch import Batch, scan
from headrace.protocol.batch_builder import build, empty
from headrace.protocol.control import build_marker
from headrace.storage.producer_snapshot import SnapshotDamaged, decode_snapshot, encode_snapshot
from headrace.storage.producer_state import AppendedBatch, CompletedTransaction, Origin, ProducerState
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex

KAFKA = Path(__file__).parent.parent / "fixtures" / "kafka"
SEQUENCE_MAX = 2**31 - 1


class Log:
    """The least that producer state needs around it: offsets, and batches to replay."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.batches: list[Batch] = []

    @property
    def end(self) -> int:
        return self.state.end_offset

    def data(
        self,
        sequence: int,
        count: int = 1,
        *,
        producer: int = 1,
        epoch: int = 0,
        transactional: bool = False,
        origin: Origin = Origin.CLIENT,
        timestamp_ms: int = 1000,
    ) -> AppendedBatch | CompletedTransaction | None:
        content = build(
            [(None, b"", (), timestamp_ms)] * count,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        return self.append(content, origin)

    def marker(
        self, *, committed: bool = True, producer: int = 1, epoch: int = 0, coordinator: int = 0, version: int = 0
    ) -> AppendedBatch | CompletedTransaction | None:
        content = build_marker(
            committed=committed,
            producer_id=producer,
            producer_epoch=epoch,
            coordinator_epoch=coordinator,
            timestamp_ms=1000,
        )
        return self.append(content, Origin.COORDINATOR, version)

    def append(
        self, content: bytearray, origin: Origin, version: int = 0
    ) -> AppendedBatch | CompletedTransaction | None:
        batch = Batch(memoryview(content))
        if duplicate := self.state.check(batch, origin, version):
            return duplicate
        batch.assign(self.end, 0)
        self.batches.append(batch)
        self.state.end_offset = batch.next_offset
        return self.state.apply(batch)

    def restart(self) -> None:
        """A clean stop and a start: all that is left is the snapshot."""
        self.state = decode_snapshot(encode_snapshot(self.state), "x.snapshot", self.end)


def refused(error: Error) -> pytest.RaisesExc[Refused]:
    return pytest.raises(Refused, check=lambda raised: raised.error is error)


# Sequences


def test_batches_in_sequence_are_taken() -> None:
    log = Log()
    for sequence, count in ((0, 3), (3, 1), (4, 10), (14, 1)):
        assert log.data(sequence, count) is None
    assert log.end == 15


def test_a_gap_is_out_of_order() -> None:
    log = Log()
    log.data(0, 3)
    with refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.data(4)
    assert log.data(3) is None


def test_any_of_the_last_five_batches_sent_again_is_answered_with_where_it_is() -> None:
    log = Log()
    for number in range(7):
        log.data(number * 10, 10, timestamp_ms=1000 + number)
    for number in range(2, 7):
        assert log.data(number * 10, 10) == (number * 10, number * 10 + 9, number * 10, number * 10 + 9, 1000 + number)
    for number in range(2):
        with refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER):
            log.data(number * 10, 10)
    assert log.end == 70


def test_a_batch_that_overlaps_an_earlier_one_but_is_another_is_out_of_order() -> None:
    log = Log()
    log.data(0, 10)
    log.data(10, 10)
    for sequence, count in ((0, 5), (5, 5), (0, 20), (10, 11), (19, 1)):
        with refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER):
            log.data(sequence, count)


def test_a_producer_of_which_nothing_is_known_may_begin_anywhere() -> None:
    """Its records may have expired. Kafka 4 does not say UNKNOWN_PRODUCER_ID."""
    log = Log()
    assert log.data(77, 3) is None
    assert log.data(80) is None


def test_sequences_go_from_the_largest_to_zero() -> None:
    log = Log()
    log.data(SEQUENCE_MAX - 1, 2)
    assert log.data(0, 2) is None
    assert log.data(SEQUENCE_MAX - 1, 2) == (SEQUENCE_MAX - 1, SEQUENCE_MAX, 0, 1, 1000)


def test_a_batch_across_the_wrap_around_is_recognised_again() -> None:
    log = Log()
    log.data(SEQUENCE_MAX - 1, 5)
    assert log.data(SEQUENCE_MAX - 1, 5) == (SEQUENCE_MAX - 1, 2, 0, 4, 1000)
    assert log.data(3) is None


def test_a_batch_of_a_producer_without_idempotence_is_none_of_our_business() -> None:
    state = ProducerState()
    batch = Batch(memoryview(build([(None, b"", (), 1)])))
    assert state.check_all([batch, batch], Origin.CLIENT) is None
    assert state.check_all([batch], Origin.CLIENT) is None
    assert len(state) == 0


# Epochs


def test_a_new_epoch_begins_at_sequence_zero() -> None:
    log = Log()
    log.data(0, 3)
    with refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.data(3, epoch=1)
    assert log.data(0, 3, epoch=1) is None, "and is no duplicate of the old epoch's"
    assert log.end == 6


def test_an_old_epoch_is_fenced() -> None:
    log = Log()
    log.data(0, epoch=1)
    with refused(Error.INVALID_PRODUCER_EPOCH):
        log.data(0, epoch=0)
    with refused(Error.INVALID_PRODUCER_EPOCH):
        log.data(-1, epoch=0, origin=Origin.COORDINATOR)


def test_a_coordinator_is_checked_for_its_epoch_only_and_a_follower_for_nothing() -> None:
    log = Log()
    log.data(0, epoch=1)
    assert log.data(-1, 2, epoch=1, origin=Origin.COORDINATOR) is None
    assert log.data(50, epoch=0, origin=Origin.REPLICATION) is None


# Batches that are written together


def test_batches_written_together_are_checked_one_after_another_and_leave_no_trace() -> None:
    log = Log()
    log.data(0)

    def batches(*sequences: int) -> list[Batch]:
        return [
            Batch(memoryview(build([(None, b"", (), 1)], producer_id=1, producer_epoch=0, base_sequence=sequence)))
            for sequence in sequences
        ]

    before = encode_snapshot(log.state)
    assert log.state.check_all(batches(1, 2, 3), Origin.CLIENT) is None
    with refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.state.check_all(batches(1, 3), Origin.CLIENT)
    assert log.state.check_all(batches(1, 0), Origin.CLIENT) == (0, 0, 0, 0, 1000)
    assert encode_snapshot(log.state) == before


# Transactions


def test_the_last_stable_offset_waits_for_the_marker_and_the_high_watermark() -> None:
    log = Log()
    log.data(0, 5, producer=9)
    log.data(0, 5, transactional=True)
    log.data(5, 5, transactional=True)
    assert log.state.last_stable_offset(high_watermark=15) == 5
    assert log.state.last_stable_offset(high_watermark=3) == 3
    assert log.marker() == CompletedTransaction(1, 5, 15, last_stable_offset=16, is_aborted=False)
    assert log.state.last_stable_offset(high_watermark=15) == 5, "the marker is not replicated yet"
    log.state.advance_high_watermark(15)
    assert log.state.last_stable_offset(high_watermark=15) == 5
    log.state.advance_high_watermark(16)
    assert log.state.last_stable_offset(high_watermark=16) == 16


def test_an_open_transaction_of_another_producer_holds_the_last_stable_offset() -> None:
    log = Log()
    log.data(0, 2, producer=1, transactional=True)
    log.data(0, 2, producer=2, transactional=True)
    log.data(2, 2, producer=1, transactional=True)
    assert log.marker(producer=2, committed=False) == CompletedTransaction(2, 2, 6, 0, is_aborted=True)
    log.state.advance_high_watermark(7)
    assert log.state.last_stable_offset(7) == 0
    assert log.marker(producer=1) == CompletedTransaction(1, 0, 7, 8, is_aborted=False)
    log.state.advance_high_watermark(8)
    assert log.state.last_stable_offset(8) == 8


def test_a_marker_of_a_transaction_without_records_here_changes_nothing_but_the_epoch() -> None:
    log = Log()
    assert log.marker(epoch=3) is None
    assert log.state.last_stable_offset(1) == 1
    with refused(Error.INVALID_PRODUCER_EPOCH):
        log.data(0, epoch=2)
    with refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.data(5, epoch=3)
    assert log.data(0, epoch=3) is None


def test_a_batch_outside_the_transaction_is_refused_while_it_is_open() -> None:
    log = Log()
    log.data(0, transactional=True)
    with refused(Error.INVALID_TXN_STATE):
        log.data(1)
    log.marker()
    assert log.data(1) is None, "the sequence goes on after a marker of the same epoch"


def test_a_marker_is_fenced_by_the_producers_epoch_and_by_its_coordinators() -> None:
    log = Log()
    log.data(0, epoch=2, transactional=True)
    with refused(Error.INVALID_PRODUCER_EPOCH):
        log.marker(epoch=1)
    log.marker(epoch=2, coordinator=7)
    with refused(Error.TRANSACTION_COORDINATOR_FENCED):
        log.marker(epoch=2, coordinator=6)
    assert log.marker(epoch=2, coordinator=7) is None


def test_hazard_6_a_marker_of_transaction_version_2_ends_only_a_transaction_of_an_older_epoch() -> None:
    """KIP-890: the coordinator bumps the epoch first, so a late marker can't end a later transaction."""
    log = Log()
    log.data(0, epoch=2, transactional=True)
    with refused(Error.INVALID_PRODUCER_EPOCH):
        log.marker(epoch=2, version=2)
    completed = log.marker(epoch=3, version=2)
    assert isinstance(completed, CompletedTransaction)
    assert log.marker(epoch=3, version=2) is None, "the same marker again is a retry"
    log.data(0, epoch=3, transactional=True)
    with refused(Error.INVALID_PRODUCER_EPOCH):
        log.marker(epoch=3, version=2)


def test_a_marker_of_a_new_epoch_begins_the_sequences_anew() -> None:
    log = Log()
    log.data(0, 5, transactional=True)
    log.marker(epoch=1, version=2)
    with refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.data(5, epoch=1)
    assert log.data(0, epoch=1) is None


def test_a_marker_that_the_cleaner_emptied_says_nothing() -> None:
    log = Log()
    marker = Batch(
        memoryview(build_marker(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1))
    )
    assert log.append(bytearray(empty(marker)), Origin.REPLICATION) is None
    assert len(log.state) == 0


def test_an_open_transaction_begins_with_its_first_record() -> None:
    log = Log()
    log.data(0, transactional=True, timestamp_ms=1000)
    assert log.state.transaction_offset(1) == 0
    assert log.state.transaction_offset(2) is None


# Forgetting


def test_a_silent_producer_expires_unless_its_transaction_is_open() -> None:
    log = Log()
    for producer in (1, 2, 3):
        log.data(0, producer=producer, transactional=producer == 3)
    log.state.remove_expired(now_ms=10_000, expiration_ms=500)
    log.data(1, producer=2)
    log.state.remove_expired(now_ms=10_499, expiration_ms=500)
    assert [producer for producer, _ in log.state] == [1, 2, 3]
    log.state.remove_expired(now_ms=10_500, expiration_ms=500)
    assert [producer for producer, _ in log.state] == [2, 3]
    log.state.remove_expired(now_ms=10_999, expiration_ms=500)
    assert [producer for producer, _ in log.state] == [3]
    assert log.data(8, producer=1) is None, "it may begin anywhere again"


def test_hazard_7_a_producer_of_old_records_is_not_forgotten_while_it_writes() -> None:
    log = Log()
    for sequence in range(10):
        log.data(sequence, timestamp_ms=sequence)
        log.state.remove_expired(now_ms=10**12 + sequence * 400, expiration_ms=500)
        assert isinstance(log.data(sequence), AppendedBatch)


def test_a_log_that_begins_later_forgets_transactions_that_ended_before_and_no_producer() -> None:
    log = Log()
    log.data(0, 2, transactional=True)
    log.marker()
    log.state.advance_log_start(3)
    assert log.state.first_unstable_offset is None
    assert len(log.state) == 1
    log.state.advance_log_start(10)
    assert log.end == 10
    log.state.clear(0)
    assert (len(log.state), log.end) == (0, 0)


# Snapshots


def test_a_snapshot_is_kafkas_followed_by_the_last_batches() -> None:
    log = Log()
    log.data(0, 2, producer=1000, timestamp_ms=0x018BD0C12200)
    log.data(2, 1, producer=1000, timestamp_ms=0x018BD0C12201)
    content = encode_snapshot(log.state)
    assert content[:2].hex() == "0001"
    kafkas = (
        "00000001" "00000000000003e8" "0000" "00000002" "0000000000000002" "00000000"
        "0000018bd0c12201" "ffffffff" "ffffffffffffffff"
    )  # fmt: skip
    ours = (
        "68647263" "02"
        "00000001" "00000001" "0000000000000001" "0000018bd0c12200"
        "00000002" "00000000" "0000000000000002" "0000018bd0c12201"
    )  # fmt: skip
    assert content[6:].hex() == kafkas + ours


def test_a_snapshot_of_nobody_is_ten_bytes() -> None:
    assert encode_snapshot(ProducerState()).hex() == "000148674bc700000000"


def test_hazard_7_a_retry_is_still_a_duplicate_after_a_restart_from_a_snapshot() -> None:
    """Five requests were in flight, all were written, no answer arrived, the broker restarted: all are sent again.

    With the one batch that Kafka keeps, the first four are out of order and the producer fails.
    """
    log = Log()
    for number in range(5):
        log.data(number * 10, 10)
    log.restart()
    for number in range(5):
        duplicate = log.data(number * 10, 10)
        assert isinstance(duplicate, AppendedBatch)
        assert duplicate.first_offset == number * 10
    assert log.data(50, 10) is None


def test_hazard_7_fencing_and_open_transactions_survive_a_restart_from_a_snapshot() -> None:
    log = Log()
    log.data(0, 2, producer=2, epoch=5, transactional=True)
    log.data(0, 2, producer=1, epoch=3, transactional=True)
    log.marker(producer=3, epoch=1, coordinator=9)
    log.restart()
    assert log.state.last_stable_offset(100) == 0
    with refused(Error.INVALID_PRODUCER_EPOCH):
        log.data(0, producer=2, epoch=4)
    with refused(Error.TRANSACTION_COORDINATOR_FENCED):
        log.marker(producer=3, epoch=1, coordinator=8)
    assert log.marker(producer=2, epoch=5) == CompletedTransaction(2, 0, 5, last_stable_offset=2, is_aborted=False)


@given(st.data())
def test_hazard_7_a_damaged_snapshot_is_never_believed(data: st.DataObject) -> None:
    log = Log()
    for number in range(3):
        log.data(number // 2, producer=number % 2)
    content = bytearray(encode_snapshot(log.state))
    if data.draw(st.booleans()):
        bit = data.draw(st.integers(0, len(content) * 8 - 1))
        content[bit // 8] ^= 1 << bit % 8
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    with pytest.raises(SnapshotDamaged, match=r"^t-0/x\.snapshot is damaged: .*; the producers are read from the log"):
        decode_snapshot(bytes(content), "t-0/x.snapshot", 3)


# A real Kafka's


def kafka_folders() -> list[str]:
    return [name for name in ("idempotent-0", "transactions-0", "plain-0") if (KAFKA / name).exists()]


@pytest.mark.parametrize("folder", kafka_folders())
def test_replaying_a_real_kafkas_log_gives_its_snapshots_and_its_transaction_index(folder: str) -> None:
    state = ProducerState()
    for log in sorted((KAFKA / folder).glob("*.log")):
        aborted = TransactionIndex(0)
        snapshot = log.with_suffix(".snapshot")
        if snapshot.exists():
            assert_same_producers(state, snapshot)
        for batch in scan(log.read_bytes()):
            if batch.producer_id >= 0:
                completed = state.apply(batch)
                if completed is not None and completed.is_aborted:
                    aborted.append(
                        AbortedTransaction(
                            completed.producer_id,
                            completed.first_offset,
                            completed.last_offset,
                            completed.last_stable_offset,
                        )
                    )
            state.end_offset = batch.next_offset
        index = log.with_suffix(".txnindex")
        assert aborted.encode() == (index.read_bytes() if index.exists() else b"")
    assert_same_producers(state, max((KAFKA / folder).glob("*.snapshot")))
    assert folder == "plain-0" or len(state) >= 2


def assert_same_producers(state: ProducerState, snapshot: Path) -> None:
    def entries(content: bytes) -> list[bytes]:
        count = int.from_bytes(content[6:10])
        return sorted(content[start : start + 46] for start in range(10, 10 + 46 * count, 46))

    theirs = snapshot.read_bytes()
    # Kafka forgets producers by their records' timestamps, and those of the fixture are of old.
    assert set(entries(theirs)) <= set(entries(encode_snapshot(state)))
    read = decode_snapshot(theirs, str(snapshot), int(snapshot.stem))
    assert entries(encode_snapshot(read)) == entries(theirs)


# The model


class Model:
    """Remembers every batch, and answers by looking at all of them."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, int, int]]] = {}  # epoch, first and last sequence, offset
        self.open: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.markers: list[tuple[int, int]] = []  # first offset, marker's offset

    def send(self, producer: int, epoch: int, sequence: int, count: int) -> str | int:
        if epoch < self.epochs.get(producer, -1):
            return "fenced"
        mine = [batch for batch in self.batches.get(producer, []) if batch[0] == epoch]
        for batch in mine[-5:]:
            if batch[1:3] == (sequence, sequence + count - 1):
                return batch[3]
        if producer in self.epochs and sequence != (mine[-1][2] + 1 if mine else 0):
            return "out of order"
        return "taken"

    def unstable(self, high_watermark: int) -> int:
        starts = [*self.open.values(), *(first for first, marker in self.markers if marker >= high_watermark)]
        return min([*starts, high_watermark])


script = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3), st.integers(0, 2), st.integers(0, 8), st.integers(1, 3)),
        st.tuples(st.just("next"), st.integers(1, 3), st.integers(0, 2), st.just(0), st.integers(1, 3)),
        st.tuples(st.just("mark"), st.integers(1, 3), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("watermark"), st.just(0), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("replay"), st.just(0), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(script)
def test_hazard_7_after_any_sends_markers_restarts_and_replays_the_answers_are_those_of_full_memory(
    steps: list[tuple[str, int, int, int, int]],
) -> None:
    log = Log()
    model = Model()
    high_watermark = 0
    for what, producer, epoch, sequence, count in steps:
        if what in ("send", "next"):
            if what == "next":
                epoch = model.epochs.get(producer, 0)
                mine = [batch for batch in model.batches.get(producer, []) if batch[0] == epoch]
                sequence = mine[-1][2] + 1 if mine else 0
            expected = model.send(producer, epoch, sequence, count)
            offset = log.end
            try:
                answer = log.data(sequence, count, producer=producer, epoch=epoch, transactional=True)
            except Refused as refusal:
                assert {"fenced": Error.INVALID_PRODUCER_EPOCH, "out of order": Error.OUT_OF_ORDER_SEQUENCE_NUMBER}[
                    str(expected)
                ] is refusal.error
                continue
            if isinstance(answer, AppendedBatch):
                assert answer.first_offset == expected
                continue
            assert expected == "taken"
            model.batches.setdefault(producer, []).append((epoch, sequence, sequence + count - 1, offset))
            model.epochs[producer] = epoch
            model.open.setdefault(producer, offset)
        elif what == "mark" and epoch >= model.epochs.get(producer, 0):
            offset = log.end
            completed = log.marker(producer=producer, epoch=epoch)
            model.epochs[producer] = epoch
            if producer in model.open:
                first = model.open.pop(producer)
                model.markers.append((first, offset))
                stable = min(model.open.values(), default=offset + 1)
                assert completed == CompletedTransaction(producer, first, offset, stable, is_aborted=False)
            else:
                assert completed is None
        elif what == "watermark":
            high_watermark = log.end
            log.state.advance_high_watermark(high_watermark)
        elif what == "restart":
            log.restart()
            high_watermark = log.end
        elif what == "replay":
            end = log.end
            log.state = ProducerState(end)
            for batch in log.batches:
                log.state.apply(batch)
            log.state.advance_high_watermark(high_watermark)
        assert log.state.last_stable_offset(high_watermark) == model.unstable(high_watermark)
        assert {producer: log.state.transaction_offset(producer) for producer in model.open} == model.open
