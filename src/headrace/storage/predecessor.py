"""What is in a log directory under the name of a new log. It is never taken over (hazard 9).

A folder of another topic is set aside, and so is one that was never flushed, of which nothing was promised. Of this
topic, or of nobody knows which, it may be the only copy, and an empty log in its place would pass for a replica that
has everything.
"""

from __future__ import annotations

from headrace.errors import Error, Refused
from headrace.storage.disk import Disk
from headrace.storage.identity import WrongDirectory, is_topic_id_cut, read_topic_id
from headrace.storage.partition_folder import is_unmade, remove_folder
from headrace.storage.reopening import OfflineLog


def why_set_aside(disk: Disk, folder: str, topic_id: bytes, offline: OfflineLog | None) -> str | None:
    """Why the folder is to be set aside for a log of this topic; None when nothing is in its way, or no longer.

    `offline` is what is known of a log that is there and can't be opened. Raises Refused where it is to stay.
    """
    if offline is None and not disk.exists(folder):
        return None
    try:
        found = read_topic_id(disk, folder)
    except WrongDirectory:
        found = None
    if found is not None and found != topic_id:
        return "is of a topic that is no more"
    if offline is None and is_unmade(disk, folder):
        remove_folder(disk, folder)
        return None
    if _was_never_flushed(disk, folder, topic_id, offline):
        return "lost power before its first flush, and its topic id with it"
    raise Refused(
        Error.KAFKA_STORAGE_ERROR,
        f"{disk.full_path(folder)} is there and can't be used"
        + (f" ({offline.why})" if offline is not None else "")
        + "; mend it or move it out of the log directory, then restart the node",
    )


def _was_never_flushed(disk: Disk, folder: str, topic_id: bytes, offline: OfflineLog | None) -> bool:
    """Its topic id is cut short. It becomes durable with the first flush, so that there has been none."""
    if offline is not None and (offline.saved.closed is not None or offline.saved.recovery_point):
        return False
    return is_topic_id_cut(disk, folder, topic_id)
