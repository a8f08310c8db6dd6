cimport cython


cdef class FetchReply:
    cdef public tuple _fixed
    cdef public bint _has_session
    cdef public bint _has_start_offset
    cdef public object _index
    cdef public bint _is_flexible
    cdef public Py_ssize_t _other_bytes
    cdef public object _pack
    cdef public bytes _tail
    cdef public tuple _topic
    @cython.locals(fixed=tuple, tail=bytes, values=list, size=Py_ssize_t)
    cpdef write(self, response, correlation_id)
