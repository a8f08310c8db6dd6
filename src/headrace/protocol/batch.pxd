cdef class Batch:
    cdef public object attributes
    cdef public object base_offset
    cdef public object base_sequence
    cdef public object base_timestamp
    cdef public object buffer
    cdef public object crc
    cdef public object last_offset_delta
    cdef public object magic
    cdef public object max_timestamp
    cdef public object partition_leader_epoch
    cdef public object position
    cdef public object producer_epoch
    cdef public object producer_id
    cdef public object record_count
    cdef public object size_bytes
    cpdef assign(self, base_offset, partition_leader_epoch)
