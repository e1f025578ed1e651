"""Live events and MQTT messages in the form that friends receive.

Within the circle around a home a friend learns that the user has arrived, and then once per quarter
of an hour that the user is still there. Every single message would reveal how long the way from the
edge of the circle to the door takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from gateway.formats import Context, owntracks, positions
from gateway.friends.friend_filter import HOME_MS, FriendFilter, is_number, told_at
from gateway.shares.share import FRIENDS, Terms
from gateway.users.cards import card, location
from gateway.views.view import ViewEvent
from waylog.kafka.topics import ADDRESS, LOCATION
from waylog.malformed import MALFORMED
from waylog.messages import Address, Fix, decode_address, decode_fix, encode

_DEVICES_MAX: Final = 50_000
_KEPT_MAX: Final = 2_000
_encode = msgspec.json.Encoder().encode

_What = TypeVar("_What")


class FilteredEvent(NamedTuple, Generic[_What]):
    """The form that friends receive, and its time (ms): later friendships do not get it."""

    time: int
    what: _What


_ToldBytes = FilteredEvent[bytes] | None
#: Takes the device's name, the payload, whether it is retained, and the time in ms.
_Make = Callable[[str, bytes, bool, int], _ToldBytes]


class _AtHome:
    """For each device at home, the quarter of an hour in which it was last shown."""

    def __init__(self) -> None:
        self._quarters: OrderedDict[str, int] = OrderedDict()

    def is_news(self, name: str, time: int, at_home: bool) -> bool:
        """Tell whether a position is to be shown."""
        if not at_home:
            self._quarters.pop(name, None)
            return True
        quarter = time // HOME_MS
        if quarter <= self._quarters.get(name, -1):
            return False
        self._quarters[name] = quarter
        self._quarters.move_to_end(name)
        if len(self._quarters) > _DEVICES_MAX:
            self._quarters.popitem(last=False)
        return True


class FriendEventFilter:
    """Converts the messages of one stream. Live viewers share one; each catch-up has its own."""

    def __init__(self, friend_filter: FriendFilter, terms: Terms = FRIENDS) -> None:
        self.filter = friend_filter
        self._terms = terms
        self._at_home = _AtHome()
        # By kind and device, the id of the cell and time that were last shown.
        self._cells: OrderedDict[str, str] = OrderedDict()
        self._kept: OrderedDict[tuple[str, int, int], FilteredEvent[ViewEvent] | None] = (
            OrderedDict()
        )

    @property
    def ready(self) -> bool:
        """Tell whether homes are loaded; until then friends are shown no positions."""
        return self.filter.is_ready_for(self._terms)

    def event(self, event: ViewEvent) -> FilteredEvent[ViewEvent] | None:
        """Return an event as friends see it, or None. Events of one device must come in order."""
        key = (event.topic, event.partition, event.offset)
        if key in self._kept:
            return self._kept[key]
        if not self.ready:
            return None
        told = self._kept[key] = self._event(event)
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return told

    def _event(self, event: ViewEvent) -> FilteredEvent[ViewEvent] | None:
        record: Fix | Address
        told: Fix | Address | None
        try:
            if event.topic == LOCATION:
                record = decode_fix(event.value)
                told = self.filter.fix(record, self._terms)
            elif event.topic == ADDRESS:
                record = decode_address(event.value)
                told = self.filter.address(record, self._terms)
            else:
                return None
        except MALFORMED:
            return None
        if told is None or not (self._is_news(event.topic, record) and self._is_new_cell(told)):
            return None
        what = event._replace(lat=told.lat, lon=told.lon, value=encode(told))
        return FilteredEvent(told_at(record), what)

    def _is_news(self, kind: str, record: Fix | Address) -> bool:
        owner = record.device.partition("/")[0]
        at_home = self._terms.hides_home and (
            self.filter.at_home(owner, record.lat, record.lon) is not None
        )
        return self._at_home.is_news(f"{kind}\0{record.device}", record.time, at_home)

    def _is_new_cell(self, told: Fix | Address) -> bool:
        """Tell whether somebody who sees cells sees anything new."""
        if self._terms.cell_m is None:
            return True
        kind, cell = ("fix", told.id) if isinstance(told, Fix) else ("address", told.fix_id)
        name = f"{kind}\0{told.device}"
        is_new = self._cells.get(name) != cell
        self._cells[name] = cell
        self._cells.move_to_end(name)
        if len(self._cells) > _DEVICES_MAX:
            self._cells.popitem(last=False)
        return is_new

    # --- MQTT -----------------------------------------------------------------------------------

    def message(self, topic: str, payload: bytes, retained: bool, now: int) -> _ToldBytes:
        """Return what friends get in place of a device's message, or None. `now` is in ms.

        `retained` marks a message sent to a new subscriber: it is current state, not news. Until
        homes are loaded, no message with a position is passed on.
        """
        root, owner, name, *rest = *topic.split("/"), "", "", ""
        tail = [level for level in rest if level]
        known: dict[str, _Make] = {
            "devices/address": self._address,
            "devices/position": self._positions,
            "owntracks": self._owntracks,
            "owntracks/event": self._transition,
            "owntracks/info": self._card,
        }
        make = known.get("/".join((root, *tail)))
        if make is None:
            return None
        try:
            return make(f"{owner}/{name}", payload, retained, now)
        except (*MALFORMED, TypeError, OverflowError):
            return None  # a message that cannot be parsed is not passed on

    @staticmethod
    def is_of_a_moment(topic: str) -> bool:
        """Tell whether a message is a transition, which no retained message can replace."""
        return topic.startswith("owntracks/") and topic.endswith("/event")

    def _address(self, device: str, payload: bytes, retained: bool, _: int) -> _ToldBytes:
        address = decode_address(payload)
        told = self.filter.address(address) if address.device == device else None
        if told is None or not (retained or self._is_news("address", address)):
            return None
        return FilteredEvent(told_at(address), encode(told))

    def _positions(self, device: str, payload: bytes, retained: bool, now: int) -> _ToldBytes:
        fixes = self._parsed(positions.parse, device, payload, now)
        told = self._told_fixes("position", fixes, retained)
        if not told:
            return None
        whole = encode(told[0]) if len(told) == 1 else _encode(told)
        return FilteredEvent(min(told_at(fix) for fix in fixes), whole)

    def _owntracks(self, device: str, payload: bytes, retained: bool, now: int) -> _ToldBytes:
        kind = _decoded(payload).get("_type")
        if kind == "encrypted":
            # The owner has given the key to friends and so decides what they see. The time of the
            # message is unknown, so a retained one, which may be older than the friendship, is not
            # passed on.
            return None if retained else FilteredEvent(now, payload)
        if kind == "lwt" and not retained:
            return FilteredEvent(now, _encode({"_type": "lwt", "tst": now // 1000}))
        fixes = self._parsed(owntracks.parse, device, payload, now) if kind == "location" else []
        told = self._told_fixes("owntracks", fixes, retained)
        return FilteredEvent(told_at(fixes[0]), _encode(location(told[0]))) if told else None

    @staticmethod
    def _parsed(
        parse: Callable[[bytes, Context], Any], device: str, payload: bytes, now: int
    ) -> list[Fix]:
        owner, _, name = device.partition("/")
        fixes: list[Fix] = parse(payload, Context(owner, name, now)).fixes
        return fixes

    def _told_fixes(self, kind: str, fixes: list[Fix], retained: bool) -> list[Fix]:
        if not self.ready:
            return []
        if retained and any(fix.time > fix.received for fix in fixes):
            return []  # from a clock that is ahead; the time of its arrival is no longer known
        told = [self.filter.fix(fix) for fix in fixes if retained or self._is_news(kind, fix)]
        return [each for each in told if each is not None]

    def _transition(self, device: str, payload: bytes, _: bool, now: int) -> _ToldBytes:
        """Filter a transition of a region; those near home would reveal where the door is."""
        if not self.ready:
            return None
        members = _decoded(payload)
        lat, lon, seconds = members.get("lat"), members.get("lon"), members.get("tst")
        owner = device.partition("/")[0]
        if members.get("private"):
            return None  # the way into a fence of the user's own, and out of it
        if members.get("_type") != "transition" or not (is_number(lat) and is_number(lon)):
            return None
        if not is_number(seconds) or self.filter.at_home(owner, float(lat), float(lon)) is not None:
            return None
        told = {
            name: members[name]
            for name in ("_type", "event", "desc", "tid", "tst", "acc", "t")
            if isinstance(members.get(name), str | int | float)
        }
        made = self.filter.id("region", f"{owner}\0{members.get('wtst')}")
        told |= {"lat": round(float(lat), 5), "lon": round(float(lon), 5)}
        told["wtst"] = int(made[:7], 16)
        return FilteredEvent(int(seconds * 1000), _encode(told))

    def card(
        self, address: Address, fix: Fix | None, own: Mapping[str, Any], retained: bool
    ) -> _ToldBytes:
        """Return the card that the gateway makes from a device's address."""
        told = self.filter.address(address)
        if told is None or not (retained or self._is_news("card", address)):
            return None
        shown = None if fix is None else self.filter.fix(fix)
        return FilteredEvent(told_at(address), _encode(card(told, shown, own)))

    def _card(self, device: str, payload: bytes, _: bool, now: int) -> _ToldBytes:
        """Filter a card that a device itself has published, which has no address."""
        members = _decoded(payload)
        if members.get("_type") != "card":
            return None
        kept = ("_type", "name", "face", "tid")
        return FilteredEvent(
            now, _encode({name: members[name] for name in kept if name in members})
        )


def _decoded(payload: bytes) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
    return members
