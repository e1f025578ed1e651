"""The time that the clients of each user get in a turn of the event loop.

However many connections a user has, the packets of all of them together take no more than
`USER_TURN_S` of a turn. Those that are left wait, and their sockets are not read. In each later
turn the users that wait are served one after the other.
"""

from collections import deque

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

#: Seconds of one turn of the loop for the packets of one user's clients.
cdef double USER_TURN_S = 0.001


cdef double clock_s() noexcept nogil:
    """Return a time in seconds. The clock of the event loop may count whole milliseconds."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double> now.tv_sec + <double> now.tv_nsec * 1e-9


cdef class UserTurn:
    """What the clients of one user have had of the present turn, and those that wait for more."""

    def __init__(self):
        self._turn = -1
        self._waiting = deque()
        self.held = set()


cdef class UserTurns:
    """The present turn of the loop, and the users whose clients wait for the next ones."""

    def __init__(self):
        self._waiting = {}

    cdef int begin_turn(self) except -1:
        """Note that a new turn of the loop has begun."""
        self._turn += 1
        return 0

    cdef bint has_waiting(self):
        """Return whether a protocol waits."""
        return bool(self._waiting)

    cdef double left_s(self, UserTurn user):
        """Return the seconds that are left to the user's clients in this turn of the loop."""
        if user._turn != self._turn:
            return USER_TURN_S
        return USER_TURN_S - user._spent_s

    cdef int spend(self, UserTurn user, double seconds) except -1:
        """Charge time to the user."""
        if user._turn != self._turn:
            user._turn = self._turn
            user._spent_s = 0
        user._spent_s += seconds
        return 0

    cdef int wait(self, UserTurn user, protocol) except -1:
        """Let a protocol wait, after those of its user that wait already."""
        user._waiting.append(protocol)
        self._waiting[user] = None
        return 0

    cdef object next_waiting(self):
        """Return a protocol whose user has time left in this turn, or None.

        The user comes last from now on.
        """
        cdef UserTurn user
        for _ in range(len(self._waiting)):
            user = next(iter(self._waiting))
            del self._waiting[user]
            if self.left_s(user) <= 0:
                self._waiting[user] = None
                continue
            protocol = user._waiting.popleft()
            if user._waiting:
                self._waiting[user] = None
            return protocol
        return None
