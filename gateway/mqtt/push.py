"""Addresses on their way to MQTT clients.

A new address goes to `devices/<user>/<device>/address` as the JSON of topic `address`, and, when
the name changed, as a card to `owntracks/<user>/<device>/info`: OwnTracks shows it under the pin.
Who subscribes later gets both, and the last position, as retained messages made from the views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from gateway.mqtt.application import AddressView, LocationView
from gateway.mqtt.router import Router
from gateway.mqtt.session import Message
from gateway.mqtt.topics import Subscription, has_wildcard, matches
from waylog.messages import Address, Fix, decode_address, encode

_QOS: Final = 1
_NAMES_MAX: Final = 100_000
_KMH_PER_MS: Final = 3.6
_NOT_CHARGING, _CHARGING = 1, 2  # OwnTracks' `bs`


class MqttAddressChannel:
    """Delivers new addresses; also the source of retained messages that are not stored."""

    def __init__(
        self,
        router: Router,
        address_view: AddressView,
        location_view: LocationView,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._router = router
        self._addresses = address_view
        self._locations = location_view
        self._clock = clock
        self._wake = wake
        # What a card said last, for devices whose cards somebody reads.
        self._names: dict[str, str] = {}

    # --- new addresses --------------------------------------------------------------------------

    def address_changed(self, device: str, value: bytes) -> None:
        """Take a new address to its subscribers: what the log has is what they get."""
        router = self._router
        topic = f"devices/{device}/address"
        found = router.subscriptions.match(topic)
        if found:
            message = Message(topic, value, _QOS, True, latest_only=True)
            router.deliver(message, found, None, self._clock())
        topic = f"owntracks/{device}/info"
        found = router.subscriptions.match(topic)
        if found:
            self._card_changed(topic, found, decode_address(value))
        self._wake()

    def _card_changed(self, topic: str, found: list[Subscription], address: Address) -> None:
        if self._names.get(address.device) == address.display_name:
            return
        if len(self._names) >= _NAMES_MAX:
            self._names.clear()
        self._names[address.device] = address.display_name
        self._router.deliver(self._card_message(topic, address), found, None, self._clock())

    # --- retained -------------------------------------------------------------------------------

    def retained(self, topic_filter: str) -> Iterator[Message]:
        """The derived messages whose topics match a filter; see RetainedSource."""
        for root, tail, view, make in (
            ("devices", "/address", self._addresses, self._latest_address),
            ("owntracks", "/info", self._addresses, self._latest_card),
            ("owntracks", "", self._locations, self._latest_location),
        ):
            for device in _candidates(topic_filter, root, view):
                topic = f"{root}/{device}{tail}"
                if matches(topic_filter, topic):
                    message = make(topic, device)
                    if message is not None:
                        yield message

    def _latest_address(self, topic: str, device: str) -> Message | None:
        address = self._addresses.latest(device)
        return None if address is None else self._address_message(topic, address)

    def _latest_card(self, topic: str, device: str) -> Message | None:
        address = self._addresses.latest(device)
        return None if address is None else self._card_message(topic, address)

    def _latest_location(self, topic: str, device: str) -> Message | None:
        fix = self._locations.latest(device)
        if fix is None:
            return None
        return Message(topic, owntracks_location(fix), _QOS, True, latest_only=True)

    # --- messages -------------------------------------------------------------------------------

    @staticmethod
    def _address_message(topic: str, address: Address) -> Message:
        return Message(topic, encode(address), _QOS, True, latest_only=True)

    def _card_message(self, topic: str, address: Address) -> Message:
        stored = self._router.retained.get(topic)
        own = None if stored is None else stored.payload
        payload = card(address, self._locations.latest(address.device), own)
        return Message(topic, payload, _QOS, True, latest_only=True)


def _candidates(topic_filter: str, root: str, view: AddressView | LocationView) -> Iterable[str]:
    """Devices whose topics below `root` a filter may match."""
    levels = topic_filter.split("/")
    if not matches(levels[0], root):
        return ()
    if len(levels) > 2 and not has_wildcard(f"{levels[1]}/{levels[2]}"):
        return (f"{levels[1]}/{levels[2]}",)
    user = levels[1] if len(levels) > 1 and not has_wildcard(levels[1]) else None
    # A copy: the view changes while a slow reader takes one after the other.
    return list(view.devices(user))


def card(address: Address, fix: Fix | None, own_card: bytes | None = None) -> bytes:
    """OwnTracks' card (https://owntracks.org/booklet/tech/json/#_typecard) with the address.

    Name, picture and tid of a card that the device's owner has published are kept.
    """
    device = address.device.rpartition("/")[2]
    members: dict[str, Any] = {}
    if own_card is not None:
        try:
            members = msgspec.json.decode(own_card, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            members = {}
    name = members.get("name")
    return msgspec.json.encode(
        {
            "_type": "card",
            "tid": members.get("tid") or tid_of(device, fix),
            "name": f"{name if isinstance(name, str) else device} - {address.display_name}",
        }
        | ({"face": members["face"]} if "face" in members else {})
    )


def tid_of(device: str, fix: Fix | None) -> str:
    """The two characters OwnTracks shows for a device: its own, else the last of its name."""
    tid = (fix.attributes or {}).get("tid") if fix is not None else None
    return tid if isinstance(tid, str) and tid else device[-2:]


def owntracks_location(fix: Fix) -> bytes:
    """A fix as OwnTracks' location, whatever app it came from."""
    location: dict[str, Any] = {
        "_type": "location",
        "tid": tid_of(fix.device.rpartition("/")[2], fix),
        "lat": fix.lat,
        "lon": fix.lon,
        "tst": fix.time // 1000,
        "acc": fix.accuracy,
        "alt": fix.altitude,
        "vac": fix.vertical_accuracy,
        "vel": None if fix.speed is None else fix.speed * _KMH_PER_MS,
        "cog": fix.course,
        "batt": fix.battery,
        "bs": None if fix.charging is None else (_CHARGING if fix.charging else _NOT_CHARGING),
        "t": fix.trigger if fix.source == "owntracks" else None,
    }
    return msgspec.json.encode(
        {
            name: round(value) if isinstance(value, float) and name not in {"lat", "lon"} else value
            for name, value in location.items()
            if value is not None
        }
    )
