"""Decides who is told of an event, and by which channels, as the owner of a zone has chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.alerts.alert_sender import AlertSender, Told
from gateway.alerts.alert_store import AlertStore
from gateway.alerts.alert_texts import text_of
from gateway.alerts.channel_requests import BROWSER, MQTT, WEBHOOK
from gateway.alerts.log_table import LogTable
from gateway.notices.event_notices import Notice
from waylog.geofences.definition import Geofence
from waylog.kafka.clients import LogUnreachable
from waylog.messages import Event

#: Seconds that a notice waits for the zone that it is about: the topology may know it first.
_ZONE_S: Final = 1.0
_LOOK_S: Final = 0.05


class Ways(NamedTuple):
    """By which ways a notice is told."""

    browser: bool
    mqtt: bool
    #: Apps of the owner's devices.
    apps: bool
    #: Ids of channels; None: all.
    channels: frozenset[str] | None
    #: In quiet hours programs alone are told.
    quiet: bool = False


_NO_WAY: Final = Ways(False, False, False, frozenset())


class Alerts:
    """Decides, and tells the servers of users. Used on one event loop."""

    def __init__(
        self,
        zones: LogTable[Geofence],
        store: AlertStore,
        sender: AlertSender,
        clock_ms: Callable[[], int],
    ) -> None:
        self.zones: Final = zones
        self.store: Final = store
        self.sender: Final = sender
        self._clock_ms: Final = clock_ms

    def needs_zone(self, event: Event) -> bool:
        """Tell whether a zone is to be read before an event is told."""
        key = zone_key(event)
        if key is None:
            return False
        return not self.zones.is_open or (self.zones.known(key) is None and _is_drawn(event))

    async def read_zone(self, event: Event) -> None:
        """Wait until the zone of an event is known, for a second at most."""
        key = zone_key(event)
        try:
            async with asyncio.timeout(_ZONE_S):
                await self.zones.open()
                while key is not None and self.zones.known(key) is None and _is_drawn(event):
                    await asyncio.sleep(_LOOK_S)
        except (TimeoutError, LogUnreachable):
            return  # it has been deleted meanwhile, or everything is told of it

    def is_quiet(self, user: str) -> bool:
        """Tell whether it is a quiet hour of a user; raises sqlite3.Error."""
        quiet = self.store.settings(user).quiet
        return quiet is not None and quiet.cover(self._clock_ms())

    def ways(self, user: str, event: Event, kind: str, *, is_own: bool) -> Ways:
        """Return by which ways a user is told of an event; raises sqlite3.Error."""
        is_quiet = self.is_quiet(user)
        if not is_own:
            return Ways(not is_quiet, False, False, frozenset())
        key = zone_key(event)
        zone = None if key is None else self.zones.known(key)
        if zone is None:
            return Ways(not is_quiet, True, not is_quiet, None, is_quiet)
        if zone.alerts is not None and kind not in zone.alerts:
            return _NO_WAY
        is_quiet = is_quiet and not zone.always
        chosen = None if zone.channels is None else frozenset(zone.channels)
        return Ways(
            not is_quiet and (chosen is None or BROWSER in chosen),
            chosen is None or MQTT in chosen,
            not is_quiet,
            chosen,
            is_quiet,
        )

    def tell_servers(self, notice: Notice, ways: Ways) -> None:
        """Tell the servers of a notice's user; raises sqlite3.Error."""
        if ways.channels is not None and not ways.channels:
            return
        user = notice.user
        channels = self.store.channels(user)
        language = self.store.settings(user).language if channels else ""
        for channel_id, channel in channels.items():
            if ways.channels is not None and channel_id not in ways.channels:
                continue
            if ways.quiet and channel.kind != WEBHOOK:
                continue
            text = text_of(notice.kind, notice.message, language)
            told = Told(notice.event.id, notice.message, text)
            self.sender.tell(user, channel_id, channel, told)


def zone_key(event: Event) -> str | None:
    """Return the key of the user's own zone that an event is about; None: of none."""
    members = event.attributes or {}
    owner = event.device.partition("/")[0]
    # Where there is no id the name is one: the zone was defined on the command line.
    name = members.get("fence_id", members.get("fence"))
    if event.type != "geofence" or members.get("owner") != owner or not isinstance(name, str):
        return None
    return f"{owner}/{name}"


def _is_drawn(event: Event) -> bool:
    return "fence_id" in (event.attributes or {})
