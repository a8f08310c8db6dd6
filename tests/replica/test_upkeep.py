"""What happens to logs while nobody asks for them."""

from __future__ import annotations

from typing import Any

from headrace.config import LogConfig, StorageConfig
from headrace.protocol import messages as m
from headrace.replica.upkeep import Upkeep
from headrace.storage.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from tests.replica.hosts import TOPIC_ID, Host, setting
from tests.storage.batches import batch

HOUR_MS = 3_600_000


class Kept:
    """A host that is looked after."""

    def __init__(self, config: LogConfig | None = None, **storage: Any) -> None:
        self.host = Host(config=config)
        self.upkeep = Upkeep(
            self.host.replicas,
            self.host.settings,
            StorageConfig(**storage),
            self.host.waits,
            call_soon=self.host.loop.soon.append,
        )
        self.upkeep.start()

    def pass_ms(self, time_ms: int, step_ms: int = 500) -> None:
        for _ in range(max(1, time_ms // step_ms)):
            self.host.loop.pass_ms(min(step_ms, time_ms))
            self.host.drain()

    def append(self, *values: bytes, **header: Any) -> None:
        header.setdefault("timestamps", [self.host.now_ms()] * len(values))
        self.host.partition().append(memoryview(batch(*values, **header)), 1, self.host.now_ms())


def test_old_segments_go_at_the_interval_that_is_set() -> None:
    kept = Kept(LogConfig(segment_bytes=150, retention_ms=5_000), log_retention_check_interval_ms=1_000)
    kept.host.create()
    for _ in range(4):
        kept.append(b"x" * 50)
    kept.pass_ms(4_000)
    assert kept.host.partition().log_start_offset == 0
    kept.pass_ms(3_000)
    assert kept.host.partition().log_start_offset == 4


def test_high_watermarks_and_recovery_points_are_written_down_at_the_least_interval() -> None:
    kept = Kept(replica_high_watermark_checkpoint_interval_ms=2_000)
    kept.host.create()
    kept.append(b"a", b"b")
    kept.pass_ms(1_500)
    disk = kept.host.disks[0]
    assert read_offsets(disk, HIGH_WATERMARKS).get(("t", 0), 0) == 0
    kept.pass_ms(1_000)
    assert read_offsets(disk, HIGH_WATERMARKS)["t", 0] == 2
    assert read_offsets(disk, RECOVERY_POINTS)["t", 0] == 0


def test_flush_ms_flushes_what_nobody_waits_for() -> None:
    kept = Kept()
    kept.host.create()
    kept.append(b"a")
    kept.pass_ms(20_000)
    log = kept.host.partition().log
    assert log.flushed_offset == 0
    kept.host.apply(setting("flush.ms", "1000"))
    kept.pass_ms(7_000)
    assert log.flushed_offset == 1
    kept.append(b"b")
    kept.pass_ms(1_500)
    assert log.flushed_offset == 2


def test_producers_that_wrote_nothing_for_long_are_forgotten() -> None:
    kept = Kept(producer_id_expiration_ms=10_000, producer_id_expiration_check_interval_ms=1_000)
    kept.host.create()
    kept.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    kept.pass_ms(5_000)
    assert len(kept.host.partition().log.producers) == 1
    kept.pass_ms(10_000)
    assert len(kept.host.partition().log.producers) == 0


def test_the_files_of_a_deleted_topic_go_when_their_time_has_come() -> None:
    kept = Kept(LogConfig(file_delete_delay_ms=3_000), log_retention_check_interval_ms=HOUR_MS)
    kept.host.create("t", 3)
    kept.host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    kept.pass_ms(2_000)
    assert len([name for name in kept.host.disks[0].names() if name.startswith("t-")]) == 3
    kept.pass_ms(2_000)
    assert not [name for name in kept.host.disks[0].names() if name.startswith("t-")]


def test_what_is_due_first_goes_first_whoever_gave_it_up() -> None:
    kept = Kept(LogConfig(file_delete_delay_ms=60_000), log_retention_check_interval_ms=HOUR_MS)
    kept.host.create("t", 3)
    [directory] = kept.host.replicas.directories.all
    logs = [directory.logs["t", number] for number in range(3)]
    directory.delete(logs[0])
    logs[1].configure(LogConfig(file_delete_delay_ms=2_000))
    directory.delete(logs[1])  # as a move does with what it left
    left = []
    for _ in range(4):
        left.append(len([name for name in kept.host.disks[0].names() if name.endswith("-delete")]))
        kept.pass_ms(1_500)
    assert left == [2, 2, 1, 1]
    kept.pass_ms(58_000)
    assert not [name for name in kept.host.disks[0].names() if name.endswith("-delete")]
    assert [name for name in kept.host.disks[0].names() if name.startswith("t-")] == ["t-2"]


def test_many_logs_are_looked_after_in_steps() -> None:
    kept = Kept(log_retention_check_interval_ms=1_000)
    kept.host.create("t", 120)
    kept.host.loop.pass_ms(1_000)
    steps = 0
    while kept.host.loop.soon:
        kept.host.loop.soon.popleft()()
        steps += 1
    assert steps == 2


def test_after_a_stop_nothing_begins() -> None:
    kept = Kept(log_retention_check_interval_ms=1_000)
    kept.host.create()
    kept.upkeep.stop()
    kept.pass_ms(HOUR_MS, HOUR_MS)
    kept.pass_ms(HOUR_MS, HOUR_MS)
    assert len(kept.host.waits) == 0
