cimport cython

from headrace.broker.fetch_session cimport FetchedPartition
from headrace.replica.partition cimport Partition
from headrace.storage.log cimport Log
from headrace.storage.read cimport Fetched, Piece

cdef class Terms
cdef class Gathered
cdef class ColdRead

@cython.locals(partition=Partition)
cpdef Gathered gather(replicas, FetchedPartition wanted, Terms terms, limit_bytes, bint min_one_batch)
@cython.locals(log=Log, fetched=Fetched)
cpdef Gathered _gather(Partition partition, FetchedPartition wanted, Terms terms, limit_bytes, bint min_one_batch)
@cython.locals(piece=Piece)
cpdef read(Gathered gathered, buffer, ColdRead cold)


cdef class Terms:
    cdef public bint is_committed
    cdef public bint is_follower
    cdef public object version


cdef class Gathered:
    cdef public object data
    cdef public Fetched fetched
    cdef public Partition partition
    cdef public FetchedPartition wanted
    cpdef release(self)


cdef class ColdRead:
    cdef public list _parts
    cdef public list failed


cdef class Sent:
    cdef public list _fetched
