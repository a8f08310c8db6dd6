# What `cython.cimports` lacks of the C library.
cdef extern from "fcntl.h" nogil:
    int POSIX_FADV_RANDOM
    int POSIX_FADV_WILLNEED
    int posix_fadvise(int descriptor, long long position, long long size, int advice)

cdef extern from "sys/sendfile.h" nogil:
    Py_ssize_t sendfile(int to, int descriptor, long long *position, size_t size)

cdef extern from "unistd.h" nogil:
    int usleep(unsigned int microseconds)
