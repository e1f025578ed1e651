"""The part of the event loop's time that each user gets, however many connections it has.

The packets of all clients of a user together take no more than `USER_TURN_S` of a turn of the loop.
Those that are left wait, and their sockets are not read. Whatever waits is served in the order of
the users: one thing of each, and then the next of the first.
"""

from collections import deque

#: Seconds of one turn of the loop for the packets of one user's clients.
cdef double USER_TURN_S = 0.001


cdef class UserTurn:
    """What the clients of one user have had of the present turn of the loop."""

    def __init__(self):
        self._turn = -1
        self.held = set()


cdef class UserQueues:
    """A queue of each user. They are served one after the other; None stands for all others."""

    def __init__(self):
        self._queues = {}

    def __bool__(self):
        return not self.is_empty()

    cdef bint is_empty(self):
        """Return whether nothing waits."""
        return not self._queues

    cpdef push(self, UserTurn user, item):
        """Append to the queue of a user."""
        queue = self._queues.get(user)
        if queue is None:
            queue = self._queues[user] = deque()
        queue.append(item)

    cdef object pop(self):
        """Return what has waited longest of the first user, who comes last from now on."""
        user = next(iter(self._queues))
        queue = self._queues.pop(user)
        item = queue.popleft()
        if queue:
            self._queues[user] = queue
        return item


cdef class UserTurns:
    """The present turn of the loop, and the protocols that wait for later ones."""

    def __init__(self):
        self._waiting = UserQueues()

    cdef int begin_turn(self) except -1:
        """Note that a new turn of the loop has begun."""
        self._turn += 1
        return 0

    cdef bint has_waiting(self):
        """Return whether a protocol waits."""
        return not self._waiting.is_empty()

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
        self._waiting.push(user, protocol)
        return 0

    cdef object next_waiting(self):
        """Return a protocol whose user has time left in this turn, or None."""
        cdef dict queues = self._waiting._queues
        cdef UserTurn user
        for _ in range(len(queues)):
            user = next(iter(queues))
            if self.left_s(user) > 0:
                return self._waiting.pop()
            queues[user] = queues.pop(user)
        return None
