cimport cython

from headrace.replica.in_sync cimport InSync
from headrace.replica.waits cimport OffsetWaits
from headrace.storage.append cimport Appended
from headrace.storage.log cimport Log


cdef class Partition:
    cdef public OffsetWaits _committed
    cdef public object _counted_offset
    cdef public object _flush_messages
    cdef public object _host
    cdef public OffsetWaits _synced
    cdef public object _unseen_bytes
    cdef public dict _watchers
    cdef public object held
    cdef public InSync in_sync
    cdef public object index
    cdef public bint is_internal
    cdef public bint is_leader
    cdef public object leader
    cdef public object leader_epoch
    cdef public object leader_epoch_start_offset
    cdef public Log log
    cdef public bint looks_inside
    cdef public object partition_epoch
    cdef public bint syncs_each
    cdef public object topic
    cdef public object topic_id
    cdef public object traffic
    @cython.locals(log=Log)
    cpdef flush(self, now_ms)
    @cython.locals(log=Log)
    cpdef _advance(self)
    cpdef when_committed(self, offset, reached)
    cpdef bint must_wait(self, Appended appended, required_acks)
    cpdef when_acknowledged(self, Appended appended, required_acks, reached)
