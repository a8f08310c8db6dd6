cimport cython

from headrace.protocol.batch cimport Batch


@cython.locals(batch=Batch)
cpdef admit(records, version)
