"""Opening a log of a directory, and making durable what was found or made anew on the way."""

from __future__ import annotations

from collections.abc import Callable

from headrace.storage import names
from headrace.storage.checkpoint import TopicPartition
from headrace.storage.disk import Disk
from headrace.storage.flush import SyncsFiles
from headrace.storage.identity import PARTITION_METADATA, encode_topic_id
from headrace.storage.log import Log
from headrace.storage.partition_folder import confirm_topic_id, mend_topic_id
from headrace.storage.place import Place
from headrace.storage.recovery import Saved, open_log
from headrace.storage.shared import Shared


def open_in(
    disk: Disk,
    folder: str,
    key: TopicPartition,
    shared: Shared,
    flusher: SyncsFiles,
    *,
    saved: Saved,
    now_ms: int,
    advanced: Callable[[int], None] | None = None,
    topic_id: bytes | None = None,
) -> Log:
    """The log of a folder, whose topic id is mended where that is known. Raises HeadraceError.

    `topic_id` is that of a folder that was just made.
    """
    place = Place(disk, folder, shared.handles, shared.indexes)
    config = shared.config_of(key[0])
    is_mended = False
    if topic_id is None:
        topic_id, is_mended = mend_topic_id(disk, folder, None if saved.closed is None else saved.closed.topic_id)
        if topic_id is not None and not (is_mended or saved.is_clean or saved.lost_sync):
            confirm_topic_id(disk, folder, topic_id, is_written=saved.is_written)
    log = open_log(
        place, *key, config, shared.options, flusher, saved=saved, now_ms=now_ms, topic_id=topic_id, advanced=advanced
    )
    if saved.lost_sync:
        # Memory may show what the device never got (hazard 8), of the small files too: they are written anew.
        log.epochs.is_dirty = True
        if topic_id is not None:
            disk.replace(f"{folder}/{PARTITION_METADATA}", encode_topic_id(topic_id))
    if is_mended:
        place.names_changed = True
        log.unsynced.wrote([PARTITION_METADATA], with_batches=True)
    return log


def make_durable(disk: Disk, logs: list[Log], *, at_once: bool = True) -> None:
    """What was found or made anew, and what the life before made and did not sync: names of files and folders.

    On the spot, and at once where the system can: who has thousands of logs can't have all their files open until a
    group is through. Blocks.
    """
    if not logs:
        return
    with_epochs = [log for log in logs if log.unsynced.put_epochs()]
    if not (at_once and disk.sync_all()):
        for log in logs:
            names_of_log = [log.segments.active.name + names.LOG, PARTITION_METADATA]
            log.sync_now(names_of_log + log.unsynced.epochs_on_their_way)
    for log in with_epochs:
        log.unsynced.take_epochs()
    if with_epochs and not (at_once and disk.sync_all()):
        for log in with_epochs:
            disk.sync_directory(log.place.folder)
    for log in logs:
        log.unsynced.all_is_durable(log.log_end_offset)
