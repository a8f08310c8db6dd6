cimport cython


cdef class CommitFrame:
    cdef public tuple _fixed
    cdef public bint _has_epochs
    cdef public bytes _head
    cdef public tuple _no_epochs
    cdef public object _unpack
    cdef public Py_ssize_t size_bytes
    @cython.locals(found=tuple)
    cpdef tuple read(self, frame)
