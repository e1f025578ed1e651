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
from gateway.users.cards import card, location, tid_of
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


class _Asked(NamedTuple):
    """How a message is to be told."""

    retained: bool  # it is current state, not news
    now: int  # ms
    terms: Terms


#: Takes the device's name and the payload.
_Make = Callable[[str, bytes, _Asked], _ToldBytes]


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


class _CardParts(msgspec.Struct):
    """What a card is made from: a card itself does not tell what of its name is the address."""

    address: msgspec.Raw
    tid: str
    own: dict[str, Any]


_card_parts = msgspec.json.Decoder(_CardParts).decode


def card_parts(address: Address, fix: Fix | None, own: Mapping[str, Any]) -> bytes:
    """Return what `FriendEventFilter.card` needs; `own` is the card of the device's owner."""
    tid = own.get("tid")
    if not isinstance(tid, str) or not tid:
        tid = tid_of(address.device.rpartition("/")[2], fix)
    kept = {name: own[name] for name in ("name", "face") if name in own}
    return _encode(_CardParts(msgspec.Raw(encode(address)), tid, kept))


class FriendEventFilter:
    """Converts the messages of one stream. Live viewers share one; each catch-up has its own.

    What is news is decided for each terms by itself, and for all who are told by the same terms at
    once: whoever came anew would else be told of a moment that the others are not.
    """

    def __init__(self, friend_filter: FriendFilter) -> None:
        self.filter = friend_filter
        self._at_home = _AtHome()
        # By terms, kind and device, the id of the cell and time that were last shown.
        self._cells: OrderedDict[str, str] = OrderedDict()
        self._kept: OrderedDict[tuple[str, int, int, Terms], FilteredEvent[ViewEvent] | None] = (
            OrderedDict()
        )

    @property
    def ready(self) -> bool:
        """Tell whether homes are loaded; until then friends are shown no positions."""
        return self.filter.ready

    def event(self, event: ViewEvent, terms: Terms = FRIENDS) -> FilteredEvent[ViewEvent] | None:
        """Return an event as it is told, or None. Events of one device must come in order."""
        key = (event.topic, event.partition, event.offset, terms)
        if key in self._kept:
            return self._kept[key]
        if not self.filter.is_ready_for(terms):
            return None
        told = self._kept[key] = self._event(event, terms)
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return told

    def _event(self, event: ViewEvent, terms: Terms) -> FilteredEvent[ViewEvent] | None:
        record: Fix | Address
        told: Fix | Address | None
        try:
            if event.topic == LOCATION:
                record = decode_fix(event.value)
                told = self.filter.fix(record, terms)
            elif event.topic == ADDRESS:
                record = decode_address(event.value)
                told = self.filter.address(record, terms)
            else:
                return None
        except MALFORMED:
            return None
        if told is None or not self._is_news(event.topic, record, told, terms):
            return None
        what = event._replace(lat=told.lat, lon=told.lon, value=encode(told))
        return FilteredEvent(told_at(record), what)

    def _is_news(self, kind: str, record: Fix | Address, told: Fix | Address, terms: Terms) -> bool:
        """Tell whether a record, of which `told` would be told, is news to those of these terms."""
        owner = record.device.partition("/")[0]
        at_home = terms.hides_home and (
            self.filter.at_home(owner, record.lat, record.lon) is not None
        )
        name = f"{kind}\0{record.device}"
        if not terms.is_exact or not terms.hides_home:
            name = f"{terms.cell_m}\0{terms.hides_home}\0{name}"
        is_news = self._at_home.is_news(name, record.time, at_home)
        return is_news and (terms.is_exact or self._is_new_cell(name, told))

    def _is_new_cell(self, name: str, told: Fix | Address) -> bool:
        """Tell whether somebody who sees cells sees anything new."""
        cell = told.id if isinstance(told, Fix) else told.fix_id
        is_new = self._cells.get(name) != cell
        self._cells[name] = cell
        self._cells.move_to_end(name)
        if len(self._cells) > _DEVICES_MAX:
            self._cells.popitem(last=False)
        return is_new

    # --- MQTT -----------------------------------------------------------------------------------

    def message(
        self, topic: str, payload: bytes, retained: bool, now: int, terms: Terms = FRIENDS
    ) -> _ToldBytes:
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
            return make(f"{owner}/{name}", payload, _Asked(retained, now, terms))
        except (*MALFORMED, TypeError, OverflowError):
            return None  # a message that cannot be parsed is not passed on

    @staticmethod
    def is_of_a_moment(topic: str) -> bool:
        """Tell whether a message is a transition, which no retained message can replace."""
        return topic.startswith("owntracks/") and topic.endswith("/event")

    def _address(self, device: str, payload: bytes, asked: _Asked) -> _ToldBytes:
        address = decode_address(payload)
        if address.device != device:
            return None
        told = self.filter.address(address, asked.terms)
        if told is None or not (
            asked.retained or self._is_news("address", address, told, asked.terms)
        ):
            return None
        return FilteredEvent(told_at(address), encode(told))

    def _positions(self, device: str, payload: bytes, asked: _Asked) -> _ToldBytes:
        fixes = self._parsed(positions.parse, device, payload, asked.now)
        told = self._told_fixes("position", fixes, asked)
        if not told:
            return None
        whole = encode(told[0]) if len(told) == 1 else _encode(told)
        return FilteredEvent(min(told_at(fix) for fix in fixes), whole)

    def _owntracks(self, device: str, payload: bytes, asked: _Asked) -> _ToldBytes:
        kind = _decoded(payload).get("_type")
        retained, now, terms = asked
        if kind == "encrypted":
            # The owner has given the key to friends and so decides what they see, unless it was
            # decided that they see less. The time of the message is unknown, so a retained one,
            # which may be older than the friendship, is not passed on.
            return FilteredEvent(now, payload) if terms.is_exact and not retained else None
        if kind == "lwt" and terms.is_exact and not retained:
            return FilteredEvent(now, _encode({"_type": "lwt", "tst": now // 1000}))
        fixes = self._parsed(owntracks.parse, device, payload, now) if kind == "location" else []
        told = self._told_fixes("owntracks", fixes, asked)
        return FilteredEvent(told_at(fixes[0]), _encode(location(told[0]))) if told else None

    @staticmethod
    def _parsed(
        parse: Callable[[bytes, Context], Any], device: str, payload: bytes, now: int
    ) -> list[Fix]:
        owner, _, name = device.partition("/")
        fixes: list[Fix] = parse(payload, Context(owner, name, now)).fixes
        return fixes

    def _told_fixes(self, kind: str, fixes: list[Fix], asked: _Asked) -> list[Fix]:
        retained, _, terms = asked
        if retained and any(fix.time > fix.received for fix in fixes):
            return []  # from a clock that is ahead; the time of its arrival is no longer known
        found: list[Fix] = []
        for fix in fixes:
            told = self.filter.fix(fix, terms)
            if told is not None and (retained or self._is_news(kind, fix, told, terms)):
                found.append(told)
        return found

    def _transition(self, device: str, payload: bytes, asked: _Asked) -> _ToldBytes:
        """Filter a transition of a region; those near home would reveal where the door is."""
        if not (self.ready and asked.terms.is_exact):
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

    def card(self, parts: bytes, retained: bool, terms: Terms = FRIENDS) -> _ToldBytes:
        """Return the card that the gateway makes from a device's address, of `card_parts`."""
        made = _card_parts(parts)
        address = decode_address(made.address)
        told = self.filter.address(address, terms)
        if told is None or not (retained or self._is_news("card", address, told, terms)):
            return None
        return FilteredEvent(told_at(address), _encode(card(told, None, made.own, made.tid)))

    def _card(self, device: str, payload: bytes, asked: _Asked) -> _ToldBytes:
        """Filter a card that a device itself has published, which has no address."""
        members = _decoded(payload)
        if members.get("_type") != "card":
            return None
        kept = ("_type", "name", "face", "tid")
        return FilteredEvent(
            asked.now, _encode({name: members[name] for name in kept if name in members})
        )


def _decoded(payload: bytes) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
    return members
