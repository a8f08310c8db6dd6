cimport cython

from headrace.metrics.histogram cimport Histogram, bits_of


cdef class RequestFigures:
    cdef public object api
    cdef public Histogram at_once
    cdef public dict errors
    cdef public Histogram local
    cdef public Histogram queue
    cdef public Histogram remote_wait
    cdef public Histogram send
    cdef public Histogram total


cdef class Stopwatch:
    cdef public long long at_ns
    cdef public object clock_ns
    cdef public Py_ssize_t count
    cdef public RequestFigures figures
    cdef public long long read_ns
    cpdef switch(self, RequestFigures figures)
    @cython.locals(at_ns="long long", count=Py_ssize_t, figures=RequestFigures, found=Histogram)
    @cython.locals(now_ns="long long", spent_ns="long long")
    cpdef close(self)
    @cython.locals(at_ns="long long", now_ns="long long", spent_ns="long long", found=Histogram)
    cpdef long long handled(self, RequestFigures figures)
