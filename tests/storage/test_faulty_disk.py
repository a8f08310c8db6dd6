"""The disk in memory does the harm that it promises, and no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.disk import (
    DiskError,
    DiskFull,
    DiskReadOnly,
    FileVanished,
    NoPermission,
    SyncFailed,
    TooManyOpenFiles,
)
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter

SEEDS = range(60)


def outcomes(act: Callable[[FaultyDisk], object], look: Callable[[FaultyDisk], object]) -> list[object]:
    """What `look` sees after `act` and a loss of power, for many seeds."""
    seen = []
    for seed in SEEDS:
        disk = FaultyDisk(Platter(seed))
        act(disk)
        seen.append(look(disk.restart(power_lost=True)))
    return seen


def content(disk: FaultyDisk) -> bytes | None:
    return disk.read("a") if disk.exists("a") else None


def test_a_crash_comes_out_of_the_planned_call_and_out_of_every_later_one() -> None:
    disk = FaultyDisk(faults=Faults(crash_at_call=2))
    file = disk.open("a", create=True)
    with pytest.raises(Crash):
        file.size()
    for later in (file.size, file.datasync, lambda: file.write(0, [b"x"]), lambda: disk.names(), disk.free_bytes):
        with pytest.raises(Crash):
            later()
    assert not isinstance(Crash(), Exception)


def test_a_write_that_crashes_leaves_any_part_of_itself() -> None:
    sizes = set()
    for seed in SEEDS:
        disk = FaultyDisk(Platter(seed), Faults(crash_at_call=2))
        file = disk.open("a", create=True)
        with pytest.raises(Crash):
            file.write(0, [b"01", b"23"])
        after = disk.restart().read("a")
        assert b"0123".startswith(after)
        sizes.add(len(after))
    assert sizes == {0, 1, 2, 3, 4}


def test_a_crash_of_the_process_keeps_the_page_cache_and_all_names() -> None:
    disk = FaultyDisk()
    disk.make_directory("t-0")
    disk.open("t-0/a", create=True).write(0, [b"unsynced"])
    disk.lock()
    disk.crash()
    after = disk.restart()
    assert after.read("t-0/a") == b"unsynced"
    after.lock()


def test_a_loss_of_power_keeps_what_was_synced() -> None:
    def act(disk: FaultyDisk) -> None:
        file = disk.open("a", create=True)
        disk.sync_directory("")
        file.write(0, [b"synced"])
        file.datasync()
        file.write(6, [b" and unsynced"])

    seen = outcomes(act, content)
    assert all(isinstance(found, bytes) and found.startswith(b"synced") for found in seen)
    assert b"synced" in seen, "all of it lost"
    assert b"synced and unsynced" in seen, "nothing lost"
    assert any(found not in (b"synced", b"synced and unsynced") for found in seen), "torn"


def test_a_loss_of_power_can_leave_holes_between_pages() -> None:
    def act(disk: FaultyDisk) -> None:
        file = disk.open("a", create=True)
        disk.sync_directory("")
        file.write(0, [b"\1" * 4096 * 4])

    pages = [found[0:1] + found[4096:4097] for found in outcomes(act, content) if isinstance(found, bytes)]
    assert b"\0\1" in pages, "the first page is lost and the second is there"


def test_a_loss_of_power_can_take_the_name_of_a_synced_file_whose_directory_was_not_synced() -> None:
    def act(disk: FaultyDisk) -> None:
        file = disk.open("a", create=True)
        file.write(0, [b"synced"])
        file.datasync()

    seen = outcomes(act, content)
    assert None in seen
    assert b"synced" in seen


def test_a_name_in_a_directory_whose_own_name_was_not_synced_can_go_with_it() -> None:
    def act(disk: FaultyDisk) -> None:
        disk.make_directory("t-0")
        disk.replace("t-0/a", b"x")

    seen = [str(found) for found in outcomes(act, FaultyDisk.names)]
    assert set(seen) == {"[]", "['t-0']"}


def test_replace_leaves_the_old_content_or_the_new_one_wherever_it_crashes() -> None:
    for call in range(1, 12):
        for seed in range(20):
            disk = FaultyDisk(Platter(seed))
            disk.replace("a", b"old")
            disk.faults.crash_at_call = disk.calls + call
            try:
                disk.replace("a", b"new content")
            except Crash:
                assert disk.restart(power_lost=True).read("a") in (b"old", b"new content")
            else:
                assert disk.restart(power_lost=True).read("a") == b"new content"


def test_a_rename_is_all_or_nothing() -> None:
    def act(disk: FaultyDisk) -> None:
        disk.make_directory("x")
        disk.make_directory("y")
        disk.sync_directory("")
        disk.replace("x/a", b"1")
        disk.rename("x/a", "y/a")

    seen = {str(names) for names in outcomes(act, lambda disk: (disk.names("x"), disk.names("y")))}
    assert seen == {"(['a'], [])", "([], ['a'])"}


def test_a_removed_file_can_come_back_until_its_directory_is_synced() -> None:
    def act(disk: FaultyDisk) -> None:
        disk.replace("a", b"1")
        disk.remove("a")

    assert set(outcomes(act, content)) == {None, b"1"}

    def act_and_sync(disk: FaultyDisk) -> None:
        act(disk)
        disk.sync_directory("")

    assert set(outcomes(act_and_sync, content)) == {None}


def test_hazard_8_a_failed_sync_is_told_once_and_its_pages_never_reach_the_device() -> None:
    disk = FaultyDisk(faults=Faults(fail_sync_at=2))
    file = disk.open("a", create=True)
    disk.sync_directory("")
    file.write(0, [b"lost"])
    with pytest.raises(SyncFailed):
        file.datasync()
    assert file.read(0, 4) == b"lost", "the page cache still shows it"
    disk.offline = None  # what code would do that tries again
    file.datasync()
    file.forget_cached()
    assert file.read(0, 4) == b"", "and the second sync lied"


def test_a_full_disk_takes_a_part_of_the_write() -> None:
    disk = FaultyDisk(faults=Faults(capacity_bytes=10))
    file = disk.open("a", create=True)
    file.write(0, [b"01234567"])
    with pytest.raises(DiskFull, match="free space"):
        file.write(8, [b"abcd"])
    assert file.read(0, 100) == b"01234567ab"
    assert disk.free_bytes() == 0
    file.truncate(8)
    file.write(6, [b"xxxx"])
    with pytest.raises(DiskFull):
        file.preallocate(11)


def test_a_read_only_disk_reads() -> None:
    disk = FaultyDisk()
    disk.replace("a", b"1")
    file = disk.open("a")
    disk.faults.read_only = True
    assert file.read(0, 1) == disk.read("a") == b"1"
    disk.open("a", read_only=True).close()
    for change in (
        lambda: file.write(0, [b"x"]),
        lambda: file.truncate(0),
        lambda: disk.rename("a", "b"),
        lambda: disk.remove("a"),
        lambda: disk.open("b", create=True),
        lambda: disk.make_directory("d"),
    ):
        with pytest.raises(DiskReadOnly):
            change()


def test_forbidden_unreadable_and_vanished_files_and_too_many_open_ones() -> None:
    disk = FaultyDisk()
    disk.make_directory("t-0")
    disk.replace("t-0/a", b"1")
    file = disk.open("t-0/a")
    disk.faults.forbidden = ("t-0",)
    with pytest.raises(NoPermission):
        disk.open("t-0/a")
    disk.faults = Faults(unreadable=("t-0/a",))
    with pytest.raises(DiskError, match="check the disk"):
        file.read(0, 1)
    disk.faults = Faults(open_files_max=1)
    with pytest.raises(TooManyOpenFiles):
        disk.open("t-0/a")
    file.close()
    disk.open("t-0/a").close()
    disk.platter.vanish("t-0/a")
    with pytest.raises(FileVanished):
        disk.open("t-0/a")


def test_any_call_can_be_told_to_fail() -> None:
    disk = FaultyDisk(faults=Faults(errors_at_calls={2: DiskFull, 3: SyncFailed}))
    file = disk.open("a", create=True)
    with pytest.raises(DiskFull):
        file.write(0, [b"x"])
    with pytest.raises(SyncFailed):
        file.datasync()
    assert disk.offline is not None


def test_a_flipped_bit_is_seen_by_readers() -> None:
    disk = FaultyDisk()
    disk.replace("a", b"\0\0")
    disk.platter.flip_bit("a", 1, 3)
    assert disk.read("a") == b"\0\x08"
    assert disk.restart(power_lost=True).read("a") == b"\0\x08"


@given(st.integers(0, 2**32), st.data())
def test_after_a_loss_of_power_a_file_has_at_least_what_was_synced_and_a_seed_repeats_it(
    seed: int, data: st.DataObject
) -> None:
    steps = data.draw(st.lists(st.sampled_from([b"a", b"bb", b"ccc", b"D" * 5000, None]), max_size=12))

    def run() -> tuple[bytes, bytes, list[str]]:
        disk = FaultyDisk(Platter(seed))
        disk.trace = []
        file = disk.open("a", create=True)
        disk.sync_directory("")
        written = synced = b""
        for step in steps:
            if step is None:
                file.datasync()
                synced = written
            else:
                file.write(len(written), [step])
                written += step
        found = disk.restart(power_lost=True).read("a")
        assert found.startswith(synced)
        assert len(found) <= len(written)
        return found, written, disk.trace

    assert run() == run()


def test_where_writes_are_copies_a_full_disk_takes_not_even_what_is_written_over() -> None:
    disk = FaultyDisk()
    file = disk.open("f", create=True)
    file.write(0, [bytes(100)])
    disk.faults.capacity_bytes = disk.platter.used_bytes()
    file.write(0, [b"over"])
    disk.faults.copies_on_write = True
    with pytest.raises(DiskFull):
        file.write(0, [b"over"])
