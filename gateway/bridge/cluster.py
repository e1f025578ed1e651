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
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from waylog.config import Endpoint
from waylog.process.log_throttle import LogThrottle
from waylog.process.threads import watch_thread_of

logger = logging.getLogger(__name__)

_SESSION_EXPIRY_S: Final = 24 * 3600
_KEEP_ALIVE_S: Final = 30
_RECONNECT_S: Final = (1, 30)  # shortest and longest delay
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


class Arrival:
    """A message that the cluster has delivered, and that has to be acknowledged."""

    __slots__ = ("connection", "mid", "payload", "qos", "retain", "topic")

    def __init__(self, message: paho.MQTTMessage, connection: int) -> None:
        self.topic = message.topic
        self.payload = bytes(message.payload)
        self.qos = message.qos
        self.retain = message.retain
        self.mid = message.mid
        self.connection = connection


class Cluster:
    """The connection to the cluster; methods and `on_messages` are called on the event loop."""

    def __init__(
        self,
        settings: ClusterSettings,
        loop: asyncio.AbstractEventLoop,
        on_messages: Callable[[list[Arrival]], None],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._on_messages = on_messages
        self._arrived: deque[Arrival] = deque()
        #: Set while connected and subscribed.
        self.ready = asyncio.Event()
        # The last subscription that was refused, and how often in a row.
        self._refused = ""
        self._refusals = 0
        self._is_closing = False
        self._unreadable = LogThrottle()
        self.connections = 0
        self.disconnections = 0
        self._connection = 0  # number of the present connection, in paho's thread
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            settings.client_id,
            protocol=MQTTProtocolVersion(settings.version),
            # MQTT 5 has Clean Start instead, an option of connecting.
            clean_session=None if settings.version == 5 else False,
            manual_ack=True,
        )
        self._client.max_inflight_messages_set(settings.in_flight_max)
        self._client.reconnect_delay_set(*_RECONNECT_S)
        if settings.user is not None:
            self._client.username_pw_set(settings.user, settings.password)
        if settings.tls is not None:
            self._client.tls_set_context(settings.tls)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def start(self) -> None:
        """Connect, and reconnect whenever the connection is lost."""
        settings = self._settings
        options: dict[str, Any] = {}
        if settings.version == 5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = _SESSION_EXPIRY_S
            properties.ReceiveMaximum = settings.in_flight_max
            options = {"clean_start": False, "properties": properties}
        self._client.connect_async(
            settings.endpoint.host, settings.endpoint.port, _KEEP_ALIVE_S, **options
        )
        watch_thread_of(
            self._client.loop_start, "paho-mqtt-client", may_end=lambda: self._is_closing
        )

    async def close(self) -> None:
        """Disconnect; the cluster keeps what is not acknowledged."""
        self._is_closing = True
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)

    def acknowledge(self, arrival: Arrival) -> None:
        """Acknowledge a message that the log has, unless its connection is over."""
        if arrival.qos and arrival.connection == self._connection:
            self._client.ack(arrival.mid, arrival.qos)

    def reconnect(self) -> None:
        """Drop the connection, so that the cluster delivers unacknowledged messages again."""
        sock = self._client.socket()
        if isinstance(sock, socket.socket):
            # paho's thread sees the end of the stream at once, and reconnects after its delay. A
            # close here would free the socket's number for reuse while that thread waits for it.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> bool:
        """Publish with QoS 1; return False without a connection or if too much is queued."""
        if not self.ready.is_set():
            return False
        result = self._client.publish(topic, payload, _QOS, retain)
        return result.rc == paho.MQTT_ERR_SUCCESS

    # --- in paho's thread -----------------------------------------------------------------------

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _on_connect(
        self, client: paho.Client, _data: Any, _flags: Any, code: Any, _properties: Any
    ) -> None:
        if code.is_failure:
            logger.warning("the MQTT cluster refuses the connection: %s", code)
            return
        self._connection += 1
        # Subscribing again is harmless, and the session may have been lost.
        subscriptions = self._settings.subscriptions
        if self._settings.version == 5:
            # Retained messages are not new: the log has its own.
            options = SubscribeOptions(_QOS, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
            client.subscribe([(each, options) for each in subscriptions])
        else:
            client.subscribe([(each, _QOS) for each in subscriptions])

    def _on_connect_fail(self, _client: paho.Client, _data: Any) -> None:
        logger.warning("the MQTT cluster at %s cannot be reached", self._settings.endpoint)

    def _on_subscribe(
        self, client: paho.Client, _data: Any, _mid: int, codes: Any, _properties: Any
    ) -> None:
        shortest, longest = _RECONNECT_S
        refused = ", ".join(str(code) for code in codes if code.is_failure)
        if refused:
            # Until the cluster's operator grants the right: without it nothing would arrive, and
            # nobody would notice.
            if refused != self._refused:
                logger.error("the MQTT cluster refuses a subscription: %s; trying again", refused)
            self._refused = refused
            self._refusals += 1
            client.reconnect_delay_set(min(longest, shortest << self._refusals), longest)
            self.reconnect()
            return
        self._refused, self._refusals = "", 0
        client.reconnect_delay_set(shortest, longest)
        self._tell(self._connected)

    def _on_disconnect(
        self, _client: paho.Client, _data: Any, _flags: Any, code: Any, _properties: Any
    ) -> None:
        self._connection += 1
        self._tell(self._disconnected, str(code))

    def _on_message(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            arrival = Arrival(message, self._connection)
        except UnicodeDecodeError:
            # MQTT forbids it (4.0, 1.5.4), and whoever sends it again sends the same.
            if self._unreadable.count(time.monotonic()) is not None:
                logger.warning("a message is left out: its topic is no UTF-8")
            client.ack(message.mid, message.qos)
            return
        # The cluster pauses after `in_flight_max` unacknowledged messages, which bounds the queue.
        self._arrived.append(arrival)
        if len(self._arrived) == 1:
            self._tell(self._deliver)

    # --- on the loop ----------------------------------------------------------------------------

    def _connected(self) -> None:
        self.connections += 1
        logger.info("connected to the MQTT cluster at %s", self._settings.endpoint)
        self.ready.set()

    def _disconnected(self, reason: str) -> None:
        self.disconnections += 1
        self.ready.clear()
        logger.warning("the connection to the MQTT cluster is lost: %s", reason)

    def _deliver(self) -> None:
        arrived = [self._arrived.popleft() for _ in range(len(self._arrived))]
        if arrived:
            self._on_messages(arrived)
        if self._arrived:
            self._loop.call_soon(self._deliver)
