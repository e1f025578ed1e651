"""Which forwarding has its turn to send, so that none holds up others. Sans-IO.

Forwardings that are answered quickly share most of the places, so that they never wait for one that
hangs. What has failed or was slow has few places of its own, also among those of one server. That a
forwarding is answered late, or not at all, is its own affair: another path of the same server may
answer at once, and its users know nothing of each other. A server to which there is no connection
is tried by one forwarding at a time, whoever else uses it, and pauses between two attempts double.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

from consumers.connect.plugins.backoff import Backoff
from consumers.forwarding.route import Route

#: Requests at once: to servers that answer quickly, to others, and to one server.
QUICK: Final = 64
SLOW: Final = 16
EACH: Final = 8
#: Of those to one server, requests that may be slow.
EACH_SLOW: Final = 4
#: An answer that takes longer makes a forwarding a slow one.
SLOW_S: Final = 3.0
#: While one forwarding tries a server, others look this often for what came of it.
_LOOK_S: Final = 1.0


class Pauses(NamedTuple):
    """Seconds between two attempts: they double from the first to the longest."""

    first_s: float = 1.0
    longest_s: float = 600.0
    #: The same where waiting alone does not help: a wrong password, an address that has moved.
    set_up_first_s: float = 60.0
    set_up_longest_s: float = 3600.0

    def after(self, failures: int, *, is_set_up: bool = False) -> float:
        """Return the pause after so many failures in a row."""
        first, longest = (
            (min(self.set_up_first_s, self.longest_s), self.set_up_longest_s)
            if is_set_up
            else (self.first_s, self.longest_s)
        )
        first_ms = max(1, round(first * 1000))
        backoff = Backoff(first_ms, max(first_ms, round(longest * 1000)))
        return backoff.pause_s(failures)


USUAL: Final = Pauses()


class Failure(NamedTuple):
    """Why what was sent is to be sent again."""

    reason: str
    is_reached: bool = True  # False: there was no connection to the server
    is_set_up: bool = False  # somebody has to change something
    retry_after_s: float | None = None


class _Origin:
    """A server: what several forwardings have in common."""

    __slots__ = (
        "error",
        "failures",
        "in_flight",
        "name",
        "not_before",
        "prober",
        "slow_in_flight",
        "slow_waiting",
        "waiting",
    )

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.in_flight = self.slow_in_flight = 0
        self.failures = 0
        #: Why it could not be reached, and when that was, ms since 1970.
        self.error: tuple[str | None, int | None] = (None, None)
        self.not_before = 0.0
        #: The forwarding by which a server is tried that could not be reached.
        self.prober: Route | None = None
        #: Those that wait for a place at it, quick ones and others.
        self.waiting: Final[deque[Route]] = deque()
        self.slow_waiting: Final[deque[Route]] = deque()

    def is_quick(self, route: Route) -> bool:
        """Tell whether a forwarding to it will not keep its place for long."""
        return not (self.failures or route.failures or route.is_slow)

    def has_place(self, *, is_quick: bool) -> bool:
        """Tell whether another request may be made."""
        return self.in_flight < EACH and (is_quick or self.slow_in_flight < EACH_SLOW)

    def waiting_like(self, route: Route) -> deque[Route]:
        """Return those that wait for the same places as a forwarding."""
        return self.waiting if self.is_quick(route) else self.slow_waiting

    @property
    def is_idle(self) -> bool:
        """Whether nothing has to be remembered of it."""
        return not (self.failures or self.in_flight or self.waiting or self.slow_waiting)


class Schedule:
    """The queues of forwardings that have something to send."""

    def __init__(self, pauses: Pauses = USUAL) -> None:
        self._pauses: Final = pauses
        self._origins: Final[dict[str, _Origin]] = {}
        self._quick: Final[deque[Route]] = deque()
        self._slow: Final[deque[Route]] = deque()
        self._quick_free = QUICK
        self._slow_free = SLOW
        #: Forwardings in flight, with what they occupy.
        self._places: Final[dict[Route, tuple[_Origin, bool]]] = {}
        #: Those that may be tried later, by time.
        self._later: Final[list[tuple[float, int, Route]]] = []
        self._number: Final = count()

    @property
    def in_flight(self) -> int:
        """Return how many requests are under way."""
        return len(self._places)

    def may_try(self, route: Route, now: float) -> bool:
        """Tell whether a forwarding would be sent now, if something waited."""
        origin = self._origins.get(route.origin)
        if now < route.not_before:
            return False
        if origin is None or not origin.failures:
            return True
        return now >= origin.not_before and origin.prober in (None, route)

    def is_failing(self, route: Route) -> bool:
        """Tell whether the server of a forwarding could not be reached the last time."""
        origin = self._origins.get(route.origin)
        return origin is not None and origin.failures > 0

    def offer(self, route: Route, now: float) -> None:
        """Queue a forwarding if something of it waits and may be sent, else for later."""
        if route.is_queued or route.is_in_flight or not route.waiting_count or route.is_paused:
            return
        route.is_queued = True
        origin = self._origin(route)
        if not self.may_try(route, now):
            if origin.failures and now >= route.not_before:
                # What kept another one from sending keeps this one, too.
                route.error, route.error_time = origin.error
            due = max(route.not_before, origin.not_before)
            route.later = next(self._number)
            heapq.heappush(self._later, (due if due > now else now + _LOOK_S, route.later, route))
            return
        if origin.waiting_like(route):
            origin.waiting_like(route).append(route)
            return
        self._queue(route, origin)

    def _queue(self, route: Route, origin: _Origin) -> None:
        if origin.failures:
            origin.prober = route
        (self._quick if origin.is_quick(route) else self._slow).append(route)

    def hasten(self, route: Route, now: float) -> None:
        """Try a forwarding now that has been changed."""
        if route.later is not None:
            route.later, route.is_queued = None, False
        self.offer(route, now)

    def _origin(self, route: Route) -> _Origin:
        return self._origins.setdefault(route.origin, _Origin(route.origin))

    def next(self, now: float) -> Iterator[Route]:
        """Yield the forwardings that are to be sent now; each needs a call of `end`."""
        while self._later and self._later[0][0] <= now:
            _, number, route = heapq.heappop(self._later)
            if route.later == number:
                route.later, route.is_queued = None, False
                self.offer(route, now)
        while self._quick and self._quick_free:
            route = self._quick.popleft()
            if self._begin(route, now, is_quick=True):
                yield route
        while self._slow and self._slow_free:
            route = self._slow.popleft()
            if self._begin(route, now, is_quick=False):
                yield route

    def _begin(self, route: Route, now: float, *, is_quick: bool) -> bool:
        origin = self._origin(route)
        route.is_queued = False
        if not route.waiting_count or route.is_paused or (is_quick and not origin.is_quick(route)):
            # What waited was given up, or the server has failed since it was queued.
            if origin.prober is route:
                origin.prober = None
            self._release(origin, now)
            self.offer(route, now)
            return False
        if not origin.has_place(is_quick=is_quick):
            route.is_queued = True
            (origin.waiting if is_quick else origin.slow_waiting).append(route)
            return False
        if is_quick:
            self._quick_free -= 1
        else:
            self._slow_free -= 1
            origin.slow_in_flight += 1
        origin.in_flight += 1
        self._places[route] = (origin, is_quick)
        route.is_in_flight = True
        return True

    def due(self) -> float | None:
        """Return when the next one of those that wait for a time is due; None without any."""
        return self._later[0][0] if self._later else None

    def end(self, route: Route, failure: Failure | None, now: float, took_s: float) -> None:
        """Take note of what came of an attempt, and queue what waits."""
        origin, was_quick = self._places.pop(route)
        if was_quick:
            self._quick_free += 1
        else:
            self._slow_free += 1
            origin.slow_in_flight -= 1
        origin.in_flight -= 1
        route.is_in_flight = False
        if origin.prober is route:
            origin.prober = None
        if failure is None:
            route.failures, route.not_before = 0, 0.0
        elif failure.is_reached:
            route.failures += 1
            pause = self._pauses.after(route.failures, is_set_up=failure.is_set_up)
            route.not_before = now + max(pause, failure.retry_after_s or 0.0)
        if failure is not None and not failure.is_reached:
            origin.error = (route.error, route.error_time)
            if now >= origin.not_before:
                # Others that were under way tell the same.
                origin.failures += 1
                origin.not_before = now + self._pauses.after(origin.failures)
        else:
            origin.failures, origin.not_before = 0, 0.0
            route.is_slow = took_s > SLOW_S
        self._release(origin, now)
        self.offer(route, now)
        if origin.is_idle and self._origins.get(origin.name) is origin:
            del self._origins[origin.name]

    def _release(self, origin: _Origin, now: float) -> None:
        """Queue the first ones that wait for a place at a server."""
        for waiting, is_quick in ((origin.waiting, True), (origin.slow_waiting, False)):
            while waiting and origin.has_place(is_quick=is_quick):
                route = waiting.popleft()
                if self.may_try(route, now) and route.waiting_count and not route.is_paused:
                    self._queue(route, origin)
                    break
                route.is_queued = False
                self.offer(route, now)
