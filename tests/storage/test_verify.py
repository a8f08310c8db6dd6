"""Verifying finds what is wrong with a folder, ours or Kafka's, says where and what to do, and changes nothing."""

from __future__ import annotations

import json
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.batch import Batch, scan
from headrace.storage.inventory import take_inventory
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.verify import verify
from headrace.storage.verify_report import PROBLEMS_MAX, Problem, Report, Severity
from headrace.testing.disk import Faults, FaultyDisk
from tests.storage.batches import batch, run
from tests.storage.folders import FOLDER, cut, flip, kafka_disk, kafka_files, put

PLAIN = "plain-0/00000000000000000000.log"
SEGMENTS = "segments-0/000000000000000000"
TRANSACTIONS = "transactions-0/000000000000000000"


def reports(disk: FaultyDisk, only: str | None = None, *, deep: bool = False) -> dict[str, Report]:
    found = {report.name: report for report in verify(take_inventory(disk, only), deep=deep)}
    assert disk.open_files == 0, "what was opened is closed"
    return found


def problems(disk: FaultyDisk, severity: Severity | None = None, *, deep: bool = False) -> list[Problem]:
    found = [problem for report in reports(disk, deep=deep).values() for problem in report.problems]
    return [problem for problem in found if severity in (None, problem.severity)]


def only_problem(disk: FaultyDisk, severity: Severity) -> Problem:
    """The one thing that is wrong; or the one note, where nothing is."""
    wanted = (severity,) if severity is Severity.NOTE else (Severity.DAMAGE, Severity.REPAIRABLE)
    (problem,) = [found for found in problems(disk) if found.severity in wanted and "deleted" not in found.path]
    assert problem.severity is severity
    assert severity is Severity.NOTE or problem.advice
    return problem


# --- sound folders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_kafkas_folders_are_sound_record_for_record(clean: bool, deep: bool) -> None:
    found = reports(kafka_disk(clean=clean), deep=deep)
    assert all(report.is_sound for report in found.values())
    assert {problem.path for report in found.values() for problem in report.problems} == {
        "compacted-0/00000000000000000000.index.deleted"
    }
    expected = json.loads((FOLDER / "expected.json").read_text())["topics"]
    for topic, read in expected.items():
        report = found[f"{topic}-0"]
        markers = report.records - len(read["read_uncommitted"])
        assert markers == (5 if topic == "transactions" else 0)
        assert report.end_offset == read["read_uncommitted"][-1]["offset"] + 1 or markers


def test_nothing_is_written_and_no_lock_is_taken() -> None:
    disk = kafka_disk()
    other = disk.lock()
    disk.faults = Faults(read_only=True)
    assert all(report.is_sound for report in verify(take_inventory(disk), deep=True))
    other.release()


def test_one_partition_is_verified_with_what_its_directory_says_of_it() -> None:
    disk = kafka_disk()
    assert [*reports(disk, "plain-0")] == ["plain-0"]
    cut(disk, PLAIN, 4205)  # after the recovery point of an unclean stop it would be a note
    assert not reports(disk, "plain-0")["plain-0"].is_sound


def test_every_byte_is_told_once() -> None:
    disk = kafka_disk()
    flip(disk, PLAIN, 200)
    flip(disk, f"{SEGMENTS}06.log", 7)
    inventory = take_inventory(disk)
    told: list[int] = []
    list(verify(inventory, advanced=told.append))
    assert sum(told) == inventory.walk_bytes


# --- batches ----------------------------------------------------------------------------------------------------------

LOGS = [path for path in kafka_files() if path.endswith(".log") and kafka_files()[path] and "compacted" not in path]


@given(st.data())
def test_any_flipped_bit_of_a_segment_is_found(data: st.DataObject) -> None:
    # But for a compacted log, where a base offset that moves within a hole is as good as another.
    path = data.draw(st.sampled_from(LOGS))
    position = data.draw(st.integers(0, len(kafka_files()[path]) - 1))
    disk = kafka_disk(path.partition("/")[0])
    flip(disk, path, position, data.draw(st.integers(0, 7)))
    # No checksum covers the epoch and the base offset: those of the last batch contradict only what is beside the log.
    assert [problem for problem in problems(disk) if problem.severity is not Severity.NOTE]


@given(st.data())
def test_a_folder_spoilt_at_random_is_reported_and_never_an_error(data: st.DataObject) -> None:
    disk = kafka_disk("transactions-0", "__cluster_metadata-0", "compacted-0")
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from([path for path in kafka_files() if disk.exists(path)]))
        content = bytearray(disk.read(path))
        start = data.draw(st.integers(0, len(content)))
        content[start : start + data.draw(st.integers(0, 200))] = data.draw(st.binary(max_size=200))
        put(disk, path, content)
    list(verify(take_inventory(disk), deep=True))


def test_damage_in_the_middle_is_told_with_its_bytes_and_what_follows_is_verified_too() -> None:
    disk = kafka_disk()
    flip(disk, PLAIN, 200)
    flip(disk, PLAIN, 4000)
    first, second = problems(disk, Severity.DAMAGE)
    assert (first.path, first.position) == (PLAIN, 163)
    assert first.what == "bytes 163 to 243: the record batch with base offset 2 fails its CRC32C"
    assert "truncate -s 163 /disk/plain-0/00000000000000000000.log" in first.advice
    assert second.position is not None
    assert second.position > 3800
    report = reports(disk)["plain-0"]
    assert (report.batches, report.end_offset) == (43, 45)


def test_a_batch_in_the_wrong_place_is_told_once() -> None:
    disk = kafka_disk()
    content = bytearray(disk.read(PLAIN))
    content[163:171] = (30).to_bytes(8)  # a base offset that is too large makes the next one look wrong
    put(disk, PLAIN, content)
    (problem,) = problems(disk, Severity.DAMAGE)
    assert problem.what == "bytes 243 to 314: they have offsets 3 to 3, and 31 is next"
    assert reports(disk)["plain-0"].batches == 45


def test_a_torn_tail_is_a_note_after_an_unclean_stop_and_damage_where_it_was_durable() -> None:
    tail = run(batch(b"new", base_offset=45))[:-10]
    for clean in (False, True):
        disk = kafka_disk(clean=clean)
        put(disk, PLAIN, disk.read(PLAIN) + tail)
        problem = next(found for found in problems(disk) if found.path == PLAIN)
        assert problem.severity is (Severity.DAMAGE if clean else Severity.NOTE)
        assert problem.position == len(kafka_files()[PLAIN])
        assert ("the next start cuts the log there" in problem.advice) is not clean
        assert reports(disk)["plain-0"].is_sound is not clean
        cut(disk, PLAIN, 4000)  # before the recovery point
        assert not reports(disk)["plain-0"].is_sound


def test_a_clean_stop_says_nothing_of_a_partition_that_it_could_not_close() -> None:
    disk = kafka_disk()
    put(disk, PLAIN, disk.read(PLAIN) + run(batch(b"new", base_offset=45))[:-10])
    assert not reports(disk)["plain-0"].is_sound
    put(disk, "headrace-not-closed-checkpoint", b"0\n1\nplain 0 0\n")
    assert "the next start cuts the log there" in only_problem(disk, Severity.NOTE).advice
    put(disk, "headrace-not-closed-checkpoint", b"spoilt")
    problem = only_problem(disk, Severity.REPAIRABLE)
    assert problem.path == "headrace-not-closed-checkpoint"
    assert problem.advice == "Leave it: the next start checks all partitions."


def test_a_log_that_ends_before_its_recovery_point_was_cut_by_somebody() -> None:
    disk = kafka_disk(clean=False)
    last = [found.position for found in scan(disk.read(PLAIN))][-1]
    cut(disk, PLAIN, last)
    problem = only_problem(disk, Severity.DAMAGE)
    assert problem.path == "recovery-point-offset-checkpoint"
    assert problem.what == "plain-0 was durable up to offset 45, and ends at 44: somebody cut it"


def test_a_lost_page_is_a_note_where_it_was_not_durable_yet() -> None:
    disk = FaultyDisk()
    contents = [batch(bytes([65 + n]) * 3000, base_offset=n, partition_leader_epoch=0) for n in range(6)]
    content = run(*contents)
    content[4096:8192] = bytes(4096)
    put(disk, "t-0/00000000000000000000.log", content)
    put(disk, "recovery-point-offset-checkpoint", b"0\n1\nt 0 1\n")
    found = reports(disk)["t-0"]
    assert found.is_sound
    assert [problem.position for problem in found.problems] == [len(contents[0])]
    put(disk, "recovery-point-offset-checkpoint", b"0\n1\nt 0 5\n")
    assert not reports(disk)["t-0"].is_sound


def test_a_copy_of_a_folder_has_only_the_tail_that_may_be_torn() -> None:
    disk = FaultyDisk()
    for name, content in kafka_files().items():
        if name.startswith("segments-0"):
            put(disk, name, content)
    cut(disk, f"{SEGMENTS}51.log", 60)
    assert reports(disk)["segments-0"].is_sound
    cut(disk, f"{SEGMENTS}00.log", 400)
    assert not reports(disk)["segments-0"].is_sound


def test_zeros_behind_the_batches_are_room_for_more_only_where_a_node_may_write() -> None:
    for clean in (False, True):
        disk = kafka_disk(clean=clean)
        put(disk, PLAIN, disk.read(PLAIN) + bytes(5000))
        if clean:
            assert only_problem(disk, Severity.DAMAGE).what.startswith("bytes 4289 to 9289 are zeros, and")
        else:
            assert not [problem for problem in problems(disk) if problem.path == PLAIN]


def test_zeros_behind_the_batches_of_a_closed_segment_are_told_of() -> None:
    disk = kafka_disk(clean=False)
    put(disk, "recovery-point-offset-checkpoint", b"0\n0\n")
    path = f"{SEGMENTS}48.log"
    end = disk.stat(path).size
    put(disk, path, disk.read(path) + bytes(5000))
    found = [problem.what for problem in problems(disk, Severity.NOTE) if problem.path == path]
    assert found == [f"bytes {end} to {end + 5000} are zeros: a crash came before they were cut off"]


def test_a_missing_segment_is_found_by_its_offsets() -> None:
    disk = kafka_disk()
    disk.remove(f"{SEGMENTS}24.log")
    found = problems(disk)
    (damage,) = [problem for problem in found if problem.severity is Severity.DAMAGE]
    assert damage.path == f"{SEGMENTS}18.log"
    assert damage.what.startswith("offsets 24 to 29 should come next, and are not there")
    assert f"{SEGMENTS}24.index" in {problem.path for problem in found if problem.severity is Severity.NOTE}


def test_segments_that_overlap_are_damage() -> None:
    disk = kafka_disk()
    put(disk, f"{SEGMENTS}07.log", disk.read(f"{SEGMENTS}12.log"))
    found = [problem for problem in problems(disk, Severity.DAMAGE) if problem.path == f"{SEGMENTS}06.log"]
    assert found[0].what == "it goes up to offset 11, and 00000000000000000007.log begins at 7"


def test_an_old_format_is_called_one() -> None:
    disk = kafka_disk("plain-0")
    message = (0).to_bytes(8) + (20).to_bytes(4) + bytes(4) + b"\x01" + b"\x07" * 15
    put(disk, PLAIN, message + disk.read(PLAIN))
    assert "of message format 1, perhaps" in problems(disk, Severity.DAMAGE)[0].what


def test_a_batch_that_can_not_be_opened_takes_a_deep_look() -> None:
    disk = FaultyDisk()
    lying = bytearray(batch(b"one", b"two", base_offset=0, partition_leader_epoch=0))
    lying[-3] ^= 1
    view = Batch(memoryview(lying))
    view._set_attributes(view.attributes | 4)  # zstd, which these bytes are not; the CRC is made right again
    put(disk, "t-0/00000000000000000000.log", lying)
    assert reports(disk)["t-0"].is_sound
    (problem,) = [problem for problem in problems(disk, deep=True) if problem.severity is Severity.DAMAGE]
    assert problem.what.startswith("the batch with base offset 0: Records compressed with zstd can't be decompressed")


def test_more_problems_than_anybody_reads_are_counted() -> None:
    disk = FaultyDisk()
    contents = [bytes(batch(b"v" * 40, base_offset=n)) for n in range(500)]
    content = bytearray(b"".join(contents))
    for n in range(0, 500, 2):
        content[n * len(contents[0]) + 70] ^= 1
    put(disk, "t-0/00000000000000000000.log", content)
    put(disk, ".kafka_cleanshutdown", b"")
    report = reports(disk)["t-0"]
    assert len(report.problems) == PROBLEMS_MAX
    assert report.counts[Severity.DAMAGE] == 250
    assert report.left_out == sum(report.counts.values()) - PROBLEMS_MAX
    assert (report.batches, report.end_offset) == (250, 500)


# --- epochs -----------------------------------------------------------------------------------------------------------


def test_a_spoilt_epoch_is_told_of_its_batch_and_not_of_the_checkpoint() -> None:
    disk = kafka_disk()
    flip(disk, f"{SEGMENTS}18.log", 15)
    problem = only_problem(disk, Severity.DAMAGE)
    assert (problem.path, problem.position) == (f"{SEGMENTS}18.log", 0)
    assert problem.what.startswith("the batch with base offset 18 has leader epoch 1 before one of 0")


def test_an_epoch_that_the_checkpoint_does_not_know_is_repairable() -> None:
    disk = kafka_disk()
    put(disk, "segments-0/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    problem = only_problem(disk, Severity.REPAIRABLE)
    assert problem.path == "segments-0/leader-epoch-checkpoint"
    assert problem.what == "it says epoch 0 for offset 51, and the batches say 2"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"0\n3\n0 0\n2 51\n3 60\n", "epoch 3 begins at offset 60, and the log ends at 52"),
        (b"0\n2\n2 51\n0 0\n", "line 4 has 0 0 after 2 51"),
        (b"0\n9\n0 0\n", "it has 1 entries and says another number"),
        (b"\xff", "it is not text"),
    ],
)
def test_a_checkpoint_of_epochs_that_can_not_be_right_is_repairable(content: bytes, what: str) -> None:
    disk = kafka_disk()
    put(disk, "segments-0/leader-epoch-checkpoint", content)
    assert only_problem(disk, Severity.REPAIRABLE).what == what


# --- indexes ----------------------------------------------------------------------------------------------------------

INDEXES = [path for path in kafka_files() if path.endswith(".index") and kafka_files()[path]]


@given(st.data())
def test_an_index_that_passes_leads_every_lookup_to_a_batch_at_or_before_its_offset(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(INDEXES))
    disk = kafka_disk(path.partition("/")[0])
    for _ in range(data.draw(st.integers(1, 2))):
        position = data.draw(st.integers(0, len(kafka_files()[path]) - 1))
        flip(disk, path, position, data.draw(st.integers(0, 7)))
    told = [problem for problem in problems(disk) if problem.path == path]
    if not told:
        log = disk.read(path.removesuffix(".index") + ".log")
        batches = list(scan(log))
        index = OffsetIndex.load(disk, path, int(path.rpartition("/")[2][:20]))
        for offset in range(batches[0].base_offset, batches[-1].next_offset):
            position = index.lookup(offset)[1]
            found = batches[bisect_right([batch.position for batch in batches], position) - 1]
            assert found.position == position
            assert found.base_offset <= offset


@given(st.data())
def test_any_flipped_bit_of_a_timestamp_in_a_time_index_is_found(data: st.DataObject) -> None:
    path = data.draw(
        st.sampled_from([path for path in kafka_files() if path.endswith(".timeindex") and kafka_files()[path]])
    )
    entry = data.draw(st.integers(0, len(kafka_files()[path]) // 12 - 1))
    disk = kafka_disk(path.partition("/")[0])
    flip(disk, path, entry * 12 + data.draw(st.integers(0, 7)), data.draw(st.integers(0, 7)))
    assert only_problem(disk, Severity.REPAIRABLE).path == path


def test_an_index_is_told_by_its_first_bad_entry() -> None:
    disk = kafka_disk()
    index = bytearray(disk.read(f"{SEGMENTS}06.index"))
    index[12:16] = (147).to_bytes(4)
    put(disk, f"{SEGMENTS}06.index", index)
    problem = only_problem(disk, Severity.REPAIRABLE)
    assert (problem.path, problem.position) == (f"{SEGMENTS}06.index", 8)
    assert problem.what == "an entry points at byte 147, where no batch begins"


@pytest.mark.parametrize(
    ("name", "size_bytes", "what"),
    [
        ("06.index", 39, "its last entry is cut"),
        ("06.timeindex", 48, "its last timestamp is 1700007200004, and the largest of its segment 1700007200005"),
    ],
)
def test_an_index_that_was_cut_is_repairable(name: str, size_bytes: int, what: str) -> None:
    disk = kafka_disk()
    cut(disk, SEGMENTS + name, size_bytes)
    assert only_problem(disk, Severity.REPAIRABLE).what.startswith(what.partition(" is ")[0])


def test_a_missing_index_is_repairable_unless_it_is_still_in_memory() -> None:
    disk = kafka_disk(clean=False)
    disk.remove(f"{SEGMENTS}51.index")
    disk.remove(f"{SEGMENTS}51.timeindex")
    assert reports(disk)["segments-0"].problems == []
    disk.remove(f"{SEGMENTS}06.index")
    assert only_problem(disk, Severity.REPAIRABLE).path == f"{SEGMENTS}06.index"


def test_kafkas_active_index_has_zeros_behind_its_entries() -> None:
    disk = kafka_disk(clean=False)
    put(disk, PLAIN.replace(".log", ".index"), disk.read(PLAIN.replace(".log", ".index")) + bytes(8000))
    put(disk, PLAIN.replace(".log", ".timeindex"), disk.read(PLAIN.replace(".log", ".timeindex")) + bytes(12000))
    assert reports(disk)["plain-0"].problems == []


def test_an_index_that_the_next_start_makes_anew_is_not_worth_a_word() -> None:
    disk = kafka_disk("plain-0", "segments-0", clean=False)
    index = PLAIN.replace(".log", ".index")
    put(disk, index, disk.read(index) + (50).to_bytes(4) + (5000).to_bytes(4))
    assert reports(disk)["plain-0"].problems == []
    put(disk, "recovery-point-offset-checkpoint", b"0\n1\nsegments 0 20\n")
    put(disk, f"{SEGMENTS}18.index", b"torn")
    assert reports(disk)["segments-0"].problems == []
    put(disk, f"{SEGMENTS}12.index", b"torn")
    assert [problem.path for problem in reports(disk)["segments-0"].problems] == [f"{SEGMENTS}12.index"]


# --- transactions and producers ---------------------------------------------------------------------------------------


def test_an_aborted_transaction_that_the_index_does_not_have_is_damage() -> None:
    disk = kafka_disk()
    put(disk, f"{TRANSACTIONS}18.txnindex", disk.read(f"{TRANSACTIONS}18.txnindex")[34:])
    problem = only_problem(disk, Severity.DAMAGE)
    assert problem.path == f"{TRANSACTIONS}18.txnindex"
    assert problem.what.startswith("the transaction from offset 0, aborted at 18, is not in it: consumers")
    disk.remove(f"{TRANSACTIONS}18.txnindex")
    assert "(and 2 more like it)" in only_problem(disk, Severity.DAMAGE).what


def test_an_entry_of_the_transaction_index_needs_its_marker() -> None:
    disk = kafka_disk()
    flip(disk, f"{TRANSACTIONS}18.txnindex", 34 + 9)  # another producer
    assert "producer 1000 aborted at offset 21, and no such marker" in only_problem(disk, Severity.REPAIRABLE).what


@given(st.integers(0, 147), st.integers(0, 7))
def test_any_flipped_bit_of_a_snapshot_is_found(position: int, bit: int) -> None:
    disk = kafka_disk("transactions-0")
    flip(disk, f"{TRANSACTIONS}28.snapshot", position, bit)
    assert only_problem(disk, Severity.REPAIRABLE).path == f"{TRANSACTIONS}28.snapshot"


def test_a_snapshot_knows_nothing_of_what_came_later() -> None:
    disk = kafka_disk()
    put(disk, f"{TRANSACTIONS}07.snapshot", disk.read(f"{TRANSACTIONS}18.snapshot"))
    assert only_problem(disk, Severity.REPAIRABLE).what == "producer 1001 has offset 14 in it, which came later"
    disk.remove(f"{TRANSACTIONS}07.snapshot")
    put(disk, f"{TRANSACTIONS}99.snapshot", disk.read(f"{TRANSACTIONS}18.snapshot"))
    assert only_problem(disk, Severity.REPAIRABLE).what == "it is of offset 99, and the log ends at 28"


# --- small files and strays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "content", "severity", "what"),
    [
        ("partition.metadata", b"no", Severity.DAMAGE, "it does not say version 0 and a topic id"),
        ("quorum-state", b"[]", Severity.DAMAGE, "it does not say what this voter has voted for"),
    ],
)
def test_a_damaged_identity_is_told(path: str, content: bytes, severity: Severity, what: str) -> None:
    disk = kafka_disk()
    put(disk, f"__cluster_metadata-0/{path}", content)
    problem = only_problem(disk, severity)
    assert (problem.path, problem.what) == (f"__cluster_metadata-0/{path}", what)


@pytest.mark.parametrize(
    ("name", "content", "severity", "what"),
    [
        ("meta.properties", b"version=0\nbroker.id=1", Severity.DAMAGE, "has version 0"),
        ("recovery-point-offset-checkpoint", b"0\n2\nx", Severity.REPAIRABLE, "it has 1 entries and says"),
        (
            "replication-offset-checkpoint",
            b"0\n1\nplain 0 46\n",
            Severity.REPAIRABLE,
            "plain-0 has its high watermark at",
        ),
        ("log-start-offset-checkpoint", b"0\n1\nplain 0 46\n", Severity.REPAIRABLE, "plain-0 starts at offset 46, and"),
        ("cleaner-offset-checkpoint", b"0\n1\nplain 0 46\n", Severity.REPAIRABLE, "plain-0 is cleaned up to offset 46"),
        ("bootstrap.checkpoint", b"", Severity.DAMAGE, "it is not whole"),
    ],
)
def test_the_files_of_the_directory_are_verified(name: str, content: bytes, severity: Severity, what: str) -> None:
    disk = kafka_disk()
    put(disk, name, content)
    found = problems(disk, severity)
    assert [problem.path for problem in found] == [name]
    assert found[0].what.startswith(what)


def test_a_snapshot_of_the_metadata_needs_its_footer() -> None:
    disk = kafka_disk()
    put(disk, "__cluster_metadata-0/00000000000000000052-0000000001.checkpoint", disk.read("bootstrap.checkpoint"))
    assert all(report.is_sound for report in reports(disk).values())
    cut(disk, "__cluster_metadata-0/00000000000000000052-0000000001.checkpoint", 336)
    assert only_problem(disk, Severity.DAMAGE).what.startswith("it is not whole")


def test_what_waits_for_a_node_and_what_does_not_belong_is_noted() -> None:
    disk = kafka_disk("plain-0")
    put(disk, "plain-0/00000000000000000000.log.cleaned", b"")
    put(disk, "plain-0/00000000000000000000.log.swap", b"")
    put(disk, "plain-0/leader-epoch-checkpoint.tmp", b"")
    put(disk, "plain-0/notes.txt", b"")
    put(disk, "backup.tar", b"")
    put(disk, f"gone-0.{'0' * 32}-delete/00000000000000000000.log", b"")
    put(disk, f"lost-0.{'0' * 32}-stray/00000000000000000000.log", b"")
    put(disk, "recovery-point-offset-checkpoint", b"0\n2\nplain 0 45\nmissing 3 7\n")
    found = {problem.path: problem.what for problem in problems(disk)}
    assert {problem.severity for problem in problems(disk)} == {Severity.NOTE}
    assert found == {
        "plain-0/00000000000000000000.log.cleaned": "it belongs to the cleaner, which has not finished it",
        "plain-0/00000000000000000000.log.swap": "it belongs to the cleaner, and is swapped in at the next start",
        "plain-0/leader-epoch-checkpoint.tmp": "it is being written, or left over from a write that was not finished",
        "plain-0/notes.txt": "it is nothing that a partition has",
        "backup.tar": "it is nothing that a log directory has",
        f"gone-0.{'0' * 32}-delete": "the partition was deleted, and its files wait to be removed",
        f"lost-0.{'0' * 32}-stray": "the node was not meant to have it, and keeps it for you",
        "recovery-point-offset-checkpoint": "missing-3 is in it and has no folder",
    }


@pytest.mark.parametrize("clean", [False, True])
def test_what_waits_to_be_removed_is_not_held_to_the_offsets_of_what_has_its_name_now(clean: bool) -> None:
    """A topic that was made again, or a partition that moved to another folder and back."""
    disk = kafka_disk("plain-0", clean=clean)
    put(disk, f"plain-0.{'0' * 32}-delete/00000000000000000000.log", run(batch(b"old", base_offset=0)))
    assert problems(disk, Severity.DAMAGE) == []


# --- beside a running node --------------------------------------------------------------------------------------------


def test_a_tail_that_grows_while_it_is_verified_is_sound() -> None:
    disk = kafka_disk("plain-0", clean=False)
    new = run(batch(b"new", base_offset=45, partition_leader_epoch=2))
    put(disk, PLAIN, disk.read(PLAIN) + new[:30])
    is_written = False

    def write_the_rest(_: int) -> None:
        nonlocal is_written
        if not is_written:
            is_written = True
            put(disk, PLAIN, disk.read(PLAIN) + new[30:])

    found = [*verify(take_inventory(disk), advanced=write_the_rest)]
    assert found[0].problems == []
    assert found[0].end_offset == 46


def test_a_segment_that_goes_away_meanwhile_is_noted() -> None:
    disk = kafka_disk("segments-0", clean=False)
    inventory = take_inventory(disk)
    disk.remove(f"{SEGMENTS}00.log")
    disk.remove(f"{SEGMENTS}00.index")
    (problem,) = next(verify(inventory)).problems
    assert problem.severity is Severity.NOTE
    assert problem.what == "it went away while the partition was verified"


@pytest.mark.parametrize(
    "path", [path for path in kafka_files() if path.startswith(("transactions-0", "__cluster")) or "/" not in path]
)
@pytest.mark.parametrize("fault", ["unreadable", "forbidden"])
def test_a_file_that_can_not_be_read_is_told_and_the_rest_is_verified(path: str, fault: str) -> None:
    disk = kafka_disk("transactions-0", "__cluster_metadata-0", "segments-0")
    disk.faults = Faults(**{fault: (path,)})  # type: ignore[arg-type]
    found = problems(disk)
    unread = [".kafka_cleanshutdown", "log-start-offset-checkpoint"]  # its name says it all; it is empty
    if path in unread or not kafka_files()[path]:
        return
    told = [problem for problem in found if problem.path == path]
    assert len(told) == 1
    assert told[0].what.startswith("it can't be read (")
    assert reports(disk)["segments-0"].is_sound
