"""Each user's part of memory that all users share."""


cdef class Pool:
    """A pool of `total` bytes, of which one user holds at most `each`, and at most what is free.

    The second bound is the dynamic threshold of `gateway.limits.pools.Shares`, implemented here for
    the path of every message: a single user may have half; the more others hold, the less.
    """

    def __init__(self, Py_ssize_t total, Py_ssize_t each):
        self.total = total
        self.each = each


cdef class Account:
    """One user's part of a pool (bytes)."""

    def __init__(self, Pool pool):
        self.pool = pool

    cpdef bint take(self, Py_ssize_t amount):
        """Hold `amount` more bytes; return False, and hold nothing more, if that is too much."""
        if (
            self.held + amount > self.pool.each
            or self.held + amount > self.pool.total - self.pool.used
        ):
            return False
        self.hold(amount)
        return True

    cpdef hold(self, Py_ssize_t amount):
        """Hold `amount` more bytes without regard to the bounds."""
        self.held += amount
        self.pool.used += amount

    cpdef give_back(self, Py_ssize_t amount):
        """Hold `amount` fewer bytes."""
        self.held -= amount
        self.pool.used -= amount

    cdef bint is_full(self):
        """Return whether the user holds more than its share."""
        return self.held > self.pool.each
