"""The time that the clients of each user get in a turn of the event loop."""


cdef class UserTurn:
    cdef long long _turn        # the turn of the loop in which the user's clients were last read
    cdef double _spent_s        # the time that they have had in it
    cdef object _waiting        # deque of protocols that are not read before a later turn
    cdef readonly set held      # connections with a message that waits for the user's quota


cdef class UserTurns:
    cdef long long _turn        # number of the present turn of the loop
    cdef dict _waiting          # UserTurn -> None, in the order in which they are served

    cdef bint has_waiting(self)
    cdef double left_s(self, UserTurn user)
    cdef int spend(self, UserTurn user, double seconds) except -1
    cdef int wait(self, UserTurn user, protocol) except -1
    cdef object next_waiting(self)
    cdef int begin_turn(self) except -1


cdef double clock_s() noexcept nogil
