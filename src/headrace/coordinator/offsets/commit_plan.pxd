cimport cython

from headrace.coordinator.offsets.records cimport put_away
from headrace.coordinator.offsets.store cimport OffsetStore


cdef class CommitPlan:
    cdef public object _generation
    cdef public object _image
    cdef public object _member_id
    cdef public list _partitions
    cdef public list _topics
    cdef public object body
    cdef public object group_id
    cdef public list records
    cdef public object response
    cdef public Py_ssize_t size_bytes
    cdef public object version
    @cython.locals(number=Py_ssize_t, store=OffsetStore)
    cpdef decide(self, list places, shard, now_ms, list rows, record_offset)
    cpdef bint holds(self, image)
    cpdef refused(self, error)
