"""Room that is kept back on each disk, for what leads out of a full one (hazard 15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import LogConfig
from headrace.errors import Error, Refused
from headrace.storage.disk import RESERVE_BYTES, RESERVE_FILE, Disk, DiskError, DiskFull
from headrace.storage.inventory import is_log_directory
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.reserve import ASKS_EVERY_MS, find_reserve, require_room
from headrace.testing.disk import Faults, FaultyDisk
from tests.storage.logs import open_at, values_in
from tests.storage.nodes import SMALL, TOPIC_ID, Node, append

PATH = "a-checkpoint"
NOW_MS = 1_700_000_000_000


def full(disk: FaultyDisk) -> FaultyDisk:
    disk.faults.capacity_bytes = disk.platter.used_bytes()
    return disk


def refusal(log: Log) -> Refused:
    with pytest.raises(Refused) as refused:
        append(log, b"v")
    return refused.value


def disk_of(node: Node) -> FaultyDisk:
    (disk,) = node.disks
    assert isinstance(disk, FaultyDisk)
    return disk


def test_it_is_made_once_and_found_by_the_next_start() -> None:
    node = Node()
    disk = disk_of(node)
    size_bytes = disk.stat(RESERVE_FILE).size
    assert (disk.has_reserve, disk.is_tight, size_bytes) == (True, False, disk.reserve_bytes())
    again = disk_of(Node([full(disk).restart(faults=Faults(capacity_bytes=disk.faults.capacity_bytes))]))
    assert (again.has_reserve, again.is_tight) == (True, False)
    assert is_log_directory(again, {RESERVE_FILE: again.stat(RESERVE_FILE)})


def test_one_that_a_crash_left_too_small_is_made_whole() -> None:
    disk = FaultyDisk()
    disk.open(RESERVE_FILE, create=True).close()
    find_reserve(disk)
    assert disk.has_reserve
    assert disk.stat(RESERVE_FILE).size == disk.reserve_bytes()


def test_a_small_file_that_finds_no_room_takes_of_it_and_nobody_gets_the_rest() -> None:
    disk = FaultyDisk()
    find_reserve(disk)
    full(disk).replace(PATH, bytes(1000))
    assert disk.read(PATH) == bytes(1000)
    assert (disk.has_reserve, disk.is_tight) == (True, True)
    part_bytes = disk.reserve_bytes() // 16
    kept_bytes = disk.stat(RESERVE_FILE).size
    assert kept_bytes == 11 * part_bytes
    assert part_bytes <= disk.free() < 2 * part_bytes
    full(disk).replace(PATH, bytes(1500))
    with pytest.raises(DiskFull):
        disk.replace(PATH, bytes(disk.reserve_bytes()))
    assert disk.read(PATH) == bytes(1500)
    # What did not fit has left nothing that takes the room of the next.
    assert disk.has_reserve
    full(disk).replace("another", bytes(500))
    assert disk.is_tight


def test_what_is_left_of_it_is_there_for_the_next_start() -> None:
    disk = FaultyDisk()
    find_reserve(disk)
    full(disk).replace(PATH, bytes(1000))
    left_bytes = disk.stat(RESERVE_FILE).size
    disk = disk.restart(faults=Faults(capacity_bytes=disk.faults.capacity_bytes))
    find_reserve(disk)
    assert (disk.has_reserve, disk.is_tight, disk.stat(RESERVE_FILE).size) == (True, True, left_bytes)
    full(disk).replace(PATH, bytes(500))
    disk.faults.capacity_bytes = None
    require_room(disk, "t-0", NOW_MS)
    assert (disk.has_reserve, disk.is_tight) == (True, False)
    assert disk.stat(RESERVE_FILE).size == disk.reserve_bytes()


def test_of_two_threads_that_find_no_room_both_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    find_reserve(disk)
    write = disk._replace

    def interrupted(path: str, content: bytes) -> None:
        monkeypatch.setattr(FaultyDisk, "_replace", lambda self, path, content: write(path, content))
        try:
            write(path, content)
        except DiskFull:
            disk.replace("another", b"x")
            raise

    full(disk)
    monkeypatch.setattr(FaultyDisk, "_replace", lambda self, path, content: interrupted(path, content))
    disk.replace(PATH, bytes(1000))
    assert (disk.read(PATH), disk.read("another")) == (bytes(1000), b"x")


def test_records_never_take_it_and_wait_until_it_is_there_again() -> None:
    node = Node()
    disk, log = disk_of(node), node.directories.create("t", 0, TOPIC_ID)
    append(log, b"first")
    full(disk)
    assert refusal(log).error is Error.KAFKA_STORAGE_ERROR
    assert disk.has_reserve
    node.checkpoint()
    assert disk.is_tight
    # There is room for a record now, and none is taken: it would take the room of the next checkpoint.
    assert disk.free() > 200
    assert "full" in str(refusal(log))
    with pytest.raises(Refused, match="full"):
        node.directories.create("u", 0, bytes(16))
    others_bytes = disk.platter.used_bytes() - disk.stat(RESERVE_FILE).size
    disk.faults.capacity_bytes = others_bytes + 2 * disk.reserve_bytes() - 1
    disk.asked_room_ms = 0
    refusal(log)
    disk.faults.capacity_bytes += 1
    calls = disk.calls
    assert "full" in str(refusal(log))
    assert disk.calls == calls, "room was looked for a moment ago"
    disk.asked_room_ms -= ASKS_EVERY_MS
    append(log, b"second")
    assert (disk.has_reserve, disk.is_tight) == (True, False)
    assert [value for _, value in values_in(log)] == [b"first", b"second"]
    node.directories.create("u", 0, bytes(16))


def test_without_room_for_it_at_the_start_records_wait() -> None:
    platter = Node().disks[0]
    assert isinstance(platter, FaultyDisk)
    platter.remove(RESERVE_FILE)
    used_bytes = platter.platter.used_bytes()
    disk = platter.restart(faults=Faults(capacity_bytes=used_bytes + platter.reserve_bytes()))
    find_reserve(disk)
    assert (disk.has_reserve, disk.is_tight, disk.stat(RESERVE_FILE).size) == (False, True, 0)
    disk.faults.capacity_bytes = None
    require_room(disk, "t-0", NOW_MS)
    assert (disk.has_reserve, disk.is_tight) == (True, False)


def test_what_is_free_is_found_out_by_taking_it() -> None:
    """A system tells others than root less, and some tell nothing."""

    class Modest(FaultyDisk):
        def free_bytes(self) -> int:
            return 0

    disk = Modest()
    find_reserve(disk)
    assert (disk.has_reserve, disk.is_tight) == (True, False)
    full(disk).replace(PATH, bytes(1000))
    assert disk.stat(RESERVE_FILE).size > disk.reserve_bytes() // 2
    disk.faults.capacity_bytes = None
    require_room(disk, "t-0", NOW_MS)
    assert disk.stat(RESERVE_FILE).size == disk.reserve_bytes()


def test_a_part_stays_while_there_is_no_room_for_all() -> None:
    disk = FaultyDisk()
    find_reserve(disk)
    full(disk).replace(PATH, bytes(1000))
    kept_bytes = disk.stat(RESERVE_FILE).size
    with pytest.raises(DiskFull):
        require_room(disk, "t-0", NOW_MS)
    assert (disk.has_reserve, disk.stat(RESERVE_FILE).size) == (True, kept_bytes)


def test_a_record_that_is_in_the_log_is_acknowledged_again_on_a_tight_disk() -> None:
    node = Node()
    disk, log = disk_of(node), node.directories.create("t", 0, TOPIC_ID)
    append(log, b"v", producer_id=9, producer_epoch=0, base_sequence=0)
    full(disk)
    node.checkpoint()
    assert disk.is_tight
    append(log, b"v", producer_id=9, producer_epoch=0, base_sequence=0)
    with pytest.raises(Refused):
        append(log, b"v", producer_id=9, producer_epoch=0, base_sequence=1)
    assert log.log_end_offset == 1


def test_where_nothing_can_be_kept_back_records_are_taken_all_the_same() -> None:
    disk = FaultyDisk()
    disk.faults.errors_at_calls[disk.calls + 4] = DiskError  # after stat, open and size
    find_reserve(disk)
    assert (disk.has_reserve, disk.is_tight, disk.stat(RESERVE_FILE).size) == (False, False, 0)


def essential(disk: Disk, config: LogConfig = SMALL) -> Log:
    return open_at(disk, config, options=LogOptions(takes_reserve=True))


@pytest.mark.parametrize("before", [1, 12], ids=["an append", "a new segment"])
def test_what_is_essential_takes_it_and_goes_on_while_others_wait(before: int) -> None:
    disk = FaultyDisk()
    find_reserve(disk)
    log = essential(disk)
    for number in range(before):
        append(log, b"%d" % number + bytes(10))
    full(disk)
    for number in range(before, before + 5):
        append(log, b"%d" % number + bytes(10))
    assert (disk.is_tight, len(values_in(log))) == (True, before + 5)
    disk.open(RESERVE_FILE).truncate(0)
    full(disk)
    assert refusal(log).error is Error.KAFKA_STORAGE_ERROR
    assert log.offline is None


def test_on_a_full_disk_what_is_deleted_goes_at_once() -> None:
    node = Node(config=LogConfig(file_delete_delay_ms=60_000))
    disk = disk_of(node)
    for topic in ("t", "u"):
        append(node.directories.create(topic, 0, TOPIC_ID), b"v")
    node.directories.delete("t", 0)
    full(disk)
    node.directories.delete("u", 0)
    node.look_after()
    node.drain()
    assert [name[0] for name in disk.names() if name.endswith("-delete")] == ["t"]


@pytest.mark.parametrize("is_full", [True, False])
def test_on_a_full_disk_retention_makes_room_at_once(is_full: bool) -> None:
    config = LogConfig(segment_bytes=1000, retention_bytes=1000, file_delete_delay_ms=60_000)
    node = Node(config=config)
    disk, log = disk_of(node), node.directories.create("t", 0, TOPIC_ID)
    for _ in range(30):
        append(log, bytes(200))
    log.set_high_watermark(log.log_end_offset)
    if is_full:
        full(disk)
    node.look_after()
    node.drain()
    assert any(name.endswith(".deleted") for name in disk.names("t-0")) is not is_full


def test_how_much_room_is_wanted_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    find_reserve(disk)
    for _ in range(3):
        full(disk).replace(PATH, bytes(500))
    assert caplog.messages == ["/disk is full, and takes no records until 8 KiB are free: delete or trim topics"]


def test_on_a_real_disk_it_holds_blocks(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    find_reserve(disk)
    assert disk.reserve_bytes() <= RESERVE_BYTES
    stat = (tmp_path / RESERVE_FILE).stat()
    assert stat.st_size == disk.reserve_bytes()
    assert stat.st_blocks * 512 >= stat.st_size
    disk.close()
