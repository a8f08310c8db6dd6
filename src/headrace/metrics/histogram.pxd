cimport cython


@cython.locals(bits="int")
cpdef int bits_of(long long ns)


cdef class Histogram:
    cdef public list counts
    cdef public object sum_ns
    cpdef observe(self, long long ns)
    cpdef observe_all(self, long long sum_ns, long long count)
