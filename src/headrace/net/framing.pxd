cimport cython


cdef Py_ssize_t SIZE_BYTES


cdef class Receiver:
    cdef public dict _spares
    cdef public object budget
    cdef public object buffer
    cdef public long long cuts
    cdef public bytearray data
    cdef public Py_ssize_t frame_bytes_max
    cdef public object head
    cdef public object large_budget
    cdef public long long tick


cdef class FrameProtocol:
    cdef public bytes _backlog
    cdef public object _budget
    cdef public long long _came_at
    cdef public Py_ssize_t _came_bytes
    cdef public long long _cuts
    cdef public bint _expects_large
    cdef public Py_ssize_t _filled
    cdef public object _frame
    cdef public Py_ssize_t _held_bytes
    cdef public bint _is_held
    cdef public bint _is_sliced
    cdef public Receiver _receiver
    cdef public object _rest
    cdef public Py_ssize_t _room
    cdef public Py_ssize_t _size
    cdef public Py_ssize_t _slice_end
    cdef public bint _stopped
    cpdef frame_received(self, frame)
    cpdef frame_refused(self, error)
    cpdef reading_changed(self)
    cpdef progressed(self)
    cpdef bint rests_between_slices(self)
    cpdef slice_received(self, bint is_whole)
    cpdef frame_completed(self)
    cpdef frame_handled(self)
    cpdef frames_begin(self)
    cpdef frames_end(self)
    cpdef stop_frames(self)
    cpdef start_frames(self)
    cpdef drop_frames(self)
    @cython.locals(at=Py_ssize_t, position=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t, most=Py_ssize_t)
    cpdef _cut(self, view, bytearray data, Py_ssize_t end)
    cpdef _keep(self, part)
    cpdef _reserve(self, part)
    cpdef _begin(self, part)
    cpdef _open_rest(self)
    cpdef _grow(self, part)
    cpdef _fill(self)
    cpdef go_on(self)
    cpdef _take_or_refuse(self)
    cpdef _take(self, frame)
    cpdef _release(self)
