"""The marker of a clean stop, `.kafka_cleanshutdown`: everything was synced, so that the next start checks nothing.

It holds the broker epoch of the stop, by which the controller tells an unclean restart of the last replica (KIP-966),
and the CRC32C of `closed_logs`. Kafka reads over what it does not know, and writes a marker without it.
"""

from __future__ import annotations

import json
from typing import Final

from headrace.named_tuple import NamedTuple
from headrace.storage.disk import Disk, FileVanished

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
UNKNOWN_BROKER_EPOCH: Final = -1

_VERSION: Final = 0


class CleanShutdown(NamedTuple):
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    closed_logs_crc: int | None = None
    """Of the file that says what this stop left; None where Kafka stopped."""


def write_clean_shutdown(disk: Disk, broker_epoch: int, closed_logs_crc: int | None = None) -> None:
    """The last write of a clean stop, after the sync of everything else. A disk that went offline refuses it."""
    content = {"version": _VERSION, "brokerEpoch": broker_epoch}
    if closed_logs_crc is not None:
        content["headraceClosedLogs"] = closed_logs_crc
    disk.replace(CLEAN_SHUTDOWN, json.dumps(content, separators=(",", ":")).encode())


def read_clean_shutdown(disk: Disk) -> CleanShutdown | None:
    """None after an unclean stop.

    Kafka before 3.8 left the marker empty, which is a clean stop at an unknown epoch; a damaged one is an unclean stop.
    """
    try:
        content = disk.read(CLEAN_SHUTDOWN)
    except FileVanished:
        return None
    if not content:
        return CleanShutdown()
    try:
        found = json.loads(content)
        broker_epoch, closed_logs_crc = found["brokerEpoch"], found.get("headraceClosedLogs")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return CleanShutdown(broker_epoch, closed_logs_crc) if isinstance(broker_epoch, int) else None


def take_clean_shutdown(disk: Disk) -> CleanShutdown | None:
    """The last clean stop, or None after an unclean one. The marker is gone, durably, after it.

    So it counts once: a crash at any later moment is an unclean stop.
    """
    found = read_clean_shutdown(disk)
    if disk.exists(CLEAN_SHUTDOWN):
        disk.remove(CLEAN_SHUTDOWN)
        disk.sync_directory("")
    return found
