# cython: language_level=3
"""Sends bytes of a file to a socket, and brings into memory what comes next, in steps that let syncs pass.

A disk does what it is given in turn, or nearly so: a sync waits for all that was asked to be read before it. So what is
read ahead is asked for a step at a time, and a step waits for the sync that is under way, unless that takes long.
And who is served beside it waits for a processor: so it may rest after each step, for longer than it was at work.
Compiled, a thread that sends needs the interpreter for none of it. The same file runs as it stands.
"""

from __future__ import annotations

import errno as errors
import os
import time
from contextlib import suppress
from typing import Final

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

if cython.compiled:
    from cython.cimports.headrace.net.system_calls import (
        CLOCK_THREAD_CPUTIME_ID,
        MSG_DONTWAIT,
        MSG_MORE,
        MSG_NOSIGNAL,
        clock_gettime,
        send_bytes,
        sendfile,
        timespec,
    )
    from cython.cimports.libc.errno import EINTR, errno
    from cython.cimports.posix.fcntl import POSIX_FADV_WILLNEED, posix_fadvise
    from cython.cimports.posix.types import off_t
    from cython.cimports.posix.unistd import usleep

__all__ = ["COMPILED", "NAPS_MAX", "NAP_US", "REST_US_MAX", "STEP_BYTES", "send", "send_ahead"]

COMPILED: bool = cython.compiled
STEP_BYTES: Final = 256 << 10
"""A quarter of a millisecond of a disk that reads a gigabyte a second."""
NAP_US: Final = 100
NAPS_MAX: Final = 20
"""A step waits no longer for a sync, and later ones not for the same: beside a disk that hangs a replay goes on."""
REST_US_MAX: Final = 5000


def send(
    socket: int,
    descriptor: int,
    position: int,
    size: int,
    ahead_position: int,
    ahead_size: int,
    sync_beats: bytearray,
    rests: int,
) -> int:
    """How many bytes the socket took, or the number of the error, negative, when it took none; 0 at the file's end.

    Behind what the socket took the same share of what is `ahead` is asked for, rounded down. The one byte of
    `sync_beats` is odd while a sync is under way. A step for which something was asked is followed by a rest: so many
    times as long as it had a processor.
    """
    if not cython.compiled:
        return _send(socket, descriptor, position, size, ahead_position, ahead_size, sync_beats, rests)
    to: cython.int = socket
    file: cython.int = descriptor
    at: off_t = position
    whole: cython.longlong = size
    ahead_at: cython.longlong = ahead_position
    ahead: cython.longlong = ahead_size
    beats: cython.p_uchar = sync_beats
    beat: cython.uchar
    passed: cython.uchar = 0
    naps: cython.int
    step: cython.longlong
    step_max: cython.longlong = STEP_BYTES if ahead_size else size
    naps_max: cython.int = NAPS_MAX
    nap_us: cython.int = NAP_US
    share: cython.longlong
    asked: cython.longlong = 0
    taken: cython.longlong
    sent: cython.longlong = 0
    error: cython.int = 0
    times: cython.longlong = rests
    began_us: cython.longlong = 0
    rest_us: cython.longlong
    rest_us_max: cython.longlong = REST_US_MAX
    with cython.nogil:
        if times:
            began_us = _processor_us()
        while sent < whole:
            step = whole - sent
            if step > step_max:
                step = step_max
            taken = sendfile(to, file, cython.address(at), step)
            if taken < 0:
                if errno == EINTR:
                    continue
                error = errno
                break
            if taken == 0:
                break
            sent += taken
            share = ahead * sent // whole
            if share == asked:
                continue
            beat = beats[0]
            if beat & 1 and beat != passed:
                passed = beat
                naps = 0
                while beats[0] == passed and naps < naps_max:
                    usleep(nap_us)
                    naps += 1
            posix_fadvise(file, ahead_at + asked, share - asked, POSIX_FADV_WILLNEED)
            asked = share
            if times:
                rest_us = times * (_processor_us() - began_us)
                usleep(rest_us if rest_us < rest_us_max else rest_us_max)
                began_us = _processor_us()
    return sent if sent else -error


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _processor_us() -> cython.longlong:
    """What this thread had so far."""
    now = cython.declare(timespec)
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, cython.address(now))
    return now.tv_sec * cython.cast(cython.longlong, 1000000) + now.tv_nsec // 1000


def send_ahead(socket: int, data: bytes) -> int:
    """As `send`, for a few bytes with a stretch of a file behind them, which are best sent with it."""
    if not cython.compiled:
        return _send_ahead(socket, data)
    text: cython.p_char = data
    size: cython.Py_ssize_t = len(data)
    taken: cython.Py_ssize_t = send_bytes(socket, text, size, MSG_MORE | MSG_DONTWAIT | MSG_NOSIGNAL)
    return taken if taken >= 0 else -errno


def _send(
    socket: int,
    descriptor: int,
    position: int,
    size: int,
    ahead_position: int,
    ahead_size: int,
    sync_beats: bytearray,
    rests: int,
) -> int:
    began_ns = time.thread_time_ns()
    passed = asked = sent = 0
    step = STEP_BYTES if ahead_size else size
    while sent < size:
        try:
            taken = os.sendfile(socket, descriptor, position + sent, min(step, size - sent))
        except OSError as error:
            return sent or -(error.errno or errors.EIO)
        if not taken:
            break
        sent += taken
        share = ahead_size * sent // size
        if share == asked:
            continue
        beat = sync_beats[0]
        if beat & 1 and beat != passed:
            passed = beat
            naps = 0
            while sync_beats[0] == passed and naps < NAPS_MAX:
                time.sleep(NAP_US / 1e6)
                naps += 1
        _advise(descriptor, ahead_position + asked, share - asked, os.POSIX_FADV_WILLNEED)
        asked = share
        if rests:
            time.sleep(min(rests * (time.thread_time_ns() - began_ns) / 1e9, REST_US_MAX / 1e6))
            began_ns = time.thread_time_ns()
    return sent


def _send_ahead(socket: int, data: bytes) -> int:
    try:
        return os.write(socket, data)
    except OSError as error:
        return -(error.errno or errors.EIO)


def _advise(descriptor: int, position: int, size: int, advice: int) -> None:
    with suppress(OSError):  # it was only advice
        os.posix_fadvise(descriptor, position, size, advice)
