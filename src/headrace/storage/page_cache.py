# cython: language_level=3
"""How much of a file is in memory: the system call for it, which Python's os module lacks.

It is asked before each large reply to a fetch. Compiled, that is the call alone; by way of ctypes, which the same file
uses where it runs as it stands, it takes several microseconds more.

A page counts from when it was asked for. Whether it has come only a read tells, and so a byte here and there is read.
"""

from __future__ import annotations

import errno as errors
import os
import sys
from typing import Final

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.headrace.storage.system_calls import RWF_NOWAIT, iovec, preadv2, syscall
    from cython.cimports.libc.errno import EAGAIN, EINTR, EOPNOTSUPP, errno
else:
    import ctypes

    # Of a kind that keeps the interpreter: the call does not wait.
    _syscall: Final = ctypes.PyDLL(None, use_errno=True).syscall
    _Two: Final = ctypes.c_uint64 * 2
    _Five: Final = ctypes.c_uint64 * 5

__all__ = ["COMPILED", "PROBE_BYTES", "cached_pages", "has_come"]

COMPILED: bool = cython.compiled
PROBE_BYTES: Final = 128 << 10
"""What Linux reads ahead at a time, unless somebody has set it to less: a byte of each is enough."""
_CACHESTAT: Final = 451  # on every processor


def cached_pages(descriptor: int, position: int, size: int) -> int:
    """How many pages of a range are in memory; -1 when this file system does not tell."""
    if cython.compiled:
        asked = cython.declare(cython.ulonglong[2])
        found = cython.declare(cython.ulonglong[5])
        asked[0] = position
        asked[1] = size
        if syscall(451, cython.cast(cython.int, descriptor), cython.address(asked[0]), cython.address(found[0]), 0):
            return -1
        return found[0]
    told = _Five()
    if _syscall(_CACHESTAT, descriptor, ctypes.byref(_Two(position, size)), ctypes.byref(told), 0):
        return -1
    return int(told[0])


def has_come(descriptor: int, position: int, size: int) -> bool:
    """Whether a range that counts as being in memory can be read without a wait, as far as a byte here and there tells.

    Where a page is not even asked for it is now: look at `cached_pages` before. Where there is no such read it has not.
    """
    at: cython.longlong = position
    last: cython.longlong = position + size - 1
    step: cython.longlong = PROBE_BYTES
    if cython.compiled:
        file: cython.int = descriptor
        byte: cython.char = 0
        into = cython.declare(iovec)
        into.iov_base = cython.address(byte)
        into.iov_len = 1
        while at <= last:
            if preadv2(file, cython.address(into), 1, at, RWF_NOWAIT) < 0:
                if errno == EINTR:
                    continue
                return errno != EAGAIN and errno != EOPNOTSUPP
            at = at + step if at == last or at + step < last else last
        return True
    if sys.platform == "linux":
        one = bytearray(1)
        try:
            while at <= last:
                os.preadv(descriptor, [one], at, os.RWF_NOWAIT)
                at = at + step if at == last or at + step < last else last
        except BlockingIOError:
            return False
        except OSError as error:  # of others whoever reads it will tell
            return error.errno != errors.EOPNOTSUPP
    return True
