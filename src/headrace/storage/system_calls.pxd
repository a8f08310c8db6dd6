# What `cython.cimports` lacks of the C library.
cdef extern from "unistd.h" nogil:
    int syncfs(int descriptor)
    long syscall(long number, ...)
