"""Queries to an external geocoder where our index has no answer; off by default.

Any geocoder of geopy can be used; it runs in a thread of its own. A caller waits for its answers at
most as long as configured, and finds a late answer in the cache the next time. Requests are limited
to a rate, wait in a bounded queue, and pause while the service fails. Answers can be stored in the
log (`answer_log.py`), where other processes find them, and this one after a restart.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from geoservice.reverse.geocoder import Place, ReverseResult
from waylog.config import ConfigError
from waylog.process.threads import Rounds, start_thread
from waylog.sealing.sealing import ENVIRONMENT

logger = logging.getLogger(__name__)

#: Points within some 100 m share an answer.
CELL_DEGREES: Final = 0.001

#: Options that only say how the fallback is asked, with their defaults.
_DEFAULTS: Final = {"fallback_options": "{}", "fallback_for": "nowhere", "fallback_rate": 1.0}

Cell = tuple[int, int]


class GeopyGeocoder(Protocol):
    """The part of a geopy geocoder's interface that is used."""

    def reverse(self, query: tuple[float, float], *, exactly_one: bool, timeout: float) -> Any:
        """Return a geopy Location, or None."""


class AnswerStore(Protocol):
    """Storage for answers that outlives this process."""

    def start(self, learn: Callable[[Cell, Place | None], None], loaded: threading.Event) -> None:
        """Call `learn` with the stored answers, set `loaded`, then call it with new answers."""

    def put(self, cell: Cell, place: Place | None) -> None:
        """Store an answer. Must not block or raise."""

    def close(self) -> None:
        """Stop calling `learn`; wait for answers that are being stored."""


@dataclass(frozen=True)
class FallbackSettings:
    """The limits of requests. The public Nominatim server allows one request per second."""

    rate_per_s: float = 1.0
    timeout_s: float = 5.0
    queue_cells_max: int = 200
    cache_cells_max: int = 20_000
    failures_max: int = 5
    pause_s: float = 60.0
    pause_s_max: float = 900.0
    #: Seconds that the first request waits for the stored answers.
    loading_s: float = 10.0


class CircuitBreaker:
    """A circuit breaker that opens after several failures in a row, each time for longer.

    The caller passes the time.
    """

    def __init__(self, settings: FallbackSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._pause_s = settings.pause_s
        self._closed_again_at = -math.inf

    def allows(self, now: float) -> bool:
        """Return whether a request may be sent."""
        return now >= self._closed_again_at

    def succeeded(self) -> None:
        """Record that a request was answered."""
        self._failures = 0
        self._pause_s = self._settings.pause_s

    def failed(self, now: float) -> float | None:
        """Record that a request failed; return the length of the pause in seconds if one begins."""
        self._failures += 1
        if self._failures < self._settings.failures_max:
            return None
        pause = self._pause_s
        self._closed_again_at = now + pause
        self._pause_s = min(2 * pause, self._settings.pause_s_max)
        # After the pause, one more failure starts the next one.
        self._failures = self._settings.failures_max - 1
        return pause


class Fallback:
    """A fallback that completes results without a place or without a street. Thread-safe."""

    def __init__(
        self,
        name: str,
        geocoder: GeopyGeocoder,
        *,
        wait_s: float = 0.0,
        settings: FallbackSettings | None = None,
        store: AnswerStore | None = None,
        for_towns: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread; `for_towns` also requests points with a town but no street."""
        # Imported here, because only processes with a fallback need geopy.
        from geopy.extra.rate_limiter import RateLimiter

        self._name = name
        self._for_towns = for_towns
        self._wait_s = wait_s
        self._settings = settings or FallbackSettings()
        delay_s = 1.0 / self._settings.rate_per_s
        self._reverse = RateLimiter(
            geocoder.reverse,
            min_delay_seconds=delay_s,
            # The circuit breaker counts failures, and retries much later.
            max_retries=0,
            error_wait_seconds=delay_s,
            swallow_exceptions=False,
        )
        self._clock = clock
        self._breaker = CircuitBreaker(self._settings)
        self._changed = threading.Condition()
        # None: the service has no answer for this cell either.
        self._answers: OrderedDict[Cell, Place | None] = OrderedDict()
        self._waiting: set[Cell] = set()
        self._queue: queue.Queue[tuple[Cell, float, float]] = queue.Queue(
            self._settings.queue_cells_max
        )
        self._answered = 0
        self._stopping = threading.Event()
        self._store = store
        self._loaded = threading.Event()
        if store is None:
            self._loaded.set()
        else:
            store.start(self._learn, self._loaded)
        self._thread = start_thread(self._run, f"fallback-{name}", may_end=self._stopping.is_set)

    def complete(self, results: Sequence[ReverseResult]) -> list[ReverseResult]:
        """Return the results, with places where the service answered in time.

        Waits at most `wait_s` for all of them together.
        """
        wanted = {
            index: _cell(result.lat, result.lon)
            for index, result in enumerate(results)
            if self._wants(result)
        }
        completed = list(results)
        if not wanted:
            return completed
        deadline = self._clock() + self._wait_s
        with self._changed:
            asked = set()
            for index, cell in wanted.items():
                if cell in self._answers:
                    self._answers.move_to_end(cell)
                elif self._ask(cell, results[index].lat, results[index].lon):
                    asked.add(cell)
            while asked & self._waiting and (left := deadline - self._clock()) > 0:
                self._changed.wait(left)
            for index, cell in wanted.items():
                place = self._answers.get(cell)
                if place is not None:
                    completed[index] = self._completed(results[index], place)
        return completed

    @property
    def answered(self) -> int:
        """Number of answers received. While it is unchanged, `answer` returns the same."""
        return self._answered

    def is_awaited(self, result: ReverseResult) -> bool:
        """Return whether an answer for this point is still expected."""
        return self._wants(result) and _cell(result.lat, result.lon) in self._waiting

    def lacks(self, result: ReverseResult) -> bool:
        """Return whether this point needs an answer that is not known yet."""
        if not self._wants(result):
            return False
        with self._changed:
            return _cell(result.lat, result.lon) not in self._answers

    def answer(self, result: ReverseResult) -> ReverseResult | None:
        """Return the result with the place answered so far, or None. Sends no request."""
        with self._changed:
            place = self._answers.get(_cell(result.lat, result.lon))
        return None if place is None else self._completed(result, place)

    def close(self) -> None:
        """Send no more requests. A request in progress is not waited for."""
        self._stopping.set()
        if self._store is not None:
            self._store.close()

    def _wants(self, result: ReverseResult) -> bool:
        place = result.place
        # A place that is not of OpenStreetMap is a town or country of the embedded world.
        return place is None or (self._for_towns and place.osm_type is None)

    def _completed(self, result: ReverseResult, place: Place) -> ReverseResult:
        return msgspec.structs.replace(
            result,
            place=place,
            # It was the distance to the town that our index knows.
            distance=None,
            index_version=f"{result.index_version}+{self._name}",
        )

    def _ask(self, cell: Cell, lat: float, lon: float) -> bool:
        """Queue a cell; return whether an answer can be expected."""
        if cell in self._waiting:
            return True
        if not self._breaker.allows(self._clock()):
            return False
        try:
            self._queue.put_nowait((cell, lat, lon))
        except queue.Full:
            return False
        self._waiting.add(cell)
        return True

    def _run(self) -> None:
        rounds = Rounds(f"taking an answer of {self._name}")
        self._loaded.wait(self._settings.loading_s)
        while not self._stopping.is_set():
            try:
                cell, lat, lon = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue
            with self._changed:
                known = cell in self._answers
            if known or not self._breaker.allows(self._clock()):
                self._give_up(cell)
                continue
            # The thread serves every cell to come.
            if not rounds.once(partial(self._request, cell, lat, lon)):
                self._give_up(cell)

    def _request(self, cell: Cell, lat: float, lon: float) -> None:
        try:
            location = self._reverse((lat, lon), exactly_one=True, timeout=self._settings.timeout_s)
            place = _as_place(location) if location is not None else None
        except Exception as error:
            pause = self._breaker.failed(self._clock())
            # The message is not logged: it may hold the request with its coordinates or a key.
            logger.warning("%s did not answer: %s", self._name, type(error).__name__)
            if pause is not None:
                logger.warning("%s is left alone for %.0f s", self._name, pause)
            self._give_up(cell)
            return
        self._breaker.succeeded()
        self._learn(cell, place)
        if self._store is not None:
            self._store.put(cell, place)

    def _learn(self, cell: Cell, place: Place | None) -> None:
        """Store an answer, received or read from the log, and wake the waiting threads."""
        with self._changed:
            self._answers[cell] = place
            while len(self._answers) > self._settings.cache_cells_max:
                self._answers.popitem(last=False)
            self._waiting.discard(cell)
            self._answered += 1
            self._changed.notify_all()

    def _give_up(self, cell: Cell) -> None:
        with self._changed:
            self._waiting.discard(cell)
            self._changed.notify_all()


def _cell(lat: float, lon: float) -> Cell:
    row = round(lat / CELL_DEGREES)
    # Make cells square, but limit their width: near a pole they would surround it.
    return row, round(lon / CELL_DEGREES * max(0.01, math.cos(math.radians(lat))))


def _as_place(location: Any) -> Place:
    raw = location.raw if isinstance(location.raw, dict) else {}
    members = raw.get("address")
    address = (
        {str(key): value for key, value in members.items() if isinstance(value, str)}
        if isinstance(members, dict)
        else {}
    )
    display_name = str(location.address)
    kind = raw.get("addresstype")
    return Place(
        place_id=0,
        type=kind if isinstance(kind, str) else "place",
        name=str(raw.get("name") or display_name.partition(",")[0]),
        display_name=display_name,
        address=address,
        lat=float(location.latitude),
        lon=float(location.longitude),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that can have a fallback."""
    group = parser.add_argument_group(
        "fallback", "ask somebody else about points our index has nothing for (off by default)"
    )
    group.add_argument(
        "--fallback", metavar="NAME", help="a geocoder of geopy: nominatim, photon, ..."
    )
    group.add_argument(
        "--fallback-options",
        metavar="JSON",
        default=_DEFAULTS["fallback_options"],
        help='its arguments, as \'{"domain": "nominatim.example", "scheme": "http"}\'',
    )
    group.add_argument(
        "--fallback-for",
        choices=("nowhere", "towns"),
        default=_DEFAULTS["fallback_for"],
        help="ask where our index has nothing (nowhere), or also where it knows only the town "
        "(towns) (default %(default)s)",
    )
    group.add_argument(
        "--fallback-rate",
        type=float,
        default=_DEFAULTS["fallback_rate"],
        metavar="R",
        help="requests a second at most (default %(default)s)",
    )


def from_arguments(
    arguments: argparse.Namespace, *, wait_s: float, bootstrap_servers: str | None = None
) -> Fallback | None:
    """Return the fallback that the options ask for, or None; raises ConfigError.

    With `bootstrap_servers` its answers are stored in the log.
    """
    geocoder = check_arguments(arguments)
    if geocoder is None:
        return None
    name: str = arguments.fallback
    # geopy writes the URLs of its requests, with coordinates and keys, to its debug log.
    logging.getLogger("geopy").setLevel(logging.WARNING)
    settings = FallbackSettings(rate_per_s=arguments.fallback_rate)
    logger.info("points without an address are sent to %s", name)
    store = None
    if bootstrap_servers is not None and os.environ.get(ENVIRONMENT):
        # An answer reveals where somebody is, and does not say whose key would have to encrypt it.
        logger.info("answers of %s are not kept: the log's values are sealed", name)
    elif bootstrap_servers is not None:
        from geoservice.fallback.answer_log import AnswerLog

        store = AnswerLog(bootstrap_servers, name)
    return Fallback(
        name,
        geocoder,
        wait_s=wait_s,
        settings=settings,
        store=store,
        for_towns=arguments.fallback_for == "towns",
    )


def check_arguments(arguments: argparse.Namespace) -> Any:
    """Return the geopy geocoder that the options ask for, or None; raises ConfigError."""
    name: str | None = arguments.fallback
    if name is None:
        for option, value in _DEFAULTS.items():
            if getattr(arguments, option) != value:
                raise ConfigError(f"--{option.replace('_', '-')} needs --fallback")
        return None
    from geopy.exc import GeopyError
    from geopy.geocoders import SERVICE_TO_GEOCODER

    try:
        options = json.loads(arguments.fallback_options)
    except ValueError:
        options = None
    # Messages must not repeat the options, because they may hold a key.
    if not isinstance(options, dict):
        raise ConfigError("--fallback-options must be a JSON object")
    if not 0 < arguments.fallback_rate < math.inf:
        raise ConfigError("--fallback-rate must be greater than 0")
    service = SERVICE_TO_GEOCODER.get(name.lower())
    if service is None:
        known = ", ".join(sorted(SERVICE_TO_GEOCODER))
        raise ConfigError(f"--fallback {name}: geopy has no such geocoder; it has {known}")
    try:
        options.setdefault("user_agent", "waylog")
        return service(**options)
    except (GeopyError, TypeError, ValueError) as error:
        raise ConfigError(f"--fallback {name}: {type(error).__name__}: {error}") from None
