# What `cython.cimports` lacks of the C library and of the system.
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

cdef extern from "unistd.h" nogil:
    int fdatasync(int descriptor)
    int syncfs(int descriptor)
    long syscall(long number, ...)

cdef extern from "sys/uio.h" nogil:
    int RWF_NOWAIT
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    Py_ssize_t preadv2(int descriptor, const iovec *parts, int count, int64_t position, int flags)

cdef extern from "fcntl.h" nogil:
    unsigned int SYNC_FILE_RANGE_WRITE
    int POSIX_FADV_WILLNEED
    int posix_fadvise(int descriptor, int64_t position, int64_t size, int advice)
    int sync_file_range(int descriptor, int64_t position, int64_t size, unsigned int flags)

cdef extern from "sched.h" nogil:
    int SCHED_IDLE

cdef extern from "time.h" nogil:
    int CLOCK_MONOTONIC
    int CLOCK_THREAD_CPUTIME_ID
    cdef struct timespec:
        int64_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)

cdef extern from "sys/syscall.h" nogil:
    long SYS_io_setup
    long SYS_io_destroy
    long SYS_io_submit
    long SYS_io_getevents
    long SYS_sched_getattr
    long SYS_sched_setattr

cdef extern from "linux/aio_abi.h" nogil:
    ctypedef unsigned long aio_context_t
    int IOCB_CMD_FDSYNC
    cdef struct iocb:
        uint64_t aio_data
        uint16_t aio_lio_opcode
        uint32_t aio_fildes
    cdef struct io_event:
        uint64_t data
        int64_t res
