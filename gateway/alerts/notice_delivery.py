"""Takes a notice to its user in all the ways that the user has chosen."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import Final

import msgspec

from gateway.alerts.alerts import Alerts
from gateway.notices.arrivals import Arrival
from gateway.notices.event_notices import Notice
from gateway.notices.notices import Notices
from gateway.notices.push import Pusher
from gateway.notices.web_push import WebPush
from gateway.observability.metrics import GatewayMetrics
from waylog.bounded_cache import BoundedCache
from waylog.process.background import TaskSet

logger = logging.getLogger(__name__)

#: Users whose notices are kept in order while one of them waits.
_USERS_MAX: Final = 10_000


class NoticeDelivery:
    """Delivers notices to servers of the users, browsers, and devices over MQTT."""

    def __init__(
        self,
        alerts: Alerts,
        web_push: WebPush,
        pusher: Pusher,
        notices: Notices,
        metrics: GatewayMetrics,
    ) -> None:
        self._alerts = alerts
        self._web_push = web_push
        self._pusher = pusher
        self._notices = notices
        self._metrics = metrics
        self._waiting = TaskSet("telling of an event in a zone")
        self._in_order = BoundedCache[str, asyncio.Lock](lambda _: asyncio.Lock(), _USERS_MAX)

    async def close(self) -> None:
        """Give up what still waits for its zone."""
        await self._waiting.close()

    def deliver(self, notice: Notice) -> None:
        """Deliver a notice, those of a user in order."""
        # What waits for its zone holds up the later ones of its user, and of nobody else.
        turn = self._in_order.get(notice.user)
        if turn.locked() or (notice.is_own and self._alerts.needs_zone(notice.event)):
            self._waiting.start(self._deliver_in_turn(notice, turn))
        else:
            self._deliver_now(notice)

    def arrived(self, arrival: Arrival) -> None:
        """Tell the browsers of a device's user of an arrival, outside of quiet hours."""
        try:
            if not self._alerts.is_quiet(arrival.device.partition("/")[0]):
                self._web_push.arrived(arrival)
        except sqlite3.Error as error:
            logger.error("an arrival is not told: the database of alerts: %s", error)

    async def _deliver_in_turn(self, notice: Notice, turn: asyncio.Lock) -> None:
        async with turn:
            if notice.is_own:
                await self._alerts.read_zone(notice.event)
            self._deliver_now(notice)

    def _deliver_now(self, notice: Notice) -> None:
        event = notice.event
        try:
            ways = self._alerts.ways(notice.user, event, notice.kind, is_own=notice.is_own)
            self._alerts.tell_servers(notice, ways)
        except sqlite3.Error as error:
            logger.error("an event is not told: the database of alerts: %s", error)
            return
        self._metrics.notices += 1
        if ways.browser:
            self._web_push.notify(notice.user, notice.message, notice.replaces)
        if not notice.is_own:
            return
        if ways.mqtt:
            self._pusher.noticed(event.device, msgspec.json.encode(notice.message))
        transition = notice.transition(self._notices.tid_of(event.device))
        if ways.apps and transition is not None:
            self._notices.keep(event.device, event.time, transition)
            self._pusher.arrived(event.device, msgspec.json.encode(transition))
