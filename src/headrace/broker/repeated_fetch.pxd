cimport cython

from headrace.broker.fetch cimport Fetch
from headrace.metrics.requests cimport RequestFigures
from headrace.protocol.fetch_frame cimport FetchFrame
from headrace.protocol.fetch_reply cimport FetchReply


cdef class RepeatedFetch:
    cdef public Fetch _fetch
    cdef public RequestFigures _figures
    cdef public FetchFrame _frame
    cdef public bint _has_epoch
    cdef public Py_ssize_t _hits
    cdef public Py_ssize_t _misses
    cdef public list _partitions
    cdef public FetchReply _reply
    cdef public object _request
    @cython.locals(found=tuple, numbers=tuple, at=Py_ssize_t)
    cpdef take(self, connection, frame)
