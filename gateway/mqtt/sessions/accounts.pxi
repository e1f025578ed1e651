# What each user holds of memory that all share; a part of session.pyx.


cdef class Pool:
    """So many bytes for all, of which a user holds at most `each`, and no more than is left free.

    The second bound is the dynamic threshold of `gateway.limits.pools.Shares`, of which this is the form for what
    every message passes: alone a user may have half; the more others hold, the less.
    """

    def __init__(self, Py_ssize_t total, Py_ssize_t each):
        self.total = total
        self.each = each


cdef class Account:
    """One user's part of a pool (bytes)."""

    def __init__(self, Pool pool):
        self.pool = pool

    cpdef bint take(self, Py_ssize_t amount):
        """Hold so much more; False, and then no more, where that is too much."""
        if (
            self.held + amount > self.pool.each
            or self.held + amount > self.pool.total - self.pool.used
        ):
            return False
        self.hold(amount)
        return True

    cpdef hold(self, Py_ssize_t amount):
        """Hold so much more, whatever that makes."""
        self.held += amount
        self.pool.used += amount

    cpdef give_back(self, Py_ssize_t amount):
        """Hold so much less."""
        self.held -= amount
        self.pool.used -= amount

    cdef bint is_full(self):
        """Tell whether nothing more is to come in."""
        return self.held > self.pool.each
