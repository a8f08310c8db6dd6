cimport cython

from headrace.broker.fetch_memory cimport ReplyMemory
from headrace.broker.fetch_read cimport ColdRead, Gathered, Terms
from headrace.broker.fetch_session cimport Context, FetchedPartition, Sessions
from headrace.metrics.requests cimport RequestFigures
from headrace.protocol.fetch_reply cimport FetchReply
from headrace.storage.read cimport Fetched


cdef class Fetch:
    cdef public dict errors
    cdef public object fetch_max_bytes
    cdef public RequestFigures figures
    cdef public ReplyMemory memory
    cdef public object replicas
    cdef public object senders
    cdef public Sessions sessions
    cdef public object waiting
    cdef public object workers
    @cython.locals(context=Context)
    cpdef begin(self, connection, request, known=*)


cdef class Fetching:
    cdef public object _connection
    cdef public Context _context
    cdef public object _correlation_id
    cdef public object _deadline_s
    cdef public Fetch _fetch
    cdef public bint _is_last
    cdef public bint _is_waiting
    cdef public FetchReply _known
    cdef public object _max_bytes
    cdef public object _min_bytes
    cdef public object _missing_bytes
    cdef public object _slot
    cdef public Terms _terms
    cdef public object _timer
    cdef public object _warmings
    cdef public list _watched
    cpdef advance(self)
    @cython.locals(fetch=Fetch, terms=Terms, wanted=FetchedPartition, part=Gathered)
    cpdef tuple _gather(self)
    @cython.locals(memory=ReplyMemory, cold=ColdRead, part=Gathered)
    cpdef _read(self, list gathered)
    cpdef bint _send(self, list gathered, size_bytes) except *
    @cython.locals(part=Gathered)
    cpdef _reply(self, list gathered)
    @cython.locals(fetched=Fetched)
    cpdef _count(self, Gathered part)
    cpdef _later(self)
