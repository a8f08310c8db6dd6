cimport cython

from headrace.replica.partition cimport Partition


cdef class HostedShard:
    cdef public list _asked_again
    cdef public object _attempts
    cdef public object _back_off
    cdef public object _batch_bytes
    cdef public list _batches
    cdef public object _committed
    cdef public list _early
    cdef public object _host
    cdef public bint _is_dirty
    cdef public bint _is_ended
    cdef public object _loading
    cdef public object _next_offset
    cdef public Partition _partition
    cdef public object _shard
    cdef public object _timeout
    cdef public object _timers
    cdef public object _waiting
    cdef public object index
    cdef public object refusal
    cpdef ask_again(self, asked)
    cpdef shard_with_room(self, size_bytes)
    cpdef _limit_bytes(self)
    cpdef _decide_again(self, now_ms)
    cpdef _wait_to_tell(self, outcome)
    cpdef _write_soon(self)
    cpdef write(self, now_ms)
    cpdef _wait_for(self, Partition partition, offset)
    cpdef _encode(self, stamp, list records)
    cpdef _reached(self, error)
    cpdef _tell(self, outcome)
