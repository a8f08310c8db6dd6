# cython: language_level=3
"""How much of a file is in memory: the system call for it, which Python's os module lacks.

It is asked before each large reply to a fetch. Compiled, that is the call alone; by way of ctypes, which the same file
uses where it runs as it stands, it takes several microseconds more.
"""

from __future__ import annotations

from typing import Final

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.headrace.storage.system_calls import syscall
else:
    import ctypes

    # Of a kind that keeps the interpreter: the call does not wait.
    _syscall: Final = ctypes.PyDLL(None, use_errno=True).syscall
    _Two: Final = ctypes.c_uint64 * 2
    _Five: Final = ctypes.c_uint64 * 5

__all__ = ["COMPILED", "cached_pages"]

COMPILED: bool = cython.compiled
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
