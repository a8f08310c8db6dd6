cdef class InSync:
    cdef public object _collected_from
    cdef public list _flushing
    cdef public object _point
    cdef public object bound
    cdef public bint is_alone
    cdef public bint is_enough
    cdef public object isr
    cdef public object replicas
    cpdef high_watermark(self, mark, log_end)
    cpdef bint must_sync(self, offset)
    cpdef flushing(self, end_offset)
    cpdef flushed(self, point)
    cpdef _find_bound(self)
