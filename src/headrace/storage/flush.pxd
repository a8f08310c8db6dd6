cdef class Unsynced:
    cdef public list _closed
    cdef public object _epochs
    cdef public list _first_files
    cdef public object _flusher
    cdef public list _flushing
    cdef public object _place
    cdef public object _segments
    cdef public object _settling
    cdef public dict _side_files
    cdef public object _wants_settling
    cdef public object epochs_on_their_way
    cdef public bint is_new_folder
    cdef public object point
    cdef public object settled_point
    cdef public object write_back_at
    cpdef _sync_closed(self)


cdef class _Flush:
    cdef public object _flushed
    cdef public Unsynced _unsynced
    cdef public object offset
