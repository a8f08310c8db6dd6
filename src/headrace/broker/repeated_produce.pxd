cimport cython

from headrace.metrics.requests cimport RequestFigures, Stopwatch
from headrace.protocol.produce_frame cimport ProduceFrame
from headrace.replica.partition cimport Partition
from headrace.replica.waits cimport Wait
from headrace.storage.append cimport Appended


cdef class Target:
    cdef public object acks
    cdef public ProduceFrame frame
    cdef public object index
    cdef public object name
    cdef public object topic_id
    cdef public object transactional_id
    cdef public object version
    cdef public object wait_ms
    cpdef bytes reply(self, bytes correlation_id, Appended appended)


cdef class RepeatedProduce:
    cdef public tuple _ends
    cdef public RequestFigures _figures
    cdef public bytes _head
    cdef public object _produce
    cdef public dict _targets
    cdef public Py_ssize_t _tries
    @cython.locals(target=Target, partition=Partition, appended=Appended, stopwatch=Stopwatch)
    cpdef take(self, connection, frame)


cdef class PendingAck:
    cdef public Appended _appended
    cdef public bytes _correlation_id
    cdef public object _produce
    cdef public object _slot
    cdef public Target _target
    cdef public Wait _timer
    cpdef wait_for(self, Partition partition)
    cpdef _reached(self, error)
    cpdef _timed_out(self)
