# cython: language_level=3
"""The work of the threads that sync, write back and get memory, and how the loop speaks to them: by pipes.

Each message is of one size.

Compiled, they need the interpreter for none of it: a sync begins while the loop runs on, the next one begins as soon
as it has ended, with all that was asked for meanwhile, and its end interrupts nobody. A thread that runs Python waits
for the loop before each sync, with the disk idle meanwhile, and takes the interpreter from it afterwards. The same file
runs as it stands, which is such a thread then.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import takewhile
from struct import Struct
from typing import Final

try:
    import cython
except ImportError:  # a machine that runs the file as it stands needs no Cython either
    from headrace.protocol import kernel_shim as cython

from headrace.storage.local_disk import (
    SLOW_NS_A_BYTE,
    WRITE_BACK_STEP_BYTES,
    sync_descriptor,
    sync_file_system,
    write_back,
)

if cython.compiled:
    from cython.cimports.headrace.storage.system_calls import (
        CLOCK_MONOTONIC,
        CLOCK_THREAD_CPUTIME_ID,
        IOCB_CMD_FDSYNC,
        POSIX_FADV_WILLNEED,
        SCHED_IDLE,
        SYNC_FILE_RANGE_WRITE,
        SYS_io_destroy,
        SYS_io_getevents,
        SYS_io_setup,
        SYS_io_submit,
        SYS_sched_getattr,
        SYS_sched_setattr,
        aio_context_t,
        clock_gettime,
        fdatasync,
        io_event,
        iocb,
        posix_fadvise,
        sync_file_range,
        syncfs,
        syscall,
        timespec,
    )
    from cython.cimports.libc.errno import EINTR, errno
    from cython.cimports.libc.string import memset
    from cython.cimports.posix.unistd import read, usleep, write

__all__ = [
    "COMPILED",
    "FILES_MAX",
    "MESSAGES_MAX",
    "ask_range",
    "ask_sync",
    "hear",
    "serve_headroom",
    "serve_syncs",
    "serve_write_backs",
]

COMPILED: bool = cython.compiled
# The sizes of the arrays below follow from these two.
FILES_MAX: Final = 13
"""Of one message."""
MESSAGES_MAX: Final = 64
"""That may be under way: as much as a thread reads at a time, and as a pipe takes without a wait."""

_FIRST_US: Final = 4800
_BETWEEN_US: Final = 280
_NAP_US: Final = 100
_NAPS_MAX: Final = 20
# Who writes back waits before it begins, between two steps, and, in naps, while a sync is under way. To each the kernel
# adds some 0.06 ms of its own.

HEADROOM_STEP_BYTES: Final = 32 << 10
"""Who is in the kernel may not be interrupted there: a tenth of a millisecond, where memory is slow."""

_SYNC: Final = Struct(f"=3i{FILES_MAX}i")  # files, from how many on at once, the file system, descriptors
_TOLD: Final = Struct("=6q")  # messages, files, whether at once, the error, its descriptor, nanoseconds
_RANGE: Final = Struct("=3q")  # descriptor, position, size


# --- of the loop ------------------------------------------------------------------------------------------------------


def ask_sync(pipe: int, descriptors: list[int], files: int, at_once_from: int, file_system: int) -> None:
    """Asks for a sync of up to FILES_MAX files, or of the file system when there are more files than that.

    From `at_once_from` files on that are asked for together it is the file system, too, unless that is 0. No files at
    all end the thread.
    """
    if len(descriptors) > FILES_MAX:
        raise ValueError(f"{len(descriptors)} files are too many for one message")
    if not cython.compiled:
        padded = descriptors + [-1] * (FILES_MAX - len(descriptors))
        os.write(pipe, _SYNC.pack(files, at_once_from, file_system, *padded))
        return
    message = cython.declare(cython.int[16])
    to: cython.int = pipe
    place: cython.int = 3
    message[0] = files
    message[1] = at_once_from
    message[2] = file_system
    for descriptor in descriptors:
        message[place] = descriptor
        place += 1
    while place < 16:
        message[place] = -1
        place += 1
    if write(to, cython.address(message[0]), 64) != 64:
        raise OSError(errno, os.strerror(errno))


def hear(pipe: int) -> tuple[int, int, int, int, int, int] | None:
    """What has ended: messages, files, whether at once, the number of an error and its descriptor, nanoseconds.

    None when nothing has. Raises EOFError when the thread itself has ended.
    """
    if not cython.compiled:
        try:
            content = os.read(pipe, _TOLD.size)
        except BlockingIOError:
            return None
        if not content:
            raise EOFError
        return _TOLD.unpack(content)
    told = cython.declare(cython.longlong[6])
    of: cython.int = pipe
    size: cython.int = read(of, cython.address(told[0]), 48)
    if size == 0:
        raise EOFError
    if size < 0:
        return None
    return told[0], told[1], told[2], told[3], told[4], told[5]


def ask_range(pipe: int, descriptor: int, position: int, size: int) -> bool:
    """Of no file it ends the thread. False when the pipe is full, or the thread has ended."""
    if not cython.compiled:
        try:
            return os.write(pipe, _RANGE.pack(descriptor, position, size)) > 0
        except (BlockingIOError, BrokenPipeError):
            return False
    message = cython.declare(cython.longlong[3])
    to: cython.int = pipe
    message[0] = descriptor
    message[1] = position
    message[2] = size
    return write(to, cython.address(message[0]), 24) == 24


# --- of the threads ---------------------------------------------------------------------------------------------------


def serve_syncs(asked_pipe: int, told_pipe: int, sync_beats: bytearray) -> None:
    """Syncs all that was asked for, again and again, and tells. Returns when it is asked for no files.

    The one byte of `sync_beats` is odd while a sync is under way.
    """
    if not cython.compiled:
        _serve_syncs(asked_pipe, told_pipe, sync_beats)
        return
    asked: cython.int = asked_pipe
    told: cython.int = told_pipe
    beats: cython.p_uchar = sync_beats
    messages = cython.declare(cython.int[1024])
    found = cython.declare(cython.int[832])
    result = cython.declare(cython.longlong[6])
    count: cython.int
    files: cython.int
    at_once: cython.bint
    at: cython.int
    place: cython.int
    known: cython.int
    descriptor: cython.int
    size: cython.int
    began: cython.longlong
    context: aio_context_t = 0
    failed: cython.int = -1
    with cython.nogil:
        _shorten_slice()
        if syscall(SYS_io_setup, 64, cython.address(context)):
            context = 0
        while True:
            size = read(asked, cython.address(messages[0]), 4096)
            if size <= 0:
                if size < 0 and errno == EINTR:
                    continue
                break
            count = files = 0
            at_once = False
            at = 0
            while at < size // 4 and messages[at]:
                if messages[at] > 13:
                    at_once = True
                    files += messages[at]
                else:
                    place = at + 3
                    while place < at + 3 + messages[at]:
                        descriptor = messages[place]
                        known = 0
                        while known < count and found[known] != descriptor:
                            known += 1
                        if known == count:
                            found[count] = descriptor
                            count += 1
                        place += 1
                at += 16
            if not at:
                break
            files += count
            if messages[at - 15] and files >= messages[at - 15]:
                at_once = True
            beats[0] += 1
            began = _clock_ns(CLOCK_MONOTONIC)
            if at_once:
                failed = messages[at - 14]
                result[3] = errno if syncfs(failed) else 0
            else:
                result[3] = _sync_files(context, cython.address(found[0]), count, cython.address(failed))
            result[5] = _clock_ns(CLOCK_MONOTONIC) - began
            beats[0] += 1
            result[0] = at // 16
            result[1] = files
            result[2] = at_once
            result[4] = failed
            if write(told, cython.address(result[0]), 48) != 48 or at < size // 4:
                break
        if context:
            syscall(SYS_io_destroy, context)


def serve_write_backs(asked_pipe: int, sync_beats: bytearray) -> None:
    """Starts the write-back of what was asked for. Returns when it is asked for no file.

    Where it keeps up it begins some milliseconds later, out of the way of what is appended next, and of those who
    waited for the loop while it appended a megabyte. Where something was synced since the last time, it goes in steps,
    with a pause behind each, and lets the sync pass that is under way, unless that takes long: so nobody's sync waits
    for much more than a step.
    """
    if not cython.compiled:
        _serve_write_backs(asked_pipe, sync_beats)
        return
    asked: cython.int = asked_pipe
    beats: cython.p_uchar = sync_beats
    ranges = cython.declare(cython.longlong[192])
    at: cython.int
    end: cython.int
    beat: cython.uchar = beats[0]
    keeps_up: cython.bint
    is_gentle: cython.bint
    naps: cython.int
    rest_us: cython.int
    naps_max: cython.int
    step: cython.longlong
    first_us: cython.int = _FIRST_US
    between_us: cython.int = _BETWEEN_US
    while_syncing: cython.int = _NAPS_MAX
    nap_us: cython.int = _NAP_US
    step_bytes: cython.longlong = WRITE_BACK_STEP_BYTES
    with cython.nogil:
        while True:
            end = read(asked, cython.address(ranges[0]), 1536)
            if end <= 0:
                if end < 0 and errno == EINTR:
                    continue
                break
            end = end // 8
            keeps_up = end == 3 and ranges[0] >= 0
            is_gentle = keeps_up and beats[0] != beat
            beat = beats[0]
            rest_us = first_us if keeps_up else 0
            naps_max = while_syncing if is_gentle else 0
            at = 0
            while at < end:
                if rest_us:
                    usleep(rest_us)
                naps = 0
                while naps < naps_max and beats[0] & 1:
                    usleep(nap_us)
                    naps += 1
                rest_us = between_us if is_gentle else 0
                if ranges[at] < 0:
                    end = 0
                    break
                step = step_bytes if is_gentle and ranges[at + 2] > step_bytes else ranges[at + 2]
                # What goes wrong here the next sync of the file tells, to those who wait for it. To wait for the end of
                # a step by this call would take that from them: it tells of each failure once.
                sync_file_range(ranges[at], ranges[at + 1], step, SYNC_FILE_RANGE_WRITE)
                ranges[at + 1] += step
                ranges[at + 2] -= step
                if ranges[at + 2] <= 0:
                    at += 3
            if end == 0:
                break


def _serve_write_backs(asked_pipe: int, sync_beats: bytearray) -> None:
    beat = sync_beats[0]
    while content := os.read(asked_pipe, _RANGE.size * MESSAGES_MAX):
        ranges = list(_RANGE.iter_unpack(content))
        keeps_up = len(ranges) == 1 and ranges[0][0] >= 0
        is_gentle = keeps_up and sync_beats[0] != beat
        beat = sync_beats[0]
        rest_us, naps_max = _FIRST_US if keeps_up else 0, _NAPS_MAX if is_gentle else 0
        for descriptor, position, size in ranges:
            if descriptor < 0:
                return
            step = WRITE_BACK_STEP_BYTES if is_gentle else max(size, 1)
            for start in range(position, position + size, step):
                time.sleep(rest_us / 1e6)
                naps = 0
                while naps < naps_max and sync_beats[0] & 1:
                    time.sleep(_NAP_US / 1e6)
                    naps += 1
                rest_us = _BETWEEN_US if is_gentle else 0
                write_back(descriptor, start, min(step, position + size - start))


def serve_headroom(asked_pipe: int, slow_beats: bytearray, is_free: bytearray) -> None:
    """Has what it is asked for brought into memory. Returns when it is asked for no file.

    The one byte of `slow_beats` counts the ranges for which memory was slow, and that of `is_free` is 1 after each.
    """
    if not cython.compiled:
        _serve_headroom(asked_pipe, slow_beats, is_free)
        return
    asked: cython.int = asked_pipe
    beats: cython.p_uchar = slow_beats
    free: cython.p_uchar = is_free
    ranges = cython.declare(cython.longlong[192])
    at: cython.int
    size: cython.int
    done: cython.longlong
    began: cython.longlong
    step_bytes: cython.longlong = HEADROOM_STEP_BYTES
    slow_ns: cython.longlong = SLOW_NS_A_BYTE
    with cython.nogil:
        _take_what_is_left()
        while True:
            size = read(asked, cython.address(ranges[0]), 1536)
            if size <= 0:
                if size < 0 and errno == EINTR:
                    continue
                break
            at = 0
            while at < size // 8 and ranges[at] >= 0:
                began = _clock_ns(CLOCK_THREAD_CPUTIME_ID)
                done = 0
                # It may be closed by now, or another file may have its number, which does no harm.
                while done < ranges[at + 2] and not posix_fadvise(
                    ranges[at], ranges[at + 1] + done, step_bytes, POSIX_FADV_WILLNEED
                ):
                    done += step_bytes
                if done and _clock_ns(CLOCK_THREAD_CPUTIME_ID) - began > done * slow_ns:
                    beats[0] += 1
                free[0] = 1
                at += 3
            if at < size // 8:
                break


def _serve_headroom(asked_pipe: int, slow_beats: bytearray, is_free: bytearray) -> None:
    while content := os.read(asked_pipe, _RANGE.size * MESSAGES_MAX):
        for descriptor, position, size in _RANGE.iter_unpack(content):
            if descriptor < 0:
                return
            began = time.thread_time_ns()
            done = 0
            with suppress(OSError):
                while done < size:
                    os.posix_fadvise(descriptor, position + done, HEADROOM_STEP_BYTES, os.POSIX_FADV_WILLNEED)
                    done += HEADROOM_STEP_BYTES
            if done and time.thread_time_ns() - began > done * SLOW_NS_A_BYTE:
                slow_beats[0] = (slow_beats[0] + 1) & 0xFF
            is_free[0] = 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _take_what_is_left() -> cython.void:
    """This thread runs when nobody else wants the processor. Not with the interpreter: who wants that would wait."""
    attributes = cython.declare(cython.ulonglong[6])  # as below
    if syscall(SYS_sched_getattr, 0, cython.address(attributes[0]), 48, 0) == 0:
        attributes[0] = 48 + (cython.cast(cython.ulonglong, SCHED_IDLE) << 32)
        syscall(SYS_sched_setattr, 0, cython.address(attributes[0]), 0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _shorten_slice() -> cython.void:
    """So that this thread runs when it is woken, and not when the loop that woke it takes a rest.

    It has work for some microseconds, then the disk has. Linux lets who asks for shorter slices run first (since 6.12);
    where it does not, nothing changes.
    """
    # size, policy, flags, nice, priority, slice in nanoseconds, deadline, period: its header and glibc's are at odds.
    attributes = cython.declare(cython.ulonglong[6])
    if syscall(SYS_sched_getattr, 0, cython.address(attributes[0]), 48, 0) == 0:
        attributes[3] = 100000
        syscall(SYS_sched_setattr, 0, cython.address(attributes[0]), 0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _clock_ns(clock: cython.int) -> cython.longlong:
    now = cython.declare(timespec)
    clock_gettime(clock, cython.address(now))
    return now.tv_sec * cython.cast(cython.longlong, 1000000000) + now.tv_nsec


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _sync_files(
    context: aio_context_t, descriptors: cython.p_int, count: cython.int, failed: cython.p_int
) -> cython.int:
    """The number of the first error. The kernel syncs several side by side, where it can."""
    controls = cython.declare(iocb[64])
    submitted = cython.declare(cython.pointer(iocb)[64])
    ended = cython.declare(io_event[64])
    first: cython.int = 0
    error: cython.int = 0
    begun: cython.int
    number: cython.int
    left: cython.long
    while first < count:
        left = count - first
        begun = 0
        if context and left > 1:
            if left > 64:
                left = 64
            memset(cython.address(controls[0]), 0, left * cython.sizeof(iocb))
            number = 0
            while number < left:
                controls[number].aio_data = first + number
                controls[number].aio_lio_opcode = IOCB_CMD_FDSYNC
                controls[number].aio_fildes = descriptors[first + number]
                submitted[number] = cython.address(controls[number])
                number += 1
            begun = syscall(SYS_io_submit, context, left, cython.address(submitted[0]))
            left = begun if begun > 0 else 0
            while left > 0:
                number = syscall(SYS_io_getevents, context, left, left, cython.address(ended[0]), cython.NULL)
                if number < 0:
                    if errno == EINTR:
                        continue
                    # They may be under way still, and nobody will ever know how they end.
                    error = errno
                    failed[0] = descriptors[first]
                    return error
                left -= number
                while number > 0:
                    number -= 1
                    if ended[number].res < 0 and not error:
                        error = -ended[number].res
                        failed[0] = descriptors[ended[number].data]
        if begun > 0:
            first += begun
            continue
        # One alone, or one that the kernel does not sync by itself.
        while fdatasync(descriptors[first]):
            if errno != EINTR:
                if not error:
                    error = errno
                    failed[0] = descriptors[first]
                break
        first += 1
    return error


def _serve_syncs(asked_pipe: int, told_pipe: int, sync_beats: bytearray) -> None:
    is_over = False
    while not is_over and (content := os.read(asked_pipe, _SYNC.size * MESSAGES_MAX)):
        messages = list(takewhile(lambda message: message[0], _SYNC.iter_unpack(content)))
        is_over = len(messages) < len(content) // _SYNC.size
        if not messages:
            return
        at_once_from, file_system = messages[-1][1:3]
        few = [message for message in messages if message[0] <= FILES_MAX]
        descriptors = dict.fromkeys(descriptor for files, _, _, *found in few for descriptor in found[:files])
        files = len(descriptors) + sum(message[0] for message in messages if message[0] > FILES_MAX)
        at_once = files > len(descriptors) or 0 < at_once_from <= files
        sync_beats[0] = (sync_beats[0] + 1) & 0xFF
        began = time.perf_counter_ns()
        error, failed = 0, -1
        if at_once:
            error, failed = sync_file_system(file_system), file_system
        else:
            for descriptor in descriptors:
                if (number := sync_descriptor(descriptor)) and not error:
                    error, failed = number, descriptor
        took = time.perf_counter_ns() - began
        sync_beats[0] = (sync_beats[0] + 1) & 0xFF
        os.write(told_pipe, _TOLD.pack(len(messages), files, at_once, error, failed, took))
