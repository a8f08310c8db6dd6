"""The contract of the disk port: the same tests on the local file system and on the disk in memory."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from headrace.storage import local_disk, page_cache
from headrace.storage.disk import (
    Disk,
    DiskError,
    DiskFull,
    DiskInUse,
    DiskReadOnly,
    FileThere,
    FileVanished,
    NoFolder,
    NoPermission,
    SyncFailed,
    TooManyOpenFiles,
    disk_error,
)
from headrace.storage.local_disk import WRITE_BACK_STEP_BYTES, LocalDisk, LocalFile
from headrace.testing.disk import FaultyDisk
from tests.plain_forms import plain_form


@pytest.fixture(params=["local", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return LocalDisk(str(tmp_path / "root")) if request.param == "local" else FaultyDisk()


def test_what_is_written_is_read_at_its_place(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    assert file.write(0, [b"one", bytearray(b"two"), memoryview(b"three")]) == 11
    assert file.write(3, [b"TWO"]) == 3
    assert file.read(0, 11) == b"oneTWOthree"
    assert file.read(6, 100) == b"three"
    assert file.read(11, 1) == b""
    assert file.size() == 11


def test_a_write_past_the_end_leaves_zeros(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    file.write(4, [b"x"])
    assert file.read(0, 10) == b"\0\0\0\0x"


def test_a_write_of_nothing_is_nothing(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    assert file.write(0, []) == 0
    assert file.write(0, [b"", b""]) == 0
    assert file.size() == 0


def test_more_buffers_than_one_system_call_takes_are_written_whole(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    parts = [b"%05d" % number for number in range(3000)]
    parts[7] = b""
    content = b"".join(parts)
    assert file.write(0, parts) == len(content)
    assert file.read(0, 20000) == content


def test_reading_into_a_buffer_says_how_much_there_was(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    file.write(0, [b"0123456789"])
    buffer = bytearray(6)
    assert file.read_into(2, buffer) == 6
    assert buffer == b"234567"
    assert file.read_into(7, memoryview(buffer)[1:]) == 3
    assert buffer == b"278967"
    assert file.read_into(10, buffer) == 0


def test_what_is_in_memory_is_read_without_waiting(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    file.write(0, [b"0123456789"])
    buffer = bytearray(4)
    assert file.read_cached(6, buffer) == 4
    assert buffer == b"6789"
    assert file.read_cached(10, buffer) == 0


def test_truncate_cuts_and_extends(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    file.write(0, [b"0123456789"])
    file.truncate(4)
    assert file.read(0, 10) == b"0123"
    file.truncate(6)
    assert file.read(0, 10) == b"0123\0\0"


def test_preallocation_makes_a_file_longer_and_never_shorter(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    file.write(0, [b"0123456789"])
    file.preallocate(5000)
    assert file.size() == 5000
    assert file.read(0, 12) == b"0123456789\0\0"
    file.preallocate(100)
    assert file.size() == 5000


def test_syncs_and_hints_return_and_change_nothing(disk: Disk) -> None:
    file = disk.open("a.log", create=True)
    file.write(0, [b"0123456789"])
    file.start_writeback(0, 10)
    file.datasync()
    disk.sync_directory("")
    assert disk.sync_all()
    file.forget_cached()
    assert file.read(0, 10) == b"0123456789"


def test_a_missing_file_is_opened_only_with_create(disk: Disk) -> None:
    with pytest.raises(FileVanished, match=r"a\.log does not exist"):
        disk.open("a.log")
    assert not disk.exists("a.log")
    disk.open("a.log", create=True).close()
    assert disk.exists("a.log")
    disk.open("a.log").close()


def test_opening_again_with_create_keeps_the_content(disk: Disk) -> None:
    disk.open("a.log", create=True).write(0, [b"kept"])
    assert disk.open("a.log", create=True).read(0, 10) == b"kept"


def test_a_file_opened_to_read_can_not_be_written(disk: Disk) -> None:
    disk.open("a.log", create=True).write(0, [b"kept"])
    file = disk.open("a.log", read_only=True)
    assert file.read(0, 4) == b"kept"
    with pytest.raises(DiskError):
        file.write(0, [b"lost"])
    assert disk.read("a.log") == b"kept"


def test_replace_puts_the_whole_content_in_place_and_leaves_nothing_else(disk: Disk) -> None:
    disk.make_directory("t-0")
    disk.replace("t-0/state", b"a longer first content")
    disk.replace("t-0/state", b"second")
    assert disk.read("t-0/state") == b"second"
    assert disk.names("t-0") == ["state"]


def test_rename_takes_the_place_of_a_file(disk: Disk) -> None:
    disk.replace("a", b"new")
    disk.replace("b", b"old")
    disk.rename("a", "b")
    assert disk.names() == ["b"]
    assert disk.read("b") == b"new"
    with pytest.raises(FileVanished):
        disk.rename("a", "c")


def test_a_directory_is_renamed_with_what_is_in_it(disk: Disk) -> None:
    disk.make_directory("t-0/deep")
    disk.replace("t-0/deep/a", b"1")
    disk.rename("t-0", "t-0-delete")
    assert disk.names() == ["t-0-delete"]
    assert disk.read("t-0-delete/deep/a") == b"1"


def test_names_and_stats_are_sorted(disk: Disk) -> None:
    for name in ("b", "a", "c"):
        disk.replace(name, name.encode() * 3)
    disk.make_directory("aa")
    assert disk.names() == ["a", "aa", "b", "c"]
    scanned = disk.scan()
    assert list(scanned) == ["a", "aa", "b", "c"]
    assert scanned["aa"].is_directory
    assert not scanned["a"].is_directory
    assert scanned["a"].size == 3
    assert scanned["a"] == disk.stat("a")


def test_directories_are_made_once_and_removed_when_empty(disk: Disk) -> None:
    disk.make_directory("a/b/c")
    disk.make_directory("a/b/c")
    with pytest.raises(FileThere):
        disk.remove_directory("a/b")
    disk.remove_directory("a/b/c")
    assert disk.names("a/b") == []
    with pytest.raises(FileVanished):
        disk.names("a/b/c")


def test_a_file_where_a_directory_should_be_is_an_error_with_its_path(disk: Disk) -> None:
    disk.replace("a", b"")
    with pytest.raises(FileThere, match="/a "):
        disk.make_directory("a")


def test_a_removed_file_goes_on_reading_where_it_is_open(disk: Disk) -> None:
    disk.replace("a", b"still here")
    file = disk.open("a")
    disk.remove("a")
    assert not disk.exists("a")
    assert file.read(0, 100) == b"still here"
    with pytest.raises(FileVanished):
        disk.remove("a")


def test_a_held_file_stays_open_over_close_until_it_is_released(disk: Disk) -> None:
    disk.replace("a", b"held")
    file = disk.open("a")
    file.hold()
    file.hold()
    file.close()
    assert file.closed
    file.release()
    assert file.read(0, 4) == b"held"
    file.release()
    with pytest.raises(DiskError):
        file.read(0, 4)
    file.close()


def test_the_age_of_a_file_can_be_set(disk: Disk) -> None:
    disk.replace("a", b"")
    disk.set_modified_ms("a", 1_700_000_000_123)
    assert disk.stat("a").modified_ms == 1_700_000_000_123


def test_space_is_known(disk: Disk) -> None:
    assert 0 < disk.free_bytes() <= disk.total_bytes()


def test_a_second_node_on_one_folder_is_refused_until_the_first_lets_go(disk: Disk) -> None:
    lock = disk.lock()
    with pytest.raises(DiskInUse, match="in use by another process"):
        disk.lock()
    lock.release()
    lock.release()
    disk.lock().release()


def test_a_path_is_shown_as_a_person_knows_it(disk: Disk) -> None:
    assert disk.full_path("") == disk.root
    assert disk.full_path("t-0/a") == f"{disk.root}/t-0/a"


@pytest.mark.parametrize(
    ("number", "family"),
    [
        ("ENOSPC", DiskFull),
        ("EDQUOT", DiskFull),
        ("EROFS", DiskReadOnly),
        ("EACCES", NoPermission),
        ("EPERM", NoPermission),
        ("ENOENT", FileVanished),
        ("EMFILE", TooManyOpenFiles),
        ("EIO", DiskError),
    ],
)
def test_each_failure_of_the_system_is_a_sentence_with_the_path(number: str, family: type[DiskError]) -> None:
    error = disk_error("/data/t-0/a.log", OSError(getattr(errno, number), "whatever"))
    assert type(error) is family
    assert str(error).startswith("/data/t-0/a.log ")
    assert ";" in str(error), "it says what to do"


def test_the_local_disk_goes_offline_with_its_first_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk(str(tmp_path))
    file = disk.open("a", create=True)
    file.write(0, [b"x"])
    reader, writer = os.pipe()  # a pipe can't be synced
    monkeypatch.setattr(file, "_descriptor", writer)
    with pytest.raises(SyncFailed, match="offline"):
        file.datasync()
    os.close(reader)
    other = disk.open("b", create=True)
    for promise in (other.datasync, disk.sync_all, lambda: disk.sync_directory(""), lambda: disk.replace("c", b"")):
        with pytest.raises(SyncFailed, match="/a could not be synced"):
            promise()
    assert disk.names() == ["a", "b"], "nothing was replaced, and it still reads"


def test_the_local_disk_hears_of_a_failed_sync_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LocalDisk(str(tmp_path))
    monkeypatch.setattr(local_disk, "_library", lambda: local_disk._Library(None, lambda descriptor: errno.EIO))
    with pytest.raises(SyncFailed, match="Input/output error"):
        disk.sync_all()
    assert disk.offline is not None


def test_the_local_disk_says_when_it_can_not_sync_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LocalDisk(str(tmp_path))
    monkeypatch.setattr(local_disk, "_library", local_disk._Library)
    monkeypatch.setattr(local_disk, "_has_syncfs", lambda: False)
    assert disk.sync_all() is False
    disk.open("a", create=True).start_writeback(0, 10)


def test_where_somebody_syncs_much_is_written_in_pieces_that_can_be_written_back_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk(str(tmp_path))
    file = disk.open("a.log", create=True)
    content, sizes = os.urandom(2 * WRITE_BACK_STEP_BYTES + 5), list[int]()
    pwrite = os.pwrite

    def written(descriptor: int, buffer: memoryview, position: int) -> int:
        sizes.append(len(buffer))
        return pwrite(descriptor, buffer[: len(buffer) - missing_bytes], position)

    monkeypatch.setattr(os, "pwrite", written)
    missing_bytes = 0
    assert file.write(7, [content]) == len(content)
    assert sizes == [len(content)], "nobody does"
    for missing, pieces in ((0, 3), (1, 1)):
        missing_bytes = missing
        sizes.clear()
        disk.sync_beats[0] += 2
        assert file.write(7, [content]) == len(content)
        assert file.read(7, len(content)) == content
        assert sizes == [WRITE_BACK_STEP_BYTES, WRITE_BACK_STEP_BYTES, 5][:pieces], "and the rest, when that is short"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_local_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    file = LocalDisk(str(tmp_path)).open("full")
    for buffers in ([b"x"], [b"x"] * 2000):
        with pytest.raises(DiskFull, match="full; free space on it"):
            file.write(0, buffers)


def test_a_local_folder_that_can_not_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NoFolder, match="choose a folder"):
        LocalDisk(str(tmp_path / "file"))


def test_a_name_that_leads_nowhere_is_not_scanned(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    (tmp_path / "there").write_bytes(b"123")
    (tmp_path / "gone").symlink_to(tmp_path / "missing")  # as a file that is removed between its listing and its stat
    assert {name: stat.size for name, stat in disk.scan().items()} == {"there": 3}


def test_a_cold_spot_makes_no_replay_of_what_is_in_memory_behind_it(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    file = disk.open("spotted", create=True)
    file.write(0, [bytes(32 << 20)])
    file.datasync()
    os.posix_fadvise(file.fileno(), 0, 8 << 20, os.POSIX_FADV_DONTNEED)
    if [file.is_cached(position << 20, 1 << 20) for position in range(32)] != [False] * 8 + [True] * 24:
        pytest.skip("this system keeps it in memory, or does not tell")
    ways = []
    for position in range(32):
        ways.append(file.is_at_hand(position << 20, 1 << 20))
        if not ways[-1]:
            file.read(*file.ahead_of(position << 20, 1 << 20))
    assert not ways[0]
    assert all(ways[8:])
    file.close()
    disk.close()


def test_where_only_a_read_tells_nothing_that_is_there_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 6.5. A worker sends replies there: with rests what is replayed from a cold disk, else without."""
    disk = LocalDisk(str(tmp_path))
    file = disk.open("old", create=True)
    file.write(0, [bytes(8 << 20)])
    file.datasync()
    is_told = file.is_cached(0, 8 << 20)
    monkeypatch.setattr(LocalFile, "is_cached", lambda *arguments: None)
    assert not file.is_at_hand(0, 1 << 20)
    assert file.ahead_of(0, 1 << 20) == (0, 0)
    file.forget_cached()
    monkeypatch.undo()
    if not is_told or file.is_cached(0, 8 << 20) is not False:
        pytest.skip("this system keeps it in memory, or does not tell")
    monkeypatch.setattr(LocalFile, "is_cached", lambda *arguments: None)
    assert file.ahead_of(0, 1 << 20) == (0, 2 << 20)
    assert file.ahead_of(1 << 20, 1 << 20) == (2 << 20, 1 << 20)
    file.close()
    disk.close()


@pytest.mark.parametrize("form", [page_cache, plain_form("storage/page_cache.py")], ids=lambda form: form.__name__)
def test_what_is_not_there_has_not_come(tmp_path: Path, form: Any) -> None:
    disk = LocalDisk(str(tmp_path))
    file = disk.open("cold", create=True)
    file.write(0, [bytes(4 << 20)])
    file.datasync()
    assert file.has_come(0, 4 << 20)
    for position, size in ((0, 4 << 20), (1, 1), (0, form.PROBE_BYTES + 1), ((4 << 20) - 1, 1 << 20), (5 << 20, 9)):
        assert form.has_come(file.fileno(), position, size), "or there is nothing"
    assert form.has_come(-1, 0, 1), "who reads it will tell"
    file.forget_cached()
    if file.is_cached(0, 4 << 20) is not False:
        pytest.skip("this system keeps it in memory, or does not tell")
    for position, size in ((1 << 20, 1 << 20), (3 << 20, 1), ((4 << 20) - 5000, 5000)):
        assert not form.has_come(file.fileno(), position, size)
        file.forget_cached()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    file.read(0, form.PROBE_BYTES)
    assert form.has_come(file.fileno(), 0, form.PROBE_BYTES)
    assert not form.has_come(file.fileno(), 0, form.PROBE_BYTES + 1 + (8 << 10)), "a part of it is not there"
    file.close()
    disk.close()


@pytest.mark.parametrize("form", [page_cache, plain_form("storage/page_cache.py")], ids=lambda form: form.__name__)
def test_where_no_read_tells_nothing_has_come(form: Any) -> None:
    try:
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            file.write(b"in memory")
            file.flush()
            with pytest.raises(OSError, match="not supported"):
                os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
            assert not form.has_come(file.fileno(), 0, 9)
    except (FileNotFoundError, pytest.fail.Exception):
        pytest.skip("there is no file system here that can't be read without a wait")


def test_what_is_read_without_a_wait_or_sent_makes_the_system_read_nothing_ahead(tmp_path: Path) -> None:
    """What its read-ahead brings comes before whoever sends it, so that it seems to be in memory: the loop would
    send a replay from a cold disk, and begin each of the reads."""
    disk = LocalDisk(str(tmp_path))
    written = disk.open("cold", create=True)
    written.write(0, [bytes(32 << 20)])
    written.datasync()
    written.close()
    file = disk.open("cold")
    file.forget_cached()
    if file.is_cached(0, 1 << 20) is not False:
        pytest.skip("this system keeps it in memory, or does not tell")
    file.read_cached(0, bytearray(27))
    file.read(0, 27)
    descriptor = file.to_send()
    assert descriptor is not None
    with open(os.devnull, "wb") as nobody:
        for position in range(0, 8 << 20, 64 << 10):
            os.sendfile(nobody.fileno(), descriptor, position, 64 << 10)
    assert page_cache.cached_pages(file.fileno(), 8 << 20, 24 << 20) == 0
    file.close()
    disk.close()


def test_a_read_that_must_not_wait_leaves_the_device_alone(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    file = disk.open("cold", create=True)
    content = bytes(range(256)) * (8 << 12)
    file.write(0, [content])
    file.datasync()
    buffer = bytearray(1 << 20)
    assert file.read_cached(0, buffer) == len(buffer)
    assert file.read_cached(len(content) - 20_000, bytearray(40_000)) == 20_000, "up to the end of the file"
    file.forget_cached()
    if file.is_cached(4 << 20, 1 << 20) is not False:
        pytest.skip("this system keeps it in memory, or does not tell")
    for position in range(4 << 20, 8 << 20, 1 << 20):
        assert file.read_cached(position, buffer) is None
    assert file.is_cached(4 << 20, 4 << 20) is False, "nobody has begun to read it"
    assert file.read_cold(0, buffer) == len(buffer)
    assert buffer == content[: 1 << 20]
    file.close()
    disk.close()
