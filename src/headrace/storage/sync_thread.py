# cython: language_level=3
"""The work of a thread that syncs a whole file system, each time that it is asked to.

Compiled, it needs the interpreter for none of it: a sync begins while the loop runs on, and its end interrupts nobody.
A thread that runs Python waits for the loop before each sync, with the disk idle meanwhile, and takes the interpreter
from it afterwards. The same file runs as it stands, which is such a thread then.
"""

from __future__ import annotations

import os

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.headrace.storage.system_calls import syncfs
    from cython.cimports.libc.errno import EINTR, errno
    from cython.cimports.posix.unistd import read, write
else:
    from headrace.storage.local_disk import sync_file_system

__all__ = ["COMPILED", "END", "SYNC", "serve"]

COMPILED: bool = cython.compiled
SYNC = 1
END = 2


def serve(asked_descriptor: int, told_descriptor: int, descriptor: int) -> None:
    """Syncs the file system of `descriptor` when the one event descriptor is given SYNC, and tells the other 1, or 1
    more than the number of an error. Returns when it is given END."""
    asked: cython.int = asked_descriptor
    told: cython.int = told_descriptor
    synced: cython.int = descriptor
    number: cython.ulonglong = 0
    if cython.compiled:
        with cython.nogil:
            while True:
                if read(asked, cython.address(number), 8) != 8:
                    if errno == EINTR:
                        continue
                    break
                if number != 1:
                    break
                if syncfs(synced):
                    number = 1 + errno
                if write(told, cython.address(number), 8) != 8:
                    break
    else:
        while os.eventfd_read(asked) == SYNC:
            os.eventfd_write(told, 1 + sync_file_system(synced))
