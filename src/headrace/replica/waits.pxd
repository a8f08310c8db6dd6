cdef class OffsetWaits:
    cdef public object _waiting
    cpdef reached(self, offset, error=*)
