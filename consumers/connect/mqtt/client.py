"""A client of an MQTT server: paho-mqtt in a thread of its own, with manual acknowledgements."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from consumers.connect.mqtt.properties import Connection
from waylog.process.threads import thread_of

logger = logging.getLogger(__name__)

_RECONNECT_S: Final = (1, 30)  # shortest and longest delay
#: Reason codes of MQTT 5 that waiting does not cure; paho translates those of MQTT 3.
_REFUSED: Final = frozenset({0x84, 0x85, 0x86, 0x87, 0x8C})
_FAILURE: Final = 0x80


class Arrival(NamedTuple):
    """A message that the server has delivered, and that has to be acknowledged."""

    topic: str
    payload: bytes
    qos: int
    is_retained: bool
    is_duplicate: bool
    message_id: int
    connection: int  # its number: an acknowledgement of another one would be of another message


class MqttClient:
    """A connection that is made anew whenever it is lost.

    `on_arrival` is called in paho's thread; all methods may be called in any thread.
    """

    def __init__(
        self,
        settings: Connection,
        filters: Sequence[str] = (),
        on_arrival: Callable[[Arrival], None] | None = None,
    ) -> None:
        """Raises ConfigException for certificates that cannot be read."""
        self._settings: Final = settings
        self._filters: Final = filters
        self._on_arrival: Final = on_arrival
        self.connected: Final = threading.Event()
        self._refusal: str | None = None
        self._thread: threading.Thread | None = None
        #: By message id: None for a message that was acknowledged, why for one that was refused.
        self._outcomes: Final[dict[int, str | None]] = {}
        #: Ids whose outcome nobody will ask for.
        self._forgotten: Final[set[int]] = set()
        self._has_outcome: Final = threading.Condition()
        self._connection = 0
        self._has_subscribed = False
        self._is_closing = False
        is_5 = settings.version == int(MQTTProtocolVersion.MQTTv5)
        client = self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            settings.client_id,
            protocol=MQTTProtocolVersion(settings.version),
            clean_session=None if is_5 else settings.clean_session,
            manual_ack=True,
        )
        client.max_inflight_messages_set(settings.in_flight_max)
        client.reconnect_delay_set(*_RECONNECT_S)
        if settings.username:
            password = settings.password
            client.username_pw_set(settings.username, None if password is None else password.value)
        context = settings.tls_context()
        if context is not None:
            client.tls_set_context(context)
        client.on_connect = self._connected
        client.on_connect_fail = self._connect_failed
        client.on_disconnect = self._disconnected
        client.on_subscribe = self._subscribed
        client.on_message = self._arrived
        client.on_publish = self._published

    def start(self) -> None:
        """Connect in the background."""
        settings = self._settings
        options: dict[str, Any] = {}
        if settings.version == int(MQTTProtocolVersion.MQTTv5):
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            if not settings.clean_session:
                properties.SessionExpiryInterval = settings.session_expiry_s
            properties.ReceiveMaximum = settings.in_flight_max
            options = {"clean_start": settings.clean_session, "properties": properties}
        self._client.connect_async(settings.host, settings.port, settings.keep_alive_s, **options)
        self._thread = thread_of(self._client.loop_start, "paho-mqtt-client")

    @property
    def refusal(self) -> str | None:
        """Why waiting is of no use: what the server refuses for good; None while there is hope."""
        if self._thread is not None and not self._thread.is_alive() and not self._is_closing:
            return f"MQTT server {self._settings.address}: the client's thread has failed"
        return self._refusal

    def close(self) -> None:
        """Disconnect; the server keeps what is not acknowledged."""
        self._is_closing = True
        self._client.disconnect()
        self._client.loop_stop()

    def acknowledge(self, arrival: Arrival) -> None:
        """Acknowledge a message, unless its connection is over: then it comes again."""
        if arrival.qos and arrival.connection == self._connection:
            self._client.ack(arrival.message_id, arrival.qos)

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> int | None:
        """Return the id of a message on its way, None if there is no room or no connection for it.

        What is not acknowledged is sent again over the next connection. Raises ValueError for a
        payload that is too long.
        """
        info = self._client.publish(topic, payload, self._settings.qos, retain)
        if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
            return info.mid
        is_kept = info.rc == MQTTErrorCode.MQTT_ERR_NO_CONN and self._settings.qos > 0
        return info.mid if is_kept else None

    def outcome(self, message_id: int, timeout_s: float) -> tuple[bool, str | None]:
        """Wait for the acknowledgement of a message; return whether it has come, and why the
        server refuses the message.
        """
        with self._has_outcome:
            has_come = self._has_outcome.wait_for(lambda: message_id in self._outcomes, timeout_s)
            return has_come, self._outcomes.pop(message_id, None)

    def forget(self, message_id: int) -> None:
        """Have nobody ask for the outcome of a message: its id will be that of another one."""
        with self._has_outcome:
            if message_id in self._outcomes:
                del self._outcomes[message_id]
            else:
                self._forgotten.add(message_id)

    # ---- in paho's thread, which an exception would end ----

    def _connected(
        self, client: paho.Client, _data: Any, flags: Any, code: Any, _properties: Any
    ) -> None:
        address = self._settings.address
        if code.is_failure:
            if code.value in _REFUSED:
                self._refusal = f"MQTT server {address} refuses the connection: {code}"
            logger.warning("MQTT server %s refuses the connection: %s", address, code)
            return
        self._connection += 1
        logger.info("connected to MQTT server %s", address)
        if self._filters and not (self._has_subscribed and flags.session_present):
            self._subscribe(client)
        else:
            self.connected.set()

    def _subscribe(self, client: paho.Client) -> None:
        qos = self._settings.qos
        if self._settings.version == int(MQTTProtocolVersion.MQTTv5):
            # What is retained comes once, not with every start.
            options = SubscribeOptions(qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
            client.subscribe([(each, options) for each in self._filters])
        else:
            client.subscribe([(each, qos) for each in self._filters])

    def _subscribed(
        self, _client: paho.Client, _data: Any, _mid: int, codes: Any, _properties: Any
    ) -> None:
        refused = [
            f"{name} ({code})"
            for name, code in zip(self._filters, codes, strict=False)
            if code.is_failure
        ]
        if refused:
            self._refusal = (
                f"MQTT server {self._settings.address} refuses to subscribe to {', '.join(refused)}"
            )
            return
        self._has_subscribed = True
        self.connected.set()

    def _connect_failed(self, _client: paho.Client, _data: Any) -> None:
        logger.warning("MQTT server %s cannot be reached", self._settings.address)

    def _disconnected(
        self, _client: paho.Client, _data: Any, _flags: Any, code: Any, _properties: Any
    ) -> None:
        self._connection += 1
        self.connected.clear()
        if not self._is_closing:
            logger.warning("MQTT server %s: connection lost: %s", self._settings.address, code)

    def _arrived(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            # MQTT forbids it (section 1.5.4), and it would come again for ever.
            logger.warning("a message is left out: its topic is no UTF-8")
            client.ack(message.mid, message.qos)
            return
        assert self._on_arrival is not None
        self._on_arrival(
            Arrival(
                *(topic, bytes(message.payload), message.qos, bool(message.retain)),
                *(bool(message.dup), message.mid, self._connection),
            )
        )

    def _published(
        self, _client: paho.Client, _data: Any, mid: int, code: Any, _properties: Any
    ) -> None:
        with self._has_outcome:
            if mid in self._forgotten:
                self._forgotten.remove(mid)
                return
            self._outcomes[mid] = str(code) if code.value >= _FAILURE else None
            self._has_outcome.notify_all()
