# What `cython.cimports` lacks of the C library.
from posix.types cimport off_t

cdef extern from "sys/sendfile.h" nogil:
    Py_ssize_t sendfile(int to, int descriptor, off_t *position, size_t size)
