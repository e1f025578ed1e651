"""Favourite places for OwnTracks over MQTT, as `cmd` messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import has_wildcard, matches
from gateway.notices.owntracks_downlink import set_waypoints
from gateway.views.location_view import LocationView
from gateway.views.places import Places

if TYPE_CHECKING:
    from gateway.mqtt.sessions.router import Router

_QOS: Final = 1


class WaypointSource:
    """Sends subscribers to a device's `cmd` its places, and again when they change."""

    def __init__(
        self,
        router: Router,
        places: Places,
        locations: LocationView,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._router = router
        self._places = places
        self._locations = locations
        self._clock = clock
        self._wake = wake

    def retained(self, topic_filter: str) -> Iterator[Message]:
        """Yield matching messages for the router, see RetainedSource."""
        levels = topic_filter.split("/")
        # A filter for all users comes from an administrator, not from a phone.
        if len(levels) < 2 or has_wildcard(levels[1]) or not self._places.has(levels[1]):
            return
        for message in list(self._of_user(levels[1])):
            if matches(topic_filter, message.topic):
                yield message

    def changed(self) -> None:
        """Send changed places to the clients that are connected."""
        users = {session.identity.user for session in self._router.sessions.values()}
        for user in users:
            if not self._places.has(user):
                continue
            for message in list(self._of_user(user)):
                found = self._router.subscriptions.match(message.topic)
                if found:
                    self._router.deliver(message, found, None, self._clock())
        self._wake()

    def _of_user(self, user: str) -> Iterator[Message]:
        for device in self._locations.devices(user):
            command = set_waypoints(self._places.known(device))
            if command is not None:
                topic = f"owntracks/{device}/cmd"
                yield Message(topic, msgspec.json.encode(command), _QOS, True, latest_only=True)
