cdef class Stretch:
    cdef public tuple _ahead
    cdef public object _descriptor
    cdef public object _file
    cdef public long long _position
    cdef public object _sync_beats
    cdef public long long size_bytes
    cpdef bint is_at_hand(self) except *
    cpdef look_ahead(self)
    cpdef send(self, socket, long long most_bytes, long rests)


cdef class Stretches:
    cdef public object parts
    cdef public Py_ssize_t size_bytes


cdef class _Bytes:
    cdef public bytes _data
    cdef public bint is_last
    cdef public Py_ssize_t size_bytes
    cpdef bint is_at_hand(self) except *
    cpdef look_ahead(self)
    cpdef send(self, socket, long long most_bytes, long rests)


cdef class Sending:
    cdef public bint _by_loop
    cdef public int _descriptor
    cdef public object _ended
    cdef public bint _is_full
    cdef public bint _is_running
    cdef public bint _is_stopped
    cdef public bint _is_watched
    cdef public int _own_descriptor
    cdef public object _parts
    cdef public long _rests
    cdef public object _sender
    cdef public long long left_bytes
    cpdef start(self, int socket)
    cpdef stop(self)
    cpdef _go_on(self)
    cpdef _work_here(self)
    cpdef bint _is_at_hand(self) except *
    cpdef bint _has_own(self) except *
    cpdef _unwatch(self)
    cpdef _end(self, error)
