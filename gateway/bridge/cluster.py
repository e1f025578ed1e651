"""A client of an external MQTT cluster: paho-mqtt in its thread, everything else on the loop.

Messages are acknowledged manually. The cluster keeps the session, so it delivers a message that was
not appended to the log again on the next connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from waylog.config import Endpoint
from waylog.network.outbound.mqtt_connection import (
    RECONNECT_S,
    Arrival,
    MqttConnection,
    MqttServer,
)
from waylog.process.threads import watch_thread_of

logger = logging.getLogger(__name__)

_SESSION_EXPIRY_S: Final = 24 * 3600
_KEEP_ALIVE_S: Final = 30
_QOS: Final = 1


@dataclass(frozen=True)
class ClusterSettings:
    """The address of the cluster, and the topics to subscribe to."""

    endpoint: Endpoint
    client_id: str
    filters: Sequence[str]
    share: str | None = "waylog"  # None: not a shared subscription
    version: int = 5
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    #: Unacknowledged messages (Receive Maximum); an MQTT 3 cluster has its own limit.
    in_flight_max: int = 1000

    @property
    def subscriptions(self) -> list[str]:
        """The filters in the form of the SUBSCRIBE packet."""
        if self.share is None:
            return list(self.filters)
        return [f"$share/{self.share}/{topic_filter}" for topic_filter in self.filters]


class Cluster(MqttConnection):
    """The connection to the cluster; methods and `on_messages` are called on the event loop."""

    def __init__(
        self,
        settings: ClusterSettings,
        loop: asyncio.AbstractEventLoop,
        on_messages: Callable[[list[Arrival]], None],
    ) -> None:
        super().__init__(
            MqttServer(
                host=settings.endpoint.host,
                port=settings.endpoint.port,
                client_id=settings.client_id,
                version=settings.version,
                user=settings.user,
                password=settings.password,
                tls=settings.tls,
                keep_alive_s=_KEEP_ALIVE_S,
                session_expiry_s=_SESSION_EXPIRY_S,
                in_flight_max=settings.in_flight_max,
            )
        )
        self._settings = settings
        self._loop = loop
        self._on_messages = on_messages
        self._arrivals: deque[Arrival] = deque()
        #: Set while connected and subscribed.
        self.ready = asyncio.Event()
        # The last subscription that was refused, and how often in a row.
        self._refused = ""
        self._refusals = 0
        self._is_closing = False
        self.connections = 0
        self.disconnections = 0

    def start(self) -> None:
        """Connect, and reconnect whenever the connection is lost."""
        self.connect()
        watch_thread_of(self._paho.loop_start, "paho-mqtt-client", may_end=lambda: self._is_closing)

    async def close(self) -> None:
        """Disconnect; the cluster keeps what is not acknowledged."""
        self._is_closing = True
        self.disconnect()
        await asyncio.to_thread(self._paho.loop_stop)

    def reconnect(self) -> None:
        """Drop the connection, so that the cluster delivers unacknowledged messages again."""
        sock = self._paho.socket()
        if isinstance(sock, socket.socket):
            # paho's thread sees the end of the stream at once, and reconnects after its delay. A
            # close here would free the socket's number for reuse while that thread waits for it.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> bool:
        """Publish with QoS 1; return False without a connection or if too much is queued."""
        if not self.ready.is_set():
            return False
        result = self._paho.publish(topic, payload, _QOS, retain)
        return result.rc == MQTTErrorCode.MQTT_ERR_SUCCESS

    # --- in paho's thread; see MqttConnection -----------------------------------------------------

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def on_refused(self, code: ReasonCode) -> None:
        """Say so."""
        logger.warning("the MQTT cluster refuses the connection: %s", code)

    def on_connected(self, *, session_present: bool) -> None:
        """Subscribe."""
        # Subscribing again is harmless, and the session may have been lost. Retained messages are
        # not new: the log has its own.
        retained = SubscribeOptions.RETAIN_DO_NOT_SEND
        self.subscribe(self._settings.subscriptions, _QOS, retained)

    def on_unreachable(self) -> None:
        """Say so."""
        logger.warning("the MQTT cluster at %s cannot be reached", self._settings.endpoint)

    def on_subscribed(self, codes: Sequence[ReasonCode]) -> None:
        """Take messages from now on; without the right to, try again."""
        shortest, longest = RECONNECT_S
        refused = ", ".join(str(code) for code in codes if code.is_failure)
        if refused:
            # Until the cluster's operator grants the right: without it nothing would arrive, and
            # nobody would notice.
            if refused != self._refused:
                logger.error("the MQTT cluster refuses a subscription: %s; trying again", refused)
            self._refused = refused
            self._refusals += 1
            self._paho.reconnect_delay_set(min(longest, shortest << self._refusals), longest)
            self.reconnect()
            return
        self._refused, self._refusals = "", 0
        self._paho.reconnect_delay_set(shortest, longest)
        self._tell(self._begin)

    def on_lost(self, code: ReasonCode) -> None:
        """Tell the loop."""
        self._tell(self._end, str(code))

    def on_arrival(self, arrival: Arrival) -> None:
        """Tell the loop, once for all that has come when it looks."""
        # The cluster pauses after `in_flight_max` unacknowledged messages, which bounds the queue.
        self._arrivals.append(arrival)
        if len(self._arrivals) == 1:
            self._tell(self._deliver)

    # --- on the loop ----------------------------------------------------------------------------

    def _begin(self) -> None:
        self.connections += 1
        logger.info("connected to the MQTT cluster at %s", self._settings.endpoint)
        self.ready.set()

    def _end(self, reason: str) -> None:
        self.disconnections += 1
        self.ready.clear()
        logger.warning("the connection to the MQTT cluster is lost: %s", reason)

    def _deliver(self) -> None:
        arrived = [self._arrivals.popleft() for _ in range(len(self._arrivals))]
        if arrived:
            self._on_messages(arrived)
        if self._arrivals:
            self._loop.call_soon(self._deliver)
