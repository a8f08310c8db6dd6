cdef class Stretch:
    cdef public object _ahead
    cdef public object _sync_beats
    cdef public object descriptor
    cdef public long long position
    cdef public long long size_bytes
    cpdef send(self, socket, long long most_bytes)


cdef class Stretches:
    cdef public object parts
    cdef public Py_ssize_t size_bytes


cdef class _Bytes:
    cdef public bytes _data
    cdef public bint is_last
    cdef public Py_ssize_t size_bytes
    cpdef send(self, socket, long long most_bytes)


cdef class Sending:
    cdef public int _descriptor
    cdef public object _ended
    cdef public bint _is_full
    cdef public bint _is_running
    cdef public bint _is_stopped
    cdef public bint _is_told
    cdef public bint _is_watched
    cdef public int _own_descriptor
    cdef public object _parts
    cdef public object _run
    cdef public long long left_bytes
    cpdef start(self, int socket)
    cpdef stop(self)
    cpdef _go_on(self)
    cpdef bint _has_own(self) except *
    cpdef _unwatch(self)
    cpdef _end(self, error)
