"""The marker of a clean stop, `.kafka_cleanshutdown`: everything was synced, so that the next start checks nothing.

It holds the broker epoch of the stop, by which the controller tells an unclean restart of the last replica (KIP-966).
"""

from __future__ import annotations

import json
from typing import Final

from headrace.storage.disk import Disk, FileVanished

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
UNKNOWN_BROKER_EPOCH: Final = -1

_VERSION: Final = 0


def write_clean_shutdown(disk: Disk, broker_epoch: int) -> None:
    """The last write of a clean stop, after the sync of everything else. A disk that went offline refuses it."""
    content = {"version": _VERSION, "brokerEpoch": broker_epoch}
    disk.replace(CLEAN_SHUTDOWN, json.dumps(content, separators=(",", ":")).encode())


def take_clean_shutdown(disk: Disk) -> int | None:
    """The broker epoch of the last clean stop, or None after an unclean one. The marker is gone, durably, after it.

    So it counts once: a crash at any later moment is an unclean stop. Kafka before 3.8 left it empty, which is a clean
    stop at an unknown epoch; a damaged one is an unclean stop.
    """
    try:
        content = disk.read(CLEAN_SHUTDOWN)
    except FileVanished:
        return None
    disk.remove(CLEAN_SHUTDOWN)
    disk.sync_directory("")
    if not content:
        return UNKNOWN_BROKER_EPOCH
    try:
        broker_epoch = json.loads(content)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return None
    return broker_epoch if isinstance(broker_epoch, int) else None
