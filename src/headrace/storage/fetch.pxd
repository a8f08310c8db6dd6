cimport cython

from headrace.storage.log cimport Log
from headrace.storage.read cimport Fetched, Piece
from headrace.storage.segment cimport Segment

@cython.locals(segment=Segment, number=Py_ssize_t)
cpdef Fetched read(Log log, offset, bytes_max, offset_max, bint min_one_batch=*)
@cython.locals(segment=Segment)
cpdef Fetched _gather(Log log, Py_ssize_t number, first, budget, offset_max)
@cython.locals(piece=Piece, entry=Py_ssize_t, following=Py_ssize_t)
cpdef Fetched _cut(Segment segment, Fetched fetched, bytes_min)
