cimport cython

from headrace.storage.segment cimport Segment

cpdef locate(Segment segment, offset)
cpdef _begun(Segment segment, offset)
@cython.locals(is_entry=bint, at=Py_ssize_t, last_at=Py_ssize_t)
cpdef _locate(Segment segment, offset)
