cdef class Appended:
    cdef public object first_offset
    cdef public bint is_duplicate
    cdef public object last_offset
    cdef public object log_append_time
    cdef public object log_start_offset
    cdef public object size_bytes


cdef class Prepared:
    cdef public list batches
    cdef public object content
    cdef public object now_ms
    cdef public object rules
