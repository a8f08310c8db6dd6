cimport cython

from headrace.coordinator.hosted cimport HostedShard
from headrace.coordinator.offsets.commit_plan cimport CommitPlan
from headrace.metrics.requests cimport Stopwatch
from headrace.protocol.commit_frame cimport CommitFrame


cdef class RepeatedCommit:
    cdef public object _figures
    cdef public CommitFrame _frame
    cdef public object _groups
    cdef public Py_ssize_t _hits
    cdef public HostedShard _hosted
    cdef public Py_ssize_t _misses
    cdef public object _partitions
    cdef public CommitPlan plan
    cdef public bytes size
    cdef public bytes tail
    @cython.locals(found=tuple, hosted=HostedShard, stopwatch=Stopwatch)
    cpdef take(self, connection, frame)


cdef class CommitAgain:
    cdef public bytes _correlation_id
    cdef public list _places
    cdef public RepeatedCommit _repeated
    cdef public object _slot
    cdef public Py_ssize_t size_bytes
    cpdef decide(self, shard, now_ms, list rows, offset)
