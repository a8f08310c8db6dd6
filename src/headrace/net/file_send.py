# cython: language_level=3
"""Sends bytes of a file to a socket, and brings into memory what comes next, in steps that let syncs pass.

A disk does what it is given in turn, or nearly so: a sync waits for all that was asked to be read before it. So what is
read ahead is asked for a step at a time, and not while a sync is under way, unless that takes long. Compiled, a thread
that sends needs the interpreter for none of it. The same file runs as it stands.
"""

from __future__ import annotations

import errno as errors
import os
import time
from typing import Final

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.headrace.net.system_calls import (
        POSIX_FADV_RANDOM,
        POSIX_FADV_WILLNEED,
        posix_fadvise,
        sendfile,
        usleep,
    )
    from cython.cimports.libc.errno import EINTR, errno

__all__ = ["COMPILED", "NAPS_MAX", "NAP_US", "STEP_BYTES", "send"]

COMPILED: bool = cython.compiled
STEP_BYTES: Final = 256 << 10
"""A quarter of a millisecond of a disk that reads a gigabyte a second."""
NAP_US: Final = 100
NAPS_MAX: Final = 20
"""A sync that takes longer is not waited for: on a disk that is always busy with them a replay must go on."""


def send(
    socket: int, descriptor: int, position: int, size: int, ahead_position: int, ahead_size: int, sync_beats: bytearray
) -> int:
    """How many bytes the socket took, or the number of the error, negative, when it took none; 0 at the file's end.

    What is `ahead` is asked for along with what is sent, the same share of both. The one byte of `sync_beats` is odd
    while a sync is under way.
    """
    if not cython.compiled:
        return _send(socket, descriptor, position, size, ahead_position, ahead_size, sync_beats)
    to: cython.int = socket
    file: cython.int = descriptor
    at: cython.longlong = position
    left: cython.longlong = size
    ahead_at: cython.longlong = ahead_position
    ahead_left: cython.longlong = ahead_size
    beats: cython.p_uchar = sync_beats
    beat: cython.uchar
    naps: cython.int
    step: cython.longlong
    asked: cython.longlong
    taken: cython.longlong
    sent: cython.longlong = 0
    step_max: cython.longlong = STEP_BYTES
    naps_max: cython.int = NAPS_MAX
    nap_us: cython.int = NAP_US
    error: cython.int = 0
    with cython.nogil:
        if ahead_left:
            # Marks for read-ahead would make whoever reads them start more of it, on the loop: it is asked for instead.
            posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM)
        while left > 0:
            step = left if left < step_max else step_max
            if ahead_left:
                asked = (ahead_left * step + left - 1) // left
                beat = beats[0]
                naps = 0
                while beat & 1 and beats[0] == beat and naps < naps_max:
                    usleep(nap_us)
                    naps += 1
                posix_fadvise(file, ahead_at, asked, POSIX_FADV_WILLNEED)
                ahead_at += asked
                ahead_left -= asked
            taken = sendfile(to, file, cython.address(at), step)
            if taken < 0:
                if errno == EINTR:
                    continue
                error = errno
                break
            if taken == 0:
                break
            sent += taken
            left -= taken
    return sent if sent else -error


def _send(
    socket: int, descriptor: int, position: int, size: int, ahead_position: int, ahead_size: int, sync_beats: bytearray
) -> int:
    if ahead_size:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    sent = 0
    while sent < size:
        left = size - sent
        step = min(STEP_BYTES, left)
        if ahead_size:
            asked = (ahead_size * step + left - 1) // left
            beat, naps = sync_beats[0], 0
            while beat & 1 and sync_beats[0] == beat and naps < NAPS_MAX:
                time.sleep(NAP_US / 1e6)
                naps += 1
            os.posix_fadvise(descriptor, ahead_position, asked, os.POSIX_FADV_WILLNEED)
            ahead_position += asked
            ahead_size -= asked
        try:
            taken = os.sendfile(socket, descriptor, position + sent, step)
        except OSError as error:
            return sent or -(error.errno or errors.EIO)
        if not taken:
            break
        sent += taken
    return sent
