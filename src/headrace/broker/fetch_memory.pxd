cdef class ReplyMemory:
    cdef public object _call_soon
    cdef public dict _held
    cdef public object _spare_bytes
    cdef public dict _spares
    cdef public dict _waiting
    cdef public object held_bytes
    cdef public object on_full
    cdef public object size_bytes
    cpdef buffer(self, size_bytes)
    cpdef _take(self, size_bytes)
    cpdef forget(self, wake)
    cpdef _give_back(self, size_bytes)
