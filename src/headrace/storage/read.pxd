cdef class Piece:
    cdef public object file
    cdef public object position
    cdef public object size_bytes


cdef class Fetched:
    cdef public object end_offset
    cdef public object found_bytes
    cdef public list pieces
    cdef public object sent_offset
    cdef public object size_bytes
    cpdef hold(self)
    cpdef release(self)
