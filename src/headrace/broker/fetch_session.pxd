cimport cython

cdef class FetchedPartition
cdef class Sessions

@cython.locals(partition=FetchedPartition)
cpdef list _by_topic(list results)
cpdef dict _wanted(request, version)


cdef class FetchedPartition:
    cdef public object current_leader_epoch
    cdef public object fetch_offset
    cdef public object fetcher_log_start_offset
    cdef public object index
    cdef public object known_as
    cdef public object last_fetched_epoch
    cdef public object max_bytes
    cdef public object told_high_watermark
    cdef public object told_log_start_offset
    cdef public object topic
    cdef public object topic_id
    cpdef want(self, wanted)
    cpdef tell(self, data)


cdef class Session:
    cdef public object created_ms
    cdef public object epoch
    cdef public object id
    cdef public bint is_follower
    cdef public bint is_settled
    cdef public dict partitions
    cdef public object used_ms
    cdef public bint uses_topic_ids


cdef class Context:
    cdef public object _expected_epoch
    cdef public bint _is_full
    cdef public object _now_ms
    cdef public Session _session
    cdef public Sessions _sessions
    cdef public object _version
    cdef public object error
    cdef public list partitions
    @cython.locals(session=Session)
    cpdef reply(self, list results, bint is_follower=*)
    cpdef _tell(self, Session session, FetchedPartition partition, data)


cdef class Sessions:
    cdef public object _random_bytes
    cdef public dict _sessions
    cdef public object capacity
    cdef public object eviction_ms
    cdef public object evictions
    cdef public object partitions_max
    @cython.locals(context=Context, session=Session)
    cpdef begin(self, request, version, now_ms)
    cpdef _open(self, list results, version, bint is_follower, now_ms)
    cpdef _has_room(self, more, size)
    cpdef _touch(self, Session session, now_ms)
