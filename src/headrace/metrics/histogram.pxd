cdef class Histogram:
    cdef public list counts
    cdef public object sum_ns
    cpdef observe(self, ns)
    cpdef observe_all(self, sum_ns, count)
