cimport cython

from headrace.protocol.batch cimport Batch


cdef class Segment:
    cdef public object _aborted_count
    cdef public object _file
    cdef public object _first_timestamp
    cdef public bint _is_later
    cdef public object _max_timestamp
    cdef public object _max_timestamp_offset
    cdef public object _offset_index
    cdef public object _time_index
    cdef public object _transaction_index
    cdef public object _unindexed_bytes
    cdef public object base_offset
    cdef public object created_ms
    cdef public bint has_index_files
    cdef public bint has_transaction_index
    cdef public bint is_cut
    cdef public bint is_deleted
    cdef public object modified_ms
    cdef public object place
    cdef public object padded_end
    cdef public object size_bytes
    cdef public object stretched_end
    cdef public bint touched
    @cython.locals(batch=Batch)
    cpdef append(self, content, batches, index_interval_bytes)
    cpdef index(self, Batch batch, position, index_interval_bytes)
