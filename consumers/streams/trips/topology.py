"""Topology `trips`: trips, distance and moving time of each device, and of each of its days."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from consumers.streams.fix_processor import FixProcessor
from consumers.streams.processor import Context
from consumers.streams.properties import Properties
from consumers.streams.trips.messages import Trip, TripDay, encode_trip
from consumers.worker.records import InputRecord
from waylog.config import ConfigError
from waylog.kafka.topics import TRIP, TRIP_DAY, TRIP_TOPICS, Topic
from waylog.messages import Fix
from waylog.movement.calendar import Calendar
from waylog.movement.movement import (
    Course,
    Day,
    Movement,
    Place,
    Rules,
    forget_days,
    take_place,
)

_KMH: Final = 3.6


class Trips(FixProcessor[Movement]):
    """Tells the trips of devices, and totals of their days."""

    name: ClassVar[str] = "trips"
    summary: ClassVar[str] = "trips, distance and moving time by device and day, to topic trip"
    value_type = Movement

    def __init__(self, properties: Properties) -> None:
        """Read the rules, the time zone of the days, and how often totals are told."""
        super().__init__(properties)
        number = properties.number
        self._rules = Rules(
            stay_m=number("stay_m", 100.0, least=1.0),
            stay_ms=round(number("stay_s", 300.0, least=1.0) * 1000),
            silence_ms=round(number("silence_s", 900.0, least=1.0) * 1000),
            step_m=number("step_m", 10.0, least=0.0),
            minimum_m=number("minimum_m", 300.0, least=0.0),
            slowest=number("slowest_kmh", 1.8, least=0.1) / _KMH,
            implausible=number("implausible_kmh", 400.0, least=1.0) / _KMH,
        )
        self._accuracy = number("accuracy_m", 10.0, least=0.0)
        self._accuracy_max = number("accuracy_max_m", 100.0, least=1.0)
        self._update_ms = round(number("update_s", 60.0, least=0.0) * 1000)
        try:
            self._calendar = Calendar(properties.text("time_zone", "UTC"))
        except ConfigError as error:
            raise ConfigError(f"--property time_zone: {error}") from None

    def topics(self) -> Sequence[Topic]:
        """Return the topics of trips and of days."""
        return TRIP_TOPICS

    def messages(self) -> Mapping[str, type[msgspec.Struct]]:
        """Return what the records of both topics are."""
        return {TRIP: Trip, TRIP_DAY: TripDay}

    def observe(
        self, fix: Fix, time: int, state: Movement | None, record: InputRecord, context: Context
    ) -> Movement | None:
        """Take the next fix of a device."""
        if state is None:
            state = Movement(time)
        accuracy = self._accuracy if fix.accuracy is None else fix.accuracy
        # False for NaN, too.
        if not 0.0 <= accuracy <= self._accuracy_max:
            return state
        said = fix.speed if fix.speed is not None and 0.0 <= fix.speed < math.inf else None
        place = Place(time, fix.lat, fix.lon, accuracy)
        ended = take_place(state, place, said, self._rules, self._calendar)
        if ended is not None:
            self._tell_trip(fix.device, ended.course, ended.end, True, record, context)
        if ended is None and time - state.told < self._update_ms:
            return state
        course, anchor = state.course, state.anchor
        changed = [date for date, day in state.days.items() if day.changed]
        if changed and ended is None and course is not None and course.is_trip and anchor:
            self._tell_trip(fix.device, course, anchor, False, record, context)
        for date in changed:
            self._tell_day(fix.device, date, state.days[date], record, context)
            state.days[date].changed = False
        if changed or ended is not None:
            state.told = time
        forget_days(state, self._calendar)
        return state

    def _tell_trip(
        self,
        device: str,
        course: Course,
        end: Place,
        ended: bool,
        record: InputRecord,
        context: Context,
    ) -> None:
        origin = course.origin
        trip = Trip(
            device=device,
            user=device.partition("/")[0],
            start=origin.time,
            end=end.time,
            ended=ended,
            origin_lat=origin.lat,
            origin_lon=origin.lon,
            lat=end.lat,
            lon=end.lon,
            distance_m=round(course.way.metres, 1),
            moving_s=round(course.way.moving_ms / 1000, 1),
            fastest=round(course.way.fastest, 2),
        )
        context.forward(TRIP, f"{device}\n{origin.time}", encode_trip(trip), record)

    def _tell_day(
        self, device: str, date: str, day: Day, record: InputRecord, context: Context
    ) -> None:
        told = TripDay(
            device=device,
            user=device.partition("/")[0],
            date=date,
            time_zone=self._calendar.name,
            trips=day.trips,
            distance_m=round(day.way.metres, 1),
            moving_s=round(day.way.moving_ms / 1000, 1),
            fastest=round(day.way.fastest, 2),
            unseen_m=round(day.unseen, 1),
        )
        context.forward(TRIP_DAY, f"{device}\n{date}", encode_trip(told), record)
