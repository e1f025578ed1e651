cdef class Pool:
    cdef readonly Py_ssize_t total
    cdef readonly Py_ssize_t each
    cdef public Py_ssize_t used


cdef class Account:
    cdef readonly Pool pool
    cdef readonly Py_ssize_t held
    cdef public dict waiting        # links that are not read because of it, or None

    cpdef bint take(self, Py_ssize_t amount)
    cpdef hold(self, Py_ssize_t amount)
    cpdef give_back(self, Py_ssize_t amount)
    cdef bint is_full(self)
