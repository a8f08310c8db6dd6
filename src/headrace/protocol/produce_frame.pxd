cimport cython


cdef class ProduceFrame:
    cdef public bint _has_log_start
    cdef public bint _is_flexible
    cdef public object _pack
    cdef public bytes _reply_end
    cdef public bytes _reply_start
    cdef public bytes _size
    cdef public bytes head
    cdef public bytes prefix
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t)
    cpdef records_in(self, frame)
    cpdef bytes reply(self, bytes correlation_id, base_offset, log_append_time_ms, log_start_offset)
