"""The time that each party gets in a turn of the event loop; see gateway.limits.turn_clock."""

import asyncio
from collections import deque

from gateway.limits.precise_clock cimport clock_s

#: Seconds that one party may work in a turn of the event loop.
TURN_S = 0.001

cdef double SHARE_S = TURN_S
#: The same while nobody else works or waits: each turn costs as much as several requests, and short
#: ones make small batches for the log.
cdef double LONE_SHARE_S = 5 * TURN_S
#: Seconds of a turn after which one long piece of work pauses, at most.
cdef double STEPS_S_MAX = 3 * TURN_S
#: Seconds of a turn for all that waits of users, and at least for what waits of strangers.
cdef double WAITING_S = 0.004
cdef double STRANGERS_WAITING_S = TURN_S
#: Seconds of a turn in which work of strangers, of all of them together, may begin.
cdef double STRANGERS_S = 4 * TURN_S
#: Seconds that a task is taken to need when its turn comes, until it has told what it needed.
cdef double STEP_S = TURN_S / 4
#: Seconds beyond its share that a party pays for in later turns, at most. The machine may have
#: stopped this process meanwhile, which is nobody's fault.
cdef double DEBT_S_MAX = 10 * TURN_S


#: The first character of a stranger's name, which no user's has.
STRANGER = "\0"


cdef inline bint is_stranger(str party):
    return len(party) > 0 and party[0] == u"\0"


cdef class PartyTurns:
    """The present turn of the loop: what each party has had of it, and what waits for later ones.

    Somebody who has not signed in can be as many strangers as it likes: behind a proxy, and on this
    machine. So what strangers do waits for what users do, but for a part of each turn.

    The loop tells nobody that a turn has ended, so that small amounts are added up until they
    matter.
    """

    cdef double _share_s  # what each party may have of this turn
    cdef dict _spent
    # Party -> deque of callbacks, in the order in which they are served.
    cdef dict _waiting
    cdef dict _waiting_strangers
    cdef double _spent_by_strangers
    cdef bint _is_due
    # The party that works now, and since when.
    cdef object _working
    cdef double _began

    def __init__(self):
        self._share_s = SHARE_S
        self._spent = {}
        self._waiting = {}
        self._waiting_strangers = {}

    def may_begin(self, str party not None):
        """Tell whether a party may work now: it has time left, and nothing of it waits."""
        return self._may_begin(party)

    def may_go_on(self, str party not None):
        """Tell whether a party that works now may begin more, if that is short."""
        return self._left_of(self._share_s, party) > 0

    def left_s(self, str party not None):
        """Return the seconds of this turn that are left to a party for long work."""
        return self._left_of(min(self._share_s, STEPS_S_MAX), party)

    def begin(self, str party not None):
        """Take note that work of a party begins. Return what `end` has to be given as `outer`."""
        return self._begin(party)

    def end(self, str party not None, outer):
        """Charge the work that has begun last to a party: it may have turned out whose it is."""
        self._end(party, outer)

    def call(self, str party not None, callback):
        """Call back now if the party may begin, else when it is its turn."""
        if not self._may_begin(party):
            self.call_soon(party, callback)
            return
        outer = self._begin(party)
        try:
            callback()
        finally:
            self._end(party, outer)

    cpdef call_soon(self, str party, callback):
        """Call back, or set the result of a future, when it is the party's turn.

        It comes after what of the party waits already.
        """
        cdef dict queues = self._waiting_strangers if is_stranger(party) else self._waiting
        waiting = queues.get(party)
        if waiting is None:
            queues[party] = deque((callback,))
            self._come_again()
        else:
            waiting.append(callback)

    def returned(self, str party not None):
        """Take note that a task has got its turn, and is charged for what it needs."""
        self._spent[party] = max(0.0, <double> self._spent.get(party, 0.0) - STEP_S)
        if is_stranger(party):
            self._spent_by_strangers = max(0.0, self._spent_by_strangers - STEP_S)

    cdef double _left_of(self, double share_s, str party) except? -1:
        cdef double left = share_s - <double> self._spent.get(party, 0.0)
        return left if self._working is None else left - (clock_s() - self._began)

    cdef bint _may_begin(self, str party) except -1:
        if is_stranger(party):
            if self._spent_by_strangers >= STRANGERS_S or party in self._waiting_strangers:
                return False
        elif party in self._waiting:
            return False
        return <double> self._spent.get(party, 0.0) < self._share_s

    cdef object _begin(self, str party):
        cdef double now = clock_s()
        outer = self._working
        if outer is not None:
            self._spend(outer, now - self._began)
        self._working = party
        self._began = now
        return outer

    cdef int _end(self, str party, outer) except -1:
        cdef double now = clock_s()
        self._spend(party, now - self._began)
        self._working = outer
        self._began = now
        return 0

    cdef int _spend(self, str party, double seconds) except -1:
        cdef double spent = <double> self._spent.get(party, 0.0) + seconds
        self._spent[party] = spent
        if is_stranger(party):
            self._spent_by_strangers += seconds
        if spent > SHARE_S / 2 and not self._is_due:
            self._come_again()
        return 0

    cdef int _come_again(self) except -1:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)
        return 0

    def _turn(self):
        """Begin a turn of the loop, with what waits."""
        cdef dict spent = {}
        cdef double now = clock_s()
        cdef double until
        cdef str party
        cdef bint is_alone = (
            len(self._spent) <= 1 and len(self._waiting) + len(self._waiting_strangers) <= 1
        )
        for party, seconds in self._spent.items():
            if <double> seconds > self._share_s:
                spent[party] = min(<double> seconds - self._share_s, DEBT_S_MAX)
        self._spent = spent
        self._spent_by_strangers = max(
            0.0, min(self._spent_by_strangers - STRANGERS_S, DEBT_S_MAX)
        )
        self._share_s = LONE_SHARE_S if is_alone else SHARE_S
        until = now + max(WAITING_S, self._share_s)
        self._serve(self._waiting, until)
        self._serve(self._waiting_strangers, max(until, clock_s() + STRANGERS_WAITING_S))
        # Only now, so that the tasks whose turn it is work before the next turn begins.
        self._is_due = False
        if self._waiting or self._waiting_strangers or self._spent:
            self._come_again()

    cdef int _serve(self, dict queues, double until) except -1:
        """Call what waits of each party in turn, at least once, until a time."""
        cdef Py_ssize_t without_time = 0
        cdef str party
        cdef double share_s
        while without_time < len(queues):
            # A task that gets its turn works later, so that the clock does not tell.
            if queues is self._waiting_strangers and self._spent_by_strangers >= STRANGERS_S:
                break
            party = next(iter(queues))
            callbacks = queues.pop(party)
            # Nobody knows how long tasks take.
            share_s = self._share_s
            if isinstance(callbacks[0], asyncio.Future):
                share_s = min(share_s, STEPS_S_MAX)
            if <double> self._spent.get(party, 0.0) >= share_s:
                queues[party] = callbacks
                without_time += 1
                continue
            without_time = 0
            callback = callbacks.popleft()
            if callbacks:
                queues[party] = callbacks
            self._call(party, callback)
            if clock_s() > until:
                break
        return 0

    cdef int _call(self, str party, callback) except -1:
        cdef object outer
        if isinstance(callback, asyncio.Future):
            if not callback.done():
                # The task works later in this turn of the loop.
                self._spend(party, STEP_S)
                callback.set_result(None)
            return 0
        outer = self._begin(party)
        try:
            callback()
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "work in turns has failed", "exception": error}
            )
        finally:
            self._end(party, outer)
        return 0
