cimport cython


cdef class KnownFrames:
    cdef public dict _requests
    cdef public object _route
    cdef public object _router
    @cython.locals(data=bytes)
    cpdef keep(self, frame, request)
    @cython.locals(data=bytes)
    cpdef take(self, connection, frame)
