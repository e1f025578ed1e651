cdef class Subscription:
    cdef public object session
    cdef public str topic_filter
    cdef public tuple granted_filters
    cdef public int qos
    cdef public bint no_local
    cdef public bint retain_as_published
    cdef public long long identifier
    cdef public str share
    cdef public bint elsewhere
    cdef public bint reaches_friends
    cdef public bint awaits_retained
    cdef public Py_ssize_t size     # bytes charged to its user's share


cdef class SharedGroup:
    cdef public dict members


cdef class SubscriptionTree:
    cdef dict _exact
    cdef object _root
    cdef Py_ssize_t _wildcards
    cdef dict _groups

    cpdef list match(self, str topic)
    cdef int _walk(self, str topic, list found) except -1


cdef class ElsewhereInterest:
    cdef set _keys

    cpdef bint wants(self, str topic)
