cimport cython

from headrace.protocol.batch cimport Batch
from headrace.storage.flush cimport Unsynced
from headrace.storage.read cimport Fetched
from headrace.storage.segment cimport Segment


cdef class Log:
    cdef public object _config
    cdef public list _doomed
    cdef public bint _index_may_fill
    cdef public object _roll_after_ms
    cdef public object _roll_after_timestamp
    cdef public object aborted
    cdef public object checkpointed_recovery_point
    cdef public object clean_offset
    cdef public object epochs
    cdef public bint has_holes
    cdef public object high_watermark
    cdef public object last_flush_ms
    cdef public object log_end_offset
    cdef public object log_start_offset
    cdef public object lower_recovery_point
    cdef public object offered_recovery_point
    cdef public object offline
    cdef public object options
    cdef public object partition
    cdef public object place
    cdef public object producers
    cdef public object read_end
    cdef public object rules
    cdef public object segments
    cdef public object snapshots
    cdef public object topic
    cdef public object topic_id
    cdef public object truncation_point
    cdef public object truncations
    cdef public object unflushed_records
    cdef public Unsynced unsynced
    @cython.locals(segment=Segment, batch=Batch)
    cpdef _write(self, content, batches, next_offset, now_ms, transaction_version=*)
    @cython.locals(active=Segment)
    cpdef _segment_for(self, size_bytes, batches, last_offset, now_ms)
    cpdef set_high_watermark(self, offset)
    cpdef Fetched read(self, offset, bytes_max, offset_max, bint min_one_batch=*)
    cpdef flush(self, flushed)
    cpdef require_online(self)
