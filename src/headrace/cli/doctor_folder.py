"""What `headrace doctor` looks at of a node's folder: its disk, its file system, whose it is, how it was left.

Nothing is changed, and no lock is taken: a node may be running, or be about to start.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.cli.cluster_state import DISK_FULL_SHARE, DISK_LOW_SHARE
from headrace.cli.doctor_machine import Machine
from headrace.cli.doctor_quorum import quorum_findings
from headrace.cli.findings import Finding, Level
from headrace.cli.quantities import size_text
from headrace.errors import HeadraceError
from headrace.storage.clean_shutdown import read_clean_shutdown
from headrace.storage.disk import LOCK_FILE
from headrace.storage.identity import MetaProperties
from headrace.storage.inventory import is_log_directory
from headrace.storage.local_disk import LocalDisk

_FLOCK: Final = "hhqqi"
_VOLATILE: Final = {"tmpfs", "ramfs"}
_REMOTE: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs", "fuse.glusterfs"}


def folder_findings(folder: Path, machine: Machine) -> Iterator[Finding]:
    if not folder.exists():
        parent = next(parent for parent in folder.absolute().parents if parent.exists())
        yield Finding(Level.NOTE, "folder", f"{folder} is not there yet; a node makes it at its first start.")
        yield from _place(parent, machine)
        return
    if not folder.is_dir():
        yield Finding(Level.PROBLEM, "folder", f"{folder} is a file.", "Name a folder: --data DIR.")
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            Level.PROBLEM,
            "folder",
            f"{folder} can't be read and written by this user.",
            f"Give it to the user that runs the node: `chown -R USER {folder}`.",
        )
        return
    yield from _place(folder, machine)
    yield from _contents(folder)


def _place(folder: Path, machine: Machine) -> Iterator[Finding]:
    usage = shutil.disk_usage(folder)
    share = usage.free / usage.total if usage.total else 1.0
    text = f"{size_text(usage.free)} of {size_text(usage.total)} free ({share:.0%})."
    advice = "Delete what is not needed, or put the data on a larger disk with --data; a full disk stops writes."
    if share < DISK_FULL_SHARE:
        yield Finding(Level.PROBLEM, "disk", text, advice)
    elif share < DISK_LOW_SHARE:
        yield Finding(Level.WARNING, "disk", text, advice)
    else:
        yield Finding(Level.GOOD, "disk", text)
    yield _file_system(folder, machine)


def _file_system(folder: Path, machine: Machine) -> Finding:
    kind = file_system_of(folder, machine.text("/proc/self/mountinfo") or "")
    text = f"{folder} is on {kind or 'a file system that is not known'}."
    if kind in _VOLATILE:
        advice = "It is gone with the power: put data that matters on a disk, with --data."
        return Finding(Level.WARNING, "file system", text, advice)
    if kind in _REMOTE:
        advice = "Its locks and fsync depend on a network: a local disk with ext4 or XFS is safer and much faster."
        return Finding(Level.WARNING, "file system", text, advice)
    if kind == "overlay":
        advice = "It goes with the container: put the data on a volume, with --data."
        return Finding(Level.NOTE, "file system", text, advice)
    return Finding(Level.GOOD if kind else Level.NOTE, "file system", text)


def file_system_of(folder: Path, mounts: str) -> str:
    """The kind of the file system that a folder is on, by the lines of /proc/self/mountinfo; empty if not told."""
    path, best, kind = str(folder.resolve()), -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        inside = point == "/" or path == point or path.startswith(f"{point}/")
        if inside and len(point) >= best and after:
            best, kind = len(point), after.split(" ")[0]
    return kind


def _contents(folder: Path) -> Iterator[Finding]:
    disk = LocalDisk(str(folder.absolute()))
    try:
        found = disk.scan()
        identity = MetaProperties.read(disk)
        shutdown = read_clean_shutdown(disk)
    except HeadraceError as error:
        yield Finding(Level.PROBLEM, "identity", f"{str(error).rstrip('.')}.")
        return
    if identity is None:
        if found and not is_log_directory(disk, found):
            text = f"{folder} has files in it that are not a log's; a node would be started among them."
            yield Finding(Level.WARNING, "identity", text, "Name a folder of the node's own: --data DIR.")
        elif found:
            yield Finding(Level.WARNING, "identity", f"{folder} has logs in it and no meta.properties.")
        return
    yield Finding(Level.GOOD, "identity", f"Node {identity.node_id} of cluster {identity.cluster_id}.")
    yield from quorum_findings(disk, identity)
    process = holder(folder)
    if process is not None:
        who = f"process {process}" if process else "a process"
        yield Finding(Level.GOOD, "in use", f"A node runs on it ({who}).")
    elif shutdown is None and any("-" in name for name in found):
        text = "It was not closed cleanly; the next start looks for damage and mends it."
        yield Finding(Level.NOTE, "last stop", text, f"To look before: `headrace log verify {folder}`")
    else:
        yield Finding(Level.GOOD, "last stop", "It was closed cleanly.")


def holder(folder: Path) -> int | None:
    """The process that has the folder's lock; None when nobody has. Asked, and never taken."""
    try:
        with open(folder / LOCK_FILE, "rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else max(0, process)
