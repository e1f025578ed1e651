"""The part of the event loop's time that each user gets."""


cdef class UserTurn:
    cdef long long _turn        # the turn of the loop in which the user's clients were last read
    cdef double _spent_s        # the time that they have had in it
    cdef readonly set held      # connections with a message that waits for the user's quota


cdef class UserQueues:
    cdef dict _queues           # UserTurn, or None -> deque; the first is served next

    cdef bint is_empty(self)
    cpdef push(self, UserTurn user, item)
    cdef object pop(self)


cdef class UserTurns:
    cdef long long _turn        # number of the present turn of the loop
    cdef UserQueues _waiting    # protocols that are not read before a later turn

    cdef int begin_turn(self) except -1
    cdef bint has_waiting(self)
    cdef double left_s(self, UserTurn user)
    cdef int spend(self, UserTurn user, double seconds) except -1
    cdef int wait(self, UserTurn user, protocol) except -1
    cdef object next_waiting(self)
