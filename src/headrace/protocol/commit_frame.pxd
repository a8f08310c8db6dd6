cimport cython


cdef Py_ssize_t _HEAD_BYTES
cdef Py_ssize_t _OFFSET_BYTES


cdef class CommitFrame:
    cdef public list _fixed
    cdef public Py_ssize_t _free_bytes
    cdef public bytes _head
    cdef public bytes _last
    cdef public Py_ssize_t size_bytes
    @cython.locals(data=bytes, fixed=bytes, place=bytes, places=list, position=Py_ssize_t)
    cpdef tuple read(self, frame)
