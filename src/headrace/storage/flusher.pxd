cdef class Group:
    cdef public dict directories
    cdef public dict files
    cdef public list waiting


cdef class Flusher:
    cdef public object _behind
    cdef public object _call_soon
    cdef public object _clock
    cdef public object _costs
    cdef public object _disk
    cdef public object _headroom
    cdef public Group _group
    cdef public bint _is_offline
    cdef public bint _is_scheduled
    cdef public bint _is_working
    cdef public object _on_offline
    cdef public list _resting
    cdef public object _running
    cdef public object _syncs
    cdef public object _workers
    cdef public object groups
    cdef public object latency
    cdef public object synced_at_once
    cdef public object synced_files
