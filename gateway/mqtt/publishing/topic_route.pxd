from gateway.fixes.fix_route cimport FixRoute


cdef class TopicRoute(FixRoute):
    cdef readonly str topic
    cdef readonly bint allowed
    cdef readonly object parse
    cdef readonly object rule
    cdef readonly bint for_one_message
    cdef str _named
