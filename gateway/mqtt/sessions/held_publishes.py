"""Publishes beyond a quota: their connections are not read until they are tried again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from gateway.mqtt.packets.decoder import Publish
from gateway.mqtt.packets.packets import ReasonCode
from gateway.mqtt.sessions.connection import Connection
from gateway.mqtt.sessions.link import CONNECTED
from gateway.mqtt.sessions.waiting_publishes import WaitingPublishes

#: Seconds that a message is held before a retry.
_HELD_S_MAX: Final = 60


class HeldPublishes:
    """The publishes of one server that are held, one of a connection at most."""

    def __init__(
        self,
        counters: Counter[str],
        publishes: WaitingPublishes,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._counters = counters
        self._publishes = publishes
        self._loop = loop

    def beyond_quota(
        self, connection: Connection, packet: Publish, retry_after_s: float, now: float
    ) -> None:
        """Handle a PUBLISH of a user beyond its quota."""
        self._counters["publishes_beyond_quota"] += 1
        if connection.version == 5 and packet.qos:
            connection.acknowledge(packet, ReasonCode.QUOTA_EXCEEDED, now)
        else:
            # MQTT has no answer for this case: the client is not read for a while.
            self.hold(connection, packet, retry_after_s)

    def hold(self, connection: Connection, packet: Publish, seconds: float) -> None:
        """Stop reading a connection, and handle this packet again after some seconds.

        What one message of the user waits for, all that are held cannot have at once: they are
        tried again one after the other.
        """
        wait_s = seconds
        if connection.turn is not None:
            connection.turn.held.add(connection)
            wait_s *= len(connection.turn.held)
        timer = self._loop.call_later(min(wait_s, _HELD_S_MAX), self._look_again, connection)
        connection.held = (timer, packet)

    def take(self, connection: Connection) -> Publish | None:
        """Return the packet that a connection holds, if it is due, and hold it no longer."""
        if connection.held is None or connection.held[0] is not None:
            return None
        packet = connection.held[1]
        connection.held = None
        if connection.turn is not None:
            connection.turn.held.discard(connection)
        return packet

    def give_up(self, connection: Connection) -> None:
        """Discard a held packet of a connection that ends; the client will send it again."""
        if connection.held is not None:
            timer, packet = connection.held
            if timer is not None:
                timer.cancel()
            if connection.turn is not None:
                connection.turn.held.discard(connection)
            connection.held = None
            connection.fail(packet, self._loop.time())

    def _look_again(self, connection: Connection) -> None:
        """Handle the packet that was held, in the turn of its user."""
        protocol, now = connection.owner, self._loop.time()
        if connection.state != CONNECTED or protocol is None or self._publishes.is_draining:
            self.give_up(connection)
            return
        if protocol.has_been_gone_too_long(now):
            connection.abort = True
            connection.close(
                ReasonCode.QUOTA_EXCEEDED, "the client has gone, and its user is beyond its quota"
            )
            return
        assert connection.held is not None
        connection.held = (None, connection.held[1])
        protocol.process(now)
