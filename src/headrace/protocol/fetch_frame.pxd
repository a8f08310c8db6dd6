cdef class FetchFrame:
    cdef public tuple _fixed
    cdef public bytes _head
    cdef public object _unpack
    cdef public Py_ssize_t size_bytes
    cpdef tuple read(self, frame)
