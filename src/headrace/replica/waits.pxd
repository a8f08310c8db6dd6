cimport cython


cdef class Wait:
    cdef public object _callback
    cdef public Waits _waits
    cpdef cancel(self)
    cpdef _take(self)


cdef class Waits:
    cdef public object _call_at
    cdef public Py_ssize_t _cancelled
    cdef public double _due_s
    cdef public list _heap
    cdef public Py_ssize_t _number
    cdef public object _timer
    cdef public object time
    @cython.locals(wait=Wait)
    cpdef at(self, double deadline_s, callback)
    cpdef after_ms(self, double pause_ms, callback)


cdef class OffsetWaits:
    cdef public object _waiting
    cpdef add(self, offset, reached)
    cpdef reached(self, offset, error=*)
