"""Topology `meetings`: devices of two friends are together for a while, and move together.

Three processors: positions at the same moments (consumers.streams.meetings.positions), pairs that
are near each other (consumers.streams.meetings.pairs), and here the meetings of a pair. Positions
are keyed by cells of a grid and not by pairs: a position goes to one cell and sometimes its
neighbours, but to as many pairs as its user has friends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import msgspec

from consumers.streams.events import forward_event
from consumers.streams.meetings.pairs import PAIRS, Near, Pairs
from consumers.streams.meetings.positions import POSITIONS, Measures, Positions
from consumers.streams.processor import FUTURE, Context, StreamProcessor, Topology
from consumers.streams.properties import Properties
from consumers.streams.store import Store
from consumers.streams.store_index import StoreIndexes
from consumers.streams.windows import Session, add_to_sessions
from consumers.worker.records import InputRecord
from waylog.great_circle import distance_m
from waylog.kafka.topics import FRIENDSHIP_TOPIC, KEYED_PARTITIONS, Topic
from waylog.malformed import MALFORMED
from waylog.messages import Fix

TYPE: Final = "meeting"


class Meetings(Topology):
    """Tells when friends meet, and when they move together."""

    name: ClassVar[str] = "meetings"
    summary: ClassVar[str] = "two friends' devices together, at a place or moving, to topic event"

    def __init__(self, properties: Properties) -> None:
        """Read the properties of all processors; raises ConfigError."""
        self.positions = Positions(properties)
        self.pairs = Pairs(properties)
        self._processors = (self.positions, self.pairs, Together(properties))

    def processors(self) -> Sequence[StreamProcessor[object]]:
        """Return the three processors."""
        return cast("Sequence[StreamProcessor[object]]", self._processors)

    def topics(self) -> Sequence[Topic]:
        """Return the topic of friendships, and those between the processors."""
        # What a processor has taken is not needed any more; positions are nobody's for long.
        hours = {"retention.ms": "21600000", "segment.ms": "3600000"}
        between = (Topic(name, KEYED_PARTITIONS, hours) for name in (POSITIONS, PAIRS))
        return FRIENDSHIP_TOPIC, *between


class Company(msgspec.Struct, array_like=True, gc=False):
    """What is known of a time during which two devices were near each other."""

    first: int = 0  # the first and the last time when they were nearer than near_m, ms; 0: never
    last: int = 0
    south: float = 90.0  # bounds of the places, degrees
    north: float = -90.0
    west: float = 180.0
    east: float = -180.0
    told: bool = False
    convoy: bool = False  # was told
    known_ms: int = 0  # since when `first` is what it is, by the wall clock

    def take(self, near: Near, near_m: float, now_ms: int) -> None:
        """Add a moment; `first` of a meeting that was told stays, since it names the meeting."""
        if near.metres <= near_m:
            if not self.first or (near.time < self.first and not self.told):
                self.first, self.known_ms = near.time, now_ms
            self.last = max(self.last, near.time)
        self.south, self.north = min(self.south, near.lat), max(self.north, near.lat)
        self.west, self.east = min(self.west, near.lon), max(self.east, near.lon)

    def area(self) -> list[float]:
        """Return south, west, north and east of the places in degrees, rounded to the outside.

        An event is erased with its own device and not with the other one: it says no more of that
        than where its own was.
        """
        south, west = (math.floor(each * 1000) / 1000 for each in (self.south, self.west))
        north, east = (math.ceil(each * 1000) / 1000 for each in (self.north, self.east))
        return [south, west, north, east]

    def metres(self) -> float:
        """Return the extent of the places."""
        if self.north < self.south:
            return 0.0
        return distance_m(self.south, self.west, self.north, self.east)


class PairState(msgspec.Struct, array_like=True):
    """The open sessions of a pair: start, end and company of each. The key is both devices."""

    time: int  # the latest, ms
    sessions: list[tuple[int, int, Company]] = []


class _Clock:
    """When a partition had a record, and was looked through, by the wall clock; None: not yet."""

    def __init__(self, store: Store[PairState]) -> None:
        self.heard_ms: int | None = None
        self.looked_ms = 0
        for _, state in store.items():
            store.stream_time = max(store.stream_time, state.time)


class Together(StreamProcessor[PairState]):
    """The third processor: the meetings of each pair."""

    name: ClassVar[str] = "meetings-3"
    topic = PAIRS
    value_type = PairState

    def __init__(self, properties: Properties) -> None:
        """Read the properties; raises ConfigError."""
        super().__init__(properties)
        self._measures = Measures(properties)
        self._wait_ms = round(properties.number("wait_s", 120.0, least=0.0) * 1000)
        self._idle_ms = round(properties.number("idle_s", 60.0, least=1.0) * 1000)
        self._clocks: StoreIndexes[_Clock] = StoreIndexes(_Clock)
        self._erased: dict[str, int] = {}
        self._decode: Any = msgspec.json.Decoder(Near).decode

    def process(
        self, records: Sequence[InputRecord], store: Store[PairState], context: Context
    ) -> None:
        """Take moments at which pairs were near each other."""
        self._clocks.of(store).heard_ms = context.now_ms
        for record in records:
            try:
                near: Near = self._decode(record.value() or b"")
            except MALFORMED as error:
                context.refuse(record, f"no pair: {error}")
                continue
            if near.time > context.latest:
                context.refuse(record, FUTURE)
                continue
            erased = max(self._erased.get(each, -1) for each in (near.device, near.other))
            if near.time > erased:
                self._take(near, store, context)
        self._end(store, store.stream_time, context)

    def punctuate(self, store: Store[PairState], context: Context) -> None:
        """Tell who has parted although no pair is near any more, and who met in a backlog."""
        index = self._clocks.of(store)
        if index.heard_ms is None:
            index.heard_ms = context.now_ms
        if context.now_ms - index.heard_ms >= self._idle_ms:
            self._end(store, max(store.stream_time, context.now_ms), context, now=True)
        elif context.now_ms - index.looked_ms >= self._idle_ms:
            index.looked_ms = context.now_ms
            self._tell_settled(store, context)

    def erase(self, erasures: Mapping[str, int], store: Store[PairState]) -> None:
        """Forget the pairs of erased devices; there are two in a key."""
        self._erased.update(erasures)
        for key in store.keys():  # noqa: SIM118 - the store changes meanwhile
            state = store.get(key)
            if state is not None and any(
                state.time <= erasures.get(device, -1) for device in key.split("\n")
            ):
                store.delete(key)

    def _take(self, near: Near, store: Store[PairState], context: Context) -> None:
        key = f"{near.device}\n{near.other}"
        state = store.get(key)
        if state is None:
            state = PairState(near.time, [])
        gap_ms = self._measures.apart_ms
        if near.time + gap_ms + self._wait_ms < store.stream_time:
            return

        store.stream_time = max(store.stream_time, near.time)

        def add(company: Company) -> Company:
            company.take(near, self._measures.near_m, context.now_ms)
            return company

        known = [Session(*each) for each in state.sessions]
        session, _ = add_to_sessions(known, near.time, gap_ms, Company, add, _merged)
        if self._is_settled(session.value, store.stream_time, context):
            self._tell_begun(key, session.value, context)
        state.time = max(state.time, near.time)
        state.sessions = [(each.start, each.end, each.value) for each in known]
        store.put(key, state)

    def _is_settled(self, company: Company, time: int, context: Context) -> bool:
        """Tell whether nothing before the begin of a meeting is to be expected any more.

        In a backlog the cells of the grid come in any order: what looks like a begin may be the
        rest of a meeting whose begin comes later. What is earlier than `apart_s` and `wait_s`
        before the newest is left out. As `wait_s` may be hours, it also counts that nothing
        earlier came for `idle_s`.
        """
        return (
            company.told
            or company.first + self._measures.apart_ms + self._wait_ms <= time
            or company.known_ms + self._idle_ms <= context.now_ms
        )

    def _tell_begun(self, key: str, company: Company, context: Context) -> bool:
        """Tell the begin of a meeting, and of a convoy; return whether there was something new."""
        device, _, other = key.partition("\n")
        known = company.told, company.convoy
        if not company.told and company.first and (
            company.last - company.first >= self._measures.least_ms
        ):  # fmt: skip
            company.told = True
            self._tell(device, other, "begin", company, {}, context)
        if company.told and not company.convoy and company.metres() >= self._measures.convoy_m:
            company.convoy = True
            self._tell(device, other, "convoy", company, {}, context)
        return known != (company.told, company.convoy)

    def _tell_settled(self, store: Store[PairState], context: Context) -> None:
        for key in store.keys():  # noqa: SIM118 - the store changes meanwhile
            state = store.get(key)
            assert state is not None
            news = [
                self._tell_begun(key, company, context)
                for _, _, company in state.sessions
                if self._is_settled(company, store.stream_time, context)
            ]
            if any(news):
                store.put(key, state)

    def _end(
        self, store: Store[PairState], time: int, context: Context, *, now: bool = False
    ) -> None:
        """End the sessions that nothing can be added to, once an interval of the time or now."""
        if time < store.sweep_at and not now:
            return
        store.sweep_at = time + self._measures.interval_ms
        self._tell_settled(store, context)
        over = time - self._measures.apart_ms - self._wait_ms
        for key in store.keys():  # noqa: SIM118 - the store changes meanwhile
            state = store.get(key)
            assert state is not None
            if all(end >= over for _, end, _ in state.sessions):
                continue
            device, _, other = key.partition("\n")
            for _, end, company in state.sessions:
                if end >= over:
                    continue
                self._tell_begun(key, company, context)
                if company.told:
                    more = {"until": company.last, "convoy": company.convoy}
                    self._tell(device, other, "end", company, more, context)
            state.sessions = [each for each in state.sessions if each[1] >= over]
            if state.sessions:
                store.put(key, state)
            else:
                store.delete(key)

    def _tell(
        self,
        device: str,
        other: str,
        transition: str,
        company: Company,
        more: dict[str, Any],
        context: Context,
    ) -> None:
        """Tell both users, each of the own device.

        The area is where the two were together, to `near_m` metres: a gateway tells no user of a
        meeting at the other one's home (FriendFilter.company).
        """
        begins = transition == "begin"
        time = company.first + self._measures.least_ms if begins else company.last
        for own, friend in ((device, other), (other, device)):
            at = Fix(
                id=f"{company.first}", device=own, user=own.partition("/")[0], lat=0.0, lon=0.0,
                time=time, received=time,
            )  # fmt: skip
            attributes = {
                "with": friend,
                "since": company.first,
                "area": company.area(),
                "near_m": self._measures.leave_m,
                **more,
            }
            forward_event(context, None, at, TYPE, transition, time, attributes, about=friend)


def _merged(one: Company, other: Company) -> Company:
    named = [each.first for each in (one, other) if each.told]
    return Company(
        first=min(named or [one.first or other.first, other.first or one.first]),
        last=max(one.last, other.last),
        south=min(one.south, other.south),
        north=max(one.north, other.north),
        west=min(one.west, other.west),
        east=max(one.east, other.east),
        told=one.told or other.told,
        convoy=one.convoy or other.convoy,
        known_ms=max(one.known_ms, other.known_ms),
    )
