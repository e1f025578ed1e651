"""Answers to apps, each in the form that the app wants, when the log has what it sent.

A builder is a plain function of what was sent and of what is known now. Those that tell an address
are called when the address of the newest fix has come, or is late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from gateway.formats import Parsed
from gateway.formats.secretbox import encrypt
from gateway.formats.values import live_time
from gateway.http.requests.newest import newest_of
from gateway.http.requests.services import Services
from gateway.notices.owntracks_downlink import set_waypoints
from gateway.users.auth import Identity
from gateway.users.cards import card, location
from waylog.messages import Fix

#: Devices of friends in one answer; each is some hundred bytes, and a picture some thousand.
FRIENDS_MAX: Final = 50

#: Of an answer, before others are served.
_ITEMS_A_PIECE: Final = 1_000

_encode = msgspec.json.Encoder().encode


class Receiving(NamedTuple):
    """The facts for a builder of an answer."""

    parsed: Parsed
    identity: Identity
    services: Services
    #: The fix that says where the device is now.
    newest: Fix | None


class _Rejection(msgspec.Struct, gc=False):
    """Of one position, by its place in the request. Dicts of ten thousand take twice as long."""

    index: int
    reason: str


#: The body of a 200, in pieces none of which takes long to make; none for an empty one.
Builder = Callable[[Receiving], Iterable[bytes]]


class Newest:
    """Finds, among the fixes of a request, the one that says where the device is now."""

    __slots__ = ("_time", "fix")

    def __init__(self) -> None:
        self.fix: Fix | None = None
        self._time = 0

    def seen(self, fix: Fix) -> Fix:
        """Look at one more, and give it back."""
        time = live_time(fix.time, fix.received)
        if self.fix is None or time > self._time:
            self.fix, self._time = fix, time
        return fix


def newest(parsed: Parsed) -> Fix | None:
    """The same of a small request at once."""
    found = Newest()
    for fix in parsed.fixes:
        found.seen(fix)
    return found.fix


def positions(received: Receiving) -> Iterable[bytes]:
    """Our own: what was stored, under which ids, and what was not."""
    parsed = received.parsed
    fixes = parsed.fixes
    if len(fixes) == 1 and not parsed.rejected and not parsed.client_ids:
        return (b'{"accepted":1,"ids":[%b],"rejected":[]}' % _encode(fixes[0].id),)
    return _positions(parsed)


def _positions(parsed: Parsed) -> Iterator[bytes]:
    fixes, rejected = parsed.fixes, parsed.rejected
    yield b'{"accepted":%d,"ids":[' % len(fixes)
    for start in range(0, len(fixes), _ITEMS_A_PIECE):
        yield _listed([fix.id for fix in fixes[start : start + _ITEMS_A_PIECE]], start)
    yield b'],"rejected":['
    for start in range(0, len(rejected), _ITEMS_A_PIECE):
        end = start + _ITEMS_A_PIECE
        pairs = zip(parsed.rejected_at[start:end], rejected[start:end], strict=True)
        yield _listed([_Rejection(index, each.reason) for index, each in pairs], start)
    yield b"]"
    if parsed.client_ids:
        # By the client's own names: it can delete exactly what is stored.
        acked = _encode([name for name in parsed.client_ids if name is not None])
        yield b',"acked":' + acked
    yield b"}"


def _listed(items: list[Any], start: int) -> bytes:
    """A part of a list, as it is within its brackets."""
    encoded = _encode(items)[1:-1]
    return b"," + encoded if start else encoded


def owntracks(received: Receiving) -> Iterable[bytes]:
    """An array of messages: the device's own card, and its friends.

    The app knows itself as owntracks/http/<tid>, and drops a whole answer for one element that it
    does not understand.
    """
    parsed, identity, services, fix = received
    if parsed.from_overland:
        return overland(received)
    messages: list[dict[str, Any]] = []
    if fix is not None:
        address = services.address_view.latest(fix.device)
        if address is not None:
            messages.append(card(address, fix, services.cards.of(fix.device), parsed.tid))
        arrived = services.notices.take(fix.device)
        if arrived is not None:
            messages.append(arrived)
        waypoints = _new_waypoints(fix.device, services)
        if waypoints is not None:
            messages.append(waypoints)
        messages += friends(identity, services)
    answer = _encode(messages)
    key = identity.rights.encryption_key
    if parsed.encrypted and key is not None and messages:
        # An app without a key takes an encrypted answer for a failure: only those who encrypt.
        return (_encode({"_type": "encrypted", "data": encrypt(answer, key)}),)
    return (answer,)


def _new_waypoints(device: str, services: Services) -> dict[str, Any] | None:
    """The command to set favourite places as regions, when they are not those sent last."""
    places = services.places.known(device)
    if not places:
        return None
    command = set_waypoints(places)
    version = hash(_encode(command))
    return None if services.waypoints_sent.is_last(device, version) else command


def overland(received: Receiving) -> Iterable[bytes]:
    """`{"result":"ok"}`, without which the batch counts as lost, and the name of the place."""
    answer: dict[str, Any] = {"result": "ok"}
    fix = received.newest
    address = None if fix is None else received.services.address_view.latest(fix.device)
    if address is not None:
        answer["geocode"] = {"full_name": address.display_name}
    return (_encode(answer),)


def nothing(_: Receiving) -> Iterable[bytes]:
    """An empty body: OsmAnd, GPSLogger."""
    return ()


def success(_: Receiving) -> Iterable[bytes]:
    """Traccar."""
    return (b'{"status":"success"}',)


def empty_object(_: Receiving) -> Iterable[bytes]:
    """Colota, Home Assistant."""
    return (b"{}",)


def empty_array(_: Receiving) -> Iterable[bytes]:
    """PhoneTrack's log/osmand, log/gpslogger and log/locusmap."""
    return (b"[]",)


def true(_: Receiving) -> Iterable[bytes]:
    """PhoneTrack's log/opengts."""
    return (b"true",)


def phonetrack(received: Receiving) -> Iterable[bytes]:
    """PhoneTrack's own app: numbers of the point and of the device, and friends."""
    answer: dict[str, Any] = {"done": 1, "friends": friends(received.identity, received.services)}
    fix = received.newest
    if fix is not None:
        # Its database counts points and devices; ours are named, and a number is made of the name.
        answer["pointId"] = _number(fix.id)
        answer["deviceId"] = _number(fix.device)
    return (_encode(answer),)


def phonetrack_batch(received: Receiving) -> Iterable[bytes]:
    """The same for logPostMultiple."""
    return (_encode({"done": 1, "friends": friends(received.identity, received.services)}),)


def friends(identity: Identity, services: Services) -> list[dict[str, Any]]:
    """Positions and cards of somebody's friends.

    In HTTP mode the app tells them apart by `tid` alone.
    """
    messages: list[dict[str, Any]] = []
    devices = (
        device
        for user in sorted(identity.rights.friends)
        for device in services.location_view.devices_after("", user)
    )
    for device in islice(devices, FRIENDS_MAX):
        fix, address = newest_of(device, identity, services)
        if fix is not None:
            messages.append(location(fix))
            if address is not None:
                messages.append(card(address, fix, services.cards.of(device)))
    return messages


def _number(name: str) -> int:
    """31 bits that are the same for the same name, in every process (FNV-1a)."""
    number = 0x811C9DC5
    for byte in name.encode():
        number = (number ^ byte) * 0x01000193 & 0xFFFFFFFF
    return number & 0x7FFFFFFF
