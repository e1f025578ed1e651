"""Responses to apps, each in the app's own format, sent once the log has stored the request.

A builder is a plain function of the parsed request and of the current state. Builders that include
an address are called when the address of the newest fix is known, or after a timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from gateway.formats import Parsed
from gateway.formats.secretbox import encrypt
from gateway.http.requests.newest import newest_of
from gateway.http.requests.services import Services
from gateway.notices.owntracks_downlink import set_waypoints
from gateway.observability.push_ledger import HTTP
from gateway.users.auth import Identity
from gateway.users.cards import card, location
from waylog.messages import Fix, live_time

#: Devices of friends in one response; each takes some hundred bytes, a picture some thousand.
FRIENDS_MAX: Final = 50

#: Items of a response that are encoded before other requests are served.
_ITEMS_A_PIECE: Final = 1_000

_encode = msgspec.json.Encoder().encode


class Receiving(NamedTuple):
    """The input of a response builder."""

    parsed: Parsed
    identity: Identity
    services: Services
    #: The fix with the current position of the device.
    newest: Fix | None


class _Rejection(msgspec.Struct, gc=False):
    """The rejection of one position, by its index in the request.

    Encoding ten thousand dicts would take twice as long.
    """

    index: int
    reason: str


#: Yields the body of a 200 in pieces, each quick to make; nothing for an empty body.
Builder = Callable[[Receiving], Iterable[bytes]]


class Newest:
    """Finds the fix with the device's current position among those of a request."""

    __slots__ = ("_time", "fix")

    def __init__(self) -> None:
        self.fix: Fix | None = None
        self._time = 0

    def seen(self, fix: Fix) -> Fix:
        """Take one more fix into account, and return it."""
        time = live_time(fix.time, fix.received)
        if self.fix is None or time > self._time:
            self.fix, self._time = fix, time
        return fix


def newest(parsed: Parsed) -> Fix | None:
    """Return the fix with the device's current position from a small request."""
    found = Newest()
    for fix in parsed.fixes:
        found.seen(fix)
    return found.fix


def positions(received: Receiving) -> Iterable[bytes]:
    """Answer in Waylog's own format: what was stored, under which ids, and what was not."""
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
        # The client's own ids, by which it can delete exactly the positions that are stored.
        acked = _encode([name for name in parsed.client_ids if name is not None])
        yield b',"acked":' + acked
    yield b"}"


def _listed(items: list[Any], start: int) -> bytes:
    """Return a part of a JSON list without its brackets."""
    encoded = _encode(items)[1:-1]
    return b"," + encoded if start else encoded


def owntracks(received: Receiving) -> Iterable[bytes]:
    """Answer with an array of messages: the device's own card, and its friends.

    The app knows itself as owntracks/http/<tid>, and drops a whole answer if it does not understand
    one element of it.
    """
    parsed, identity, services, fix = received
    if parsed.from_overland:
        return overland(received)
    messages: list[dict[str, Any]] = []
    if fix is not None:
        address = services.address_view.latest(fix.device)
        if address is not None:
            messages.append(card(address, fix, services.cards.of(fix.device), parsed.tid))
            services.pushes.pushed(HTTP, fix.device)
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
        # An app without a key treats an encrypted answer as a failure, so only encrypted requests
        # get one.
        return (_encode({"_type": "encrypted", "data": encrypt(answer, key)}),)
    return (answer,)


def _new_waypoints(device: str, services: Services) -> dict[str, Any] | None:
    """Return the command that sets favourite places as regions, unless it was the last one sent."""
    places = services.places.known(device)
    if not places:
        return None
    command = set_waypoints(places)
    version = hash(_encode(command))
    return None if services.waypoints_sent.is_last(device, version) else command


def overland(received: Receiving) -> Iterable[bytes]:
    """Answer with `{"result":"ok"}`, without which the app repeats the batch, and a place name."""
    answer: dict[str, Any] = {"result": "ok"}
    fix = received.newest
    address = None if fix is None else received.services.address_view.latest(fix.device)
    if address is not None:
        answer["geocode"] = {"full_name": address.display_name}
        received.services.pushes.pushed(HTTP, address.device)
    return (_encode(answer),)


def nothing(_: Receiving) -> Iterable[bytes]:
    """Answer OsmAnd and GPSLogger with an empty body."""
    return ()


def success(_: Receiving) -> Iterable[bytes]:
    """Answer Traccar."""
    return (b'{"status":"success"}',)


def empty_object(_: Receiving) -> Iterable[bytes]:
    """Answer Colota and Home Assistant."""
    return (b"{}",)


def empty_array(_: Receiving) -> Iterable[bytes]:
    """Answer PhoneTrack's log/osmand, log/gpslogger and log/locusmap."""
    return (b"[]",)


def true(_: Receiving) -> Iterable[bytes]:
    """Answer PhoneTrack's log/opengts."""
    return (b"true",)


def phonetrack(received: Receiving) -> Iterable[bytes]:
    """Answer PhoneTrack's own app: the numbers of the point and of the device, and friends."""
    answer: dict[str, Any] = {"done": 1, "friends": friends(received.identity, received.services)}
    fix = received.newest
    if fix is not None:
        # Nextcloud's database numbers points and devices. Here they have names, which are hashed to
        # numbers.
        answer["pointId"] = _number(fix.id)
        answer["deviceId"] = _number(fix.device)
    return (_encode(answer),)


def phonetrack_batch(received: Receiving) -> Iterable[bytes]:
    """Answer PhoneTrack's logPostMultiple."""
    return (_encode({"done": 1, "friends": friends(received.identity, received.services)}),)


def friends(identity: Identity, services: Services) -> list[dict[str, Any]]:
    """Return positions and cards of a user's friends.

    In HTTP mode the app distinguishes them by `tid` alone.
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
    """Return a 31-bit hash that is the same in every process (FNV-1a)."""
    number = 0x811C9DC5
    for byte in name.encode():
        number = (number ^ byte) * 0x01000193 & 0xFFFFFFFF
    return number & 0x7FFFFFFF
