# What `cython.cimports` lacks of the C library.
from posix.types cimport off_t

cdef extern from "sys/sendfile.h" nogil:
    Py_ssize_t sendfile(int to, int descriptor, off_t *position, size_t size)

cdef extern from "time.h" nogil:
    int CLOCK_THREAD_CPUTIME_ID
    cdef struct timespec:
        long long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)

cdef extern from "sys/socket.h" nogil:
    int MSG_DONTWAIT
    int MSG_MORE
    int MSG_NOSIGNAL
    Py_ssize_t send_bytes "send"(int to, const void *data, size_t size, int flags)
