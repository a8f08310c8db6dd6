"""A clean stop of a log directory: everything is written and synced, and files tell the next start (`last_stop`)."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.storage.checkpoint import NOT_CLOSED, RECOVERY_POINTS, TopicPartition, write_offsets
from headrace.storage.checkpoints import Checkpoints
from headrace.storage.clean_shutdown import write_clean_shutdown
from headrace.storage.closed_logs import ClosedLog, write_closed_logs
from headrace.storage.disk import Disk
from headrace.storage.expected_starts import ExpectedStarts
from headrace.storage.flush import SyncsFiles
from headrace.storage.last_stop import SYNC_FAILED
from headrace.storage.log import Log
from headrace.storage.reopening import OfflineLog


def stop_cleanly(
    disk: Disk,
    broker_epoch: int,
    flusher: SyncsFiles,
    checkpoints: Checkpoints,
    *,
    logs: Mapping[TopicPartition, Log],
    offline_logs: Mapping[TopicPartition, OfflineLog],
    expected: ExpectedStarts,
) -> None:
    """Blocks. Raises DiskError, and then the stop was not clean."""
    written = {log: log.write_out() for log in logs.values() if log.offline is None}
    if not disk.sync_all():
        flusher.sync_owed()
        for log, file_names in written.items():
            log.sync_now(file_names)
    contents = checkpoints.contents()
    contents[RECOVERY_POINTS] |= {(log.topic, log.partition): log.log_end_offset for log in written}
    for name, offsets in contents.items():
        write_offsets(disk, name, offsets)
    for log in written:
        log.checkpointed(log.log_end_offset, log.truncations)
    not_closed = dict.fromkeys(expected.by_partition(), 0)  # what has moved away, and could not leave
    not_closed |= {key: 0 for key, log in logs.items() if log not in written}
    not_closed |= {key: int(found.saved.lost_sync) for key, found in offline_logs.items()}
    if not_closed or disk.exists(NOT_CLOSED):
        write_offsets(disk, NOT_CLOSED, not_closed)
    if disk.exists(SYNC_FAILED):  # there was no room for that before
        disk.remove(SYNC_FAILED)
    closed = {key: found.saved.closed for key, found in offline_logs.items() if found.saved.closed is not None}
    closed |= {(log.topic, log.partition): ClosedLog.of(log) for log in written}
    write_clean_shutdown(disk, broker_epoch, write_closed_logs(disk, closed))
