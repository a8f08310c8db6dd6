"""The ports of a node that runs on a real machine."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
import time
from typing import Final

from headrace.broker.ports import NodePorts
from headrace.broker.process import LocalProcess
from headrace.cores import cores
from headrace.storage.cleaning_work import CleaningProcesses
from headrace.storage.disk import Disk
from headrace.storage.headroom import ThreadHeadroom
from headrace.storage.local_disk import LocalDisk
from headrace.storage.syncs import Ended, ThreadSyncs
from headrace.storage.workers import WorkerThread
from headrace.storage.write_behind import ThreadWriteBehind

SENDERS: Final = 3
"""As many as Kafka has threads for its network. None is there before it has something to do."""
OPEN_FILES_MAX: Final = 100_000
_SPARE_FILES: Final = 256


def local_ports(loop: asyncio.AbstractEventLoop) -> NodePorts:
    """For a process that is the node."""
    ports = guest_ports(loop)
    ports.open_files = _raise_open_files()
    return ports


def guest_ports(loop: asyncio.AbstractEventLoop, *, syncs_files: bool = True) -> NodePorts:
    """For a node in somebody else's process, whose limits it leaves alone."""
    threads: list[WorkerThread | ThreadSyncs | ThreadWriteBehind | ThreadHeadroom] = []
    processes = CleaningProcesses()
    process = LocalProcess()

    def workers_of(name: str, *, gives_way: bool = False) -> WorkerThread:
        thread = WorkerThread(loop.call_soon_threadsafe, name, gives_way=gives_way)
        threads.append(thread)
        return thread

    def syncs_of(disk: Disk, ended: Ended) -> ThreadSyncs:
        syncs = ThreadSyncs(loop, disk, ended)
        threads.append(syncs)
        return syncs

    def behind_of(disk: Disk) -> ThreadWriteBehind:
        behind = ThreadWriteBehind(disk)
        threads.append(behind)
        return behind

    def headroom_of(disk: Disk) -> ThreadHeadroom:
        headroom = ThreadHeadroom(disk)
        threads.append(headroom)
        return headroom

    def stop() -> None:
        for thread in threads:
            thread.stop()
        processes.stop()
        process.stop()

    return NodePorts(
        disk_of=disk_of,
        workers_of=workers_of,
        clean=processes.start,
        now_ms=now_ms,
        clock_ns=time.perf_counter_ns,
        process=process,
        random_bytes=os.urandom,
        choose=choose,
        host_name=socket.gethostname,
        senders=[workers_of(f"sender-{number}", gives_way=True) for number in range(SENDERS)],
        syncs_of=syncs_of if syncs_files else None,
        behind_of=behind_of if syncs_files else None,
        headroom_of=headroom_of if syncs_files and sys.platform == "linux" else None,
        cores=cores(),
        open_files=_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        rest=processes.rest,
        stop=stop,
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def choose(below: int) -> int:
    """Of 64 bits, so that no number is likelier than another by more than nobody will ever see."""
    return int.from_bytes(os.urandom(8)) % below


def disk_of(folder: str) -> LocalDisk:
    return LocalDisk(os.path.abspath(folder))


def _raise_open_files() -> int:
    """As many open files as the system allows; half of them for segments, the rest for connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > OPEN_FILES_MAX:
        hard = OPEN_FILES_MAX
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = hard
        except (OSError, ValueError):
            pass
    return _open_files(soft)


def _open_files(limit: int) -> int:
    """Of as many as there may be."""
    return max(64, (min(limit, OPEN_FILES_MAX) - _SPARE_FILES) // 2)
