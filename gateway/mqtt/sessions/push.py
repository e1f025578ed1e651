"""Delivery of addresses to MQTT clients.

A new address goes to `devices/<user>/<device>/address` as the JSON of topic `address`, and, when
the street changed, as a card to `owntracks/<user>/<device>/info`: OwnTracks shows it under the pin.
Later subscribers get both, and the last position, as retained messages made from the views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from gateway.friends.friend_events import card_parts
from gateway.mqtt.interfaces import AddressView, LocationView
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import Subscription, has_wildcard, matches
from gateway.mqtt.sessions.retained import LOOKED_AT
from gateway.mqtt.sessions.router import Router
from gateway.observability.push_ledger import CARD, MQTT, PushLedger
from gateway.users.cards import card, location, street_of
from gateway.views.location_view import newest_fix
from waylog.malformed import MALFORMED
from waylog.messages import Address, decode_address, encode

_QOS: Final = 1
_STREETS_MAX: Final = 100_000
#: Makes the message of a topic from what a view knows of a device.
_Make = Callable[[str, str], Message | None]
#: What precedes and follows `/user/device` in the topics whose retained messages the views make.
_DERIVED: Final = (("devices", "/address"), ("owntracks", "/info"), ("owntracks", ""))


def _reaches_owner(found: Iterable[Subscription], device: str) -> bool:
    """Tell whether a client of the device's owner is among the subscribers."""
    for each in found:
        user = each.session.identity.user
        is_owner = device.startswith(user) and device[len(user) : len(user) + 1] == "/"
        if is_owner and not each.elsewhere:
            return True
    return False


class MqttAddressChannel:
    """Delivers new addresses, and makes the retained messages that are not stored."""

    def __init__(
        self,
        router: Router,
        address_view: AddressView,
        location_view: LocationView,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._router = router
        #: True if members of shared subscriptions are chosen here; with several workers only one
        #: chooses, the one that sees all addresses.
        self.chooses_members = True
        self._addresses = address_view
        self._locations = location_view
        self._clock = clock
        self._wake = wake
        self._ledger: PushLedger | None = None
        self._counts: dict[str, list[float]] = {}
        # The street on the last card of each device whose cards are subscribed to.
        self._streets: dict[str, str] = {}

    def count_in(self, ledger: PushLedger) -> None:
        """Count what goes to clients of devices' owners."""
        self._ledger = ledger
        self._counts = ledger.counts(MQTT)

    # --- new addresses --------------------------------------------------------------------------

    def address_changed(self, device: str, value: bytes) -> None:
        """Deliver a new address to its subscribers, in the bytes of the log's record."""
        router = self._router
        topic = f"devices/{device}/address"
        found = self._subscribed(topic)
        if found:
            message = Message(topic, value, _QOS, True, latest_only=True)
            now = self._clock()
            router.deliver(message, found, None, now)
            if self._ledger is not None:
                # Who the subscribers are is looked at once in a stretch of time.
                count = self._counts.get(device) or self._ledger.begin(
                    MQTT, device, is_owners=_reaches_owner(found, device)
                )
                count[0] += 1
                count[1] = now
        topic = f"owntracks/{device}/info"
        found = self._subscribed(topic)
        if found:
            try:
                self._card_changed(topic, found, decode_address(value))
            except Exception as error:
                router.left_out.tell(topic, error)
        self._wake()

    def _subscribed(self, topic: str) -> list[Subscription]:
        subscriptions = self._router.subscriptions
        return (
            subscriptions.match(topic)
            if self.chooses_members
            else subscriptions.match_unshared(topic)
        )

    def _card_changed(self, topic: str, found: list[Subscription], address: Address) -> None:
        street = street_of(address)
        if self._streets.get(address.device) == street:
            return
        if len(self._streets) >= _STREETS_MAX:
            self._streets.clear()
        self._streets[address.device] = street
        message = self._card_message(topic, address)
        self._router.deliver(message, found, None, self._clock())
        if self._ledger is not None and _reaches_owner(found, address.device):
            self._ledger.pushed(CARD, address.device)

    def arrived(self, device: str, transition: bytes) -> None:
        """Tell a user's apps that one of the user's devices has arrived at a favourite place.

        The topic is that of a device of the platform's own, as iOS shows no transitions of the
        app's own base topic.
        """
        self._news(f"owntracks/{device.partition('/')[0]}/places/event", transition)

    def noticed(self, device: str, notice: bytes) -> None:
        """Tell a user's programs of an event of the device; friends have no right to the topic."""
        self._news(f"devices/{device}/notice", notice)

    def _news(self, topic: str, payload: bytes) -> None:
        found = self._subscribed(topic)
        if found:
            message = Message(topic, payload, _QOS, False)
            self._router.deliver(message, found, None, self._clock())
        self._wake()

    # --- retained -------------------------------------------------------------------------------

    def retained(self, topic_filter: str) -> Iterator[Message | None]:
        """Yield the derived messages whose topics match a filter; see RetainedSource."""
        views: tuple[tuple[AddressView | LocationView, _Make], ...] = (
            (self._addresses, self._latest_address),
            (self._addresses, self._latest_card),
            (self._locations, self._latest_location),
        )
        for (root, tail), (view, make) in zip(_DERIVED, views, strict=True):
            if not _may_match(topic_filter, root, tail):
                continue
            missed = 0
            for device in _candidates(topic_filter, view):
                topic = f"{root}/{device}{tail}"
                message = self._made(make, topic, device) if matches(topic_filter, topic) else None
                if message is not None:
                    yield message
                    continue
                missed += 1
                if missed % LOOKED_AT == 0:
                    yield None

    def _made(self, make: _Make, topic: str, device: str) -> Message | None:
        try:
            return make(topic, device)
        except Exception as error:
            self._router.left_out.tell(topic, error)
            return None

    def _latest_address(self, topic: str, device: str) -> Message | None:
        address = self._addresses.latest(device)
        return None if address is None else self._address_message(topic, address)

    def _latest_card(self, topic: str, device: str) -> Message | None:
        address = self._addresses.latest(device)
        return None if address is None else self._card_message(topic, address)

    def _latest_location(self, topic: str, device: str) -> Message | None:
        fix = newest_fix(self._locations, device, self._addresses.latest(device))
        if fix is None:
            return None
        payload = msgspec.json.encode(location(fix))
        return Message(topic, payload, _QOS, True, latest_only=True)

    # --- messages -------------------------------------------------------------------------------

    @staticmethod
    def _address_message(topic: str, address: Address) -> Message:
        return Message(topic, encode(address), _QOS, True, latest_only=True)

    def _card_message(self, topic: str, address: Address) -> Message:
        stored = self._router.retained.get(topic)
        own = own_card(None if stored is None else stored.payload)
        fix = self._locations.latest(address.device)
        payload = msgspec.json.encode(card(address, fix, own))
        parts = card_parts(address, fix, own)
        return Message(topic, payload, _QOS, True, latest_only=True, card_parts=parts)


def may_be_derived(topic_filter: str) -> bool:
    """Return whether a valid filter may match a topic whose retained message the views make."""
    return any(_may_match(topic_filter, root, tail) for root, tail in _DERIVED)


def _may_match(topic_filter: str, root: str, tail: str) -> bool:
    """Return whether a filter matches the topic `root/user/device` with `tail` of some device."""
    levels = topic_filter.split("/")
    user, device = (levels[n] if _has_name(levels, n) else "-" for n in (1, 2))
    return matches(topic_filter, f"{root}/{user}/{device}{tail}")


def _has_name(levels: list[str], number: int) -> bool:
    """Return whether a filter has a level of this number that is no wildcard."""
    return number < len(levels) and not has_wildcard(levels[number])


def _candidates(topic_filter: str, view: AddressView | LocationView) -> Iterable[str]:
    """Return the devices whose topics a filter may match."""
    levels = topic_filter.split("/")
    if len(levels) > 2 and not has_wildcard(f"{levels[1]}/{levels[2]}"):
        return (f"{levels[1]}/{levels[2]}",)
    user = levels[1] if len(levels) > 1 and not has_wildcard(levels[1]) else None
    # A copy: the view changes while a slow reader takes the messages one by one.
    return list(view.devices(user))


def own_card(published: bytes | None) -> dict[str, Any]:
    """Return the card members that the owner of a device has published; they are preserved."""
    if published is not None:
        with suppress(*MALFORMED):
            own: dict[str, Any] = msgspec.json.decode(published, type=dict[str, Any])
            return own
    return {}
