cimport cython


cdef class OffsetStore:
    cdef public dict _by_group
    cdef public dict _by_topic
    cdef public dict _open
    cdef public dict _pending
    cdef public dict _touched
    cdef public Py_ssize_t count
    @cython.locals(partitions=dict)
    cpdef put(self, group_id, topic, partition, kept)
