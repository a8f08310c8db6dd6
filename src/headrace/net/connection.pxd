cimport cython

from headrace.metrics.histogram cimport Histogram, bits_of
from headrace.metrics.requests cimport RequestFigures, Stopwatch
from headrace.net.framing cimport FrameProtocol


cdef class Slot:
    cdef public object _buffers
    cdef public Connection _connection
    cdef public RequestFigures _figures
    cdef public bint _is_filled
    cdef public Py_ssize_t _queued_bytes
    cdef public long long _read_ns
    cdef public object _sending
    cdef public long long _since_ns
    cpdef fill(self, buffers)
    @cython.locals(now_ns="long long", wait_ns="long long", found=Histogram)
    cpdef _there(self)
    cpdef _sent(self)


cdef class Connection(FrameProtocol):
    cdef public bint _has_ended
    cdef public list _held_replies
    cdef public bint _is_closing
    cdef public bint _is_holding
    cdef public bint _is_muted
    cdef public bint _is_reading
    cdef public bint _is_round_due
    cdef public Py_ssize_t _polite_frames
    cdef public Py_ssize_t _queued_bytes
    cdef public Py_ssize_t _requests_max
    cdef public long long _seen_cuts
    cdef public object _slots
    cdef public object _stalled_at
    cdef public object _transport
    cdef public Py_ssize_t _unsent_bytes
    cdef public bint _writes
    cdef public long long active_at
    cdef public object listener
    cdef public object peer_host
    cdef public object peer_port
    cdef public dict repeated
    cdef public object state
    cdef public Stopwatch stopwatch
    cpdef reply(self, buffers)
    cpdef reserve(self)
    cpdef close(self)
    @cython.locals(total_ns="long long", figures=RequestFigures, found=Histogram)
    cpdef _slot_filled(self, Slot slot)
    cpdef _slot_sends(self, Slot slot)
    cpdef _slot_sent(self, Slot slot, error)
    @cython.locals(sent=Slot, figures=RequestFigures)
    cpdef _take_filled(self, Slot slot)
    @cython.locals(stopwatch=Stopwatch)
    cpdef frames_begin(self)
    @cython.locals(stopwatch=Stopwatch)
    cpdef frame_completed(self)
    cpdef frame_handled(self)
    cpdef frames_end(self)
    cpdef _write(self, buffers)
    cpdef _update_reading(self)
    cpdef progressed(self)
    cpdef reading_changed(self)
    @cython.locals(cuts="long long")
    cpdef bint rests_between_slices(self)
    cpdef slice_received(self, bint is_whole)
    @cython.locals(figures=RequestFigures, stopwatch=Stopwatch, slot=Slot)
    cpdef frame_received(self, frame)
    cpdef frame_refused(self, error)
