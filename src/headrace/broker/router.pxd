cdef class Router:
    cdef public object _elements_max
    cdef public object _loop
    cdef public dict _routes
    cdef public dict _tasks
    cdef public object routes
    cpdef bint serve(self, connection, route, request)
