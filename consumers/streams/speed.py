"""Topology `speed`: a device is faster than a limit, from when to when, and how fast at most.

The speed of a fix is what the device says, or else the distance from its fix before, less the
radius of accuracy of both, by the time between them. So a position that is only known roughly
makes nobody speed. A jump that no vehicle makes is left out, and so is its position.

An event of type `speeding` is written when a speed is above the limit, and another when it is
below the limit by the hysteresis, or when nothing was known for a while. In between nothing is
written, however the speed goes up and down.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, TypeGuard

from consumers.streams.events import forward_event
from consumers.streams.fix_processor import DeviceState, FixProcessor
from consumers.streams.processor import Context
from consumers.streams.properties import Properties
from consumers.worker.records import InputRecord
from waylog.great_circle import distance_m
from waylog.messages import Fix

TYPE: Final = "speeding"
_KMH: Final = 3.6
#: Milliseconds between two fixes that tell a speed, at least: clocks and roundings are that coarse.
_APART_MS: Final = 1000


class SpeedState(DeviceState):
    """The last plausible position of a device, and the speeding that goes on."""

    at: int = 0  # ms
    lat: float | None = None
    lon: float | None = None
    accuracy: float = 0.0  # m
    since: int = 0  # of the first fix above the limit, ms; 0: not speeding
    last: int = 0  # of the last fix above the limit, ms
    fastest: float = 0.0  # m/s


class Speed(FixProcessor[SpeedState]):
    """Tells when devices are faster than their limit."""

    name: ClassVar[str] = "speed"
    summary: ClassVar[str] = "devices faster than a limit, to topic event"
    value_type = SpeedState

    def __init__(self, properties: Properties) -> None:
        """Read the limits: of all, of a user (`limit_kmh.ann`), of a device (`.ann/phone`)."""
        super().__init__(properties)
        self._limit = properties.number("limit_kmh", 130.0, least=1.0) / _KMH
        self._limits = {
            name: limit / _KMH
            for name, limit in properties.numbers_below("limit_kmh", least=1.0).items()
        }
        self._ends_at = 1.0 - properties.number("hysteresis_percent", 10.0, least=0.0) / 100
        self._implausible = properties.number("implausible_kmh", 400.0, least=1.0) / _KMH
        self._silence_ms = round(properties.number("silence_s", 600.0, least=1.0) * 1000)

    def limit_of(self, device: str) -> float:
        """Return the limit of a device in m/s: its own, its user's, or that of all."""
        if not self._limits:
            return self._limit
        user = device.partition("/")[0]
        return self._limits.get(device, self._limits.get(user, self._limit))

    def observe(
        self, fix: Fix, time: int, state: SpeedState | None, record: InputRecord, context: Context
    ) -> SpeedState:
        """Compare the speed of a fix with its device's limit."""
        if state is None:
            state = SpeedState(time)
        speed = self._speed(fix, time, state)
        if state.since and time - state.last > self._silence_ms:
            self._end(fix, state, state.last, record, context)
        if speed is None:
            return state
        limit = self.limit_of(fix.device)
        if speed > limit:
            if not state.since:
                state.since = time
                state.fastest = 0.0
                self._tell(fix, "begin", time, {"speed": speed}, record, context)
            state.last = time
            state.fastest = max(state.fastest, speed)
        elif state.since and speed <= limit * self._ends_at:
            self._end(fix, state, time, record, context)
        return state

    def _speed(self, fix: Fix, time: int, state: SpeedState) -> float | None:
        """Return the speed in m/s, None if it is unknown; remembers a plausible position."""
        accuracy = fix.accuracy if _is_known(fix.accuracy) else 0.0
        said = fix.speed if _is_known(fix.speed) and fix.speed <= self._implausible else None
        apart_ms = time - state.at
        measured = None
        if state.lat is not None and state.lon is not None and apart_ms <= self._silence_ms:
            if apart_ms < _APART_MS:
                return said
            metres = distance_m(state.lat, state.lon, fix.lat, fix.lon)
            measured = max(0.0, metres - state.accuracy - accuracy) * 1000 / apart_ms
            if measured > self._implausible:
                return None
        state.at, state.lat, state.lon, state.accuracy = time, fix.lat, fix.lon, accuracy
        return measured if said is None else said

    def _end(
        self, fix: Fix, state: SpeedState, time: int, record: InputRecord, context: Context
    ) -> None:
        ended = {"since": state.since, "fastest": state.fastest}
        state.since = 0
        self._tell(fix, "end", time, ended, record, context)

    def _tell(
        self,
        fix: Fix,
        transition: str,
        time: int,
        members: dict[str, float],
        record: InputRecord,
        context: Context,
    ) -> None:
        attributes = {"limit": self.limit_of(fix.device), **members, "lat": fix.lat, "lon": fix.lon}
        forward_event(context, record, fix, TYPE, transition, time, attributes)


def _is_known(value: float | None) -> TypeGuard[float]:
    """Tell whether a device has said a sensible number of metres, or of metres a second."""
    return value is not None and 0.0 <= value < math.inf
