"""A connection to an MQTT server by paho-mqtt.

Either in paho's thread, made anew whenever it is lost, or once, in the thread of the caller.
Messages are acknowledged by whoever has got them: the server delivers again over the next
connection what was not.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)

#: Shortest and longest delay, in seconds, before the connection is made anew.
RECONNECT_S: Final = (1, 30)
MQTT_3: Final = int(MQTTProtocolVersion.MQTTv311)
_MQTT_5: Final = int(MQTTProtocolVersion.MQTTv5)
#: Reason codes of MQTT 5 that waiting does not cure; paho translates those of MQTT 3.
_LASTING: Final = frozenset({0x84, 0x85, 0x86, 0x87, 0x8C})
#: The longest time, in seconds, for which `run_until` does not look what has become so.
_LOOK_S: Final = 0.1


class MqttServer(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is reached, and the session that it keeps for this client."""

    host: str
    port: int
    client_id: str
    #: Where the connection goes if the name was looked up before; certificates are those of `host`.
    address: str | None = None
    version: int = _MQTT_5  # paho's number of the protocol: 4 is MQTT 3.1.1
    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    keep_alive_s: int = 30
    clean_session: bool = False
    session_expiry_s: int = 0  # MQTT 5: for how long the session is kept without a connection
    #: Unacknowledged messages (Receive Maximum); a server of MQTT 3 has its own limit.
    in_flight_max: int = 1000
    #: For how long the server may take to accept the connection, and as long for TLS.
    connect_timeout_s: float = 5.0

    def __repr__(self) -> str:
        """Host and port, and nothing of the login."""
        return f"MqttServer({self.host}:{self.port})"


class Arrival(NamedTuple):
    """A message that the server has delivered, and that has to be acknowledged."""

    topic: str
    payload: bytes
    qos: int
    is_retained: bool
    is_duplicate: bool
    message_id: int
    connection: int  # its number: an acknowledgement of another one would be of another message


class _NamedContext:
    """Has certificates checked for the name that was looked up, not for the address.

    It is what paho-mqtt uses of an SSLContext, of which there may be one for many connections: to
    load the authorities takes longer than to connect.
    """

    check_hostname: Final = True

    def __init__(self, trusted: ssl.SSLContext, name: str) -> None:
        self._trusted: Final = trusted
        self._name: Final = name

    def wrap_socket(self, sock: socket.socket, **options: Any) -> ssl.SSLSocket:
        # The handshake is made here: where paho makes it, a refused certificate leaves the socket.
        own = {"server_hostname": self._name, "do_handshake_on_connect": True}
        return self._trusted.wrap_socket(sock, **options | own)


def is_lasting(code: ReasonCode) -> bool:
    """Tell whether a server that does not take the connection has to be asked by somebody else."""
    return code.value in _LASTING


class MqttConnection:
    """The base of clients. Its methods may be called in any thread, but for `run_until`.

    Those that begin with `on_` are for clients to define. They are called in paho's thread, which
    an exception ends, or by `run_until`, which raises it.
    """

    def __init__(self, server: MqttServer) -> None:
        self._server: Final = server
        #: Grows with each connection, and with each loss of one.
        self._connection = 0
        self._unreadable: Final = LogThrottle()
        self._paho: Final = paho.Client(
            CallbackAPIVersion.VERSION2,
            server.client_id,
            protocol=MQTTProtocolVersion(server.version),
            # MQTT 5 has Clean Start instead, an option of connecting.
            clean_session=None if server.version == _MQTT_5 else server.clean_session,
            manual_ack=True,
        )
        self._paho.max_inflight_messages_set(server.in_flight_max)
        self._paho.reconnect_delay_set(*RECONNECT_S)
        if server.user:
            self._paho.username_pw_set(server.user, server.password)
        self._paho.connect_timeout = server.connect_timeout_s
        if server.tls is not None and server.address is not None:
            self._paho.tls_set_context(_NamedContext(server.tls, server.host))  # type: ignore[arg-type]
        elif server.tls is not None:
            self._paho.tls_set_context(server.tls)
        self._paho.on_connect = self._connected
        self._paho.on_connect_fail = lambda *_: self.on_unreachable()
        self._paho.on_disconnect = self._disconnected
        self._paho.on_subscribe = lambda _client, _data, _mid, codes, _: self.on_subscribed(codes)
        self._paho.on_message = self._arrived
        self._paho.on_publish = lambda _client, _data, mid, code, _: self.on_published(mid, code)

    def connect(self) -> None:
        """Have the connection made, and made anew whenever it is lost, by paho's loop."""
        server = self._server
        options: dict[str, Any] = {}
        if server.version == _MQTT_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            if not server.clean_session:
                properties.SessionExpiryInterval = server.session_expiry_s
            properties.ReceiveMaximum = server.in_flight_max
            options = {"clean_start": server.clean_session, "properties": properties}
        where = server.host if server.address is None else server.address
        self._paho.connect_async(where, server.port, server.keep_alive_s, **options)

    def connect_once(self) -> None:
        """Connect now, and never again; `run_until` receives and sends.

        Raises OSError, with ssl.SSLCertVerificationError among it.
        """
        self.connect()
        self._paho.reconnect()

    def run_until(self, is_so: Callable[[], bool], deadline: float) -> bool:
        """Receive and send in this thread until something is so; return False if that is too late.

        `deadline` is one of time.monotonic. Raises OSError when the connection is lost.
        """
        while not is_so():
            if time.monotonic() > deadline:
                return False
            code = self._paho.loop(_LOOK_S)
            if code and not is_so():
                raise OSError(f"the connection is lost ({code.name})")
        return True

    def disconnect(self) -> None:
        """End the connection."""
        self._paho.disconnect()

    def subscribe(self, filters: Sequence[str], qos: int, retained: int) -> None:
        """Subscribe; `retained` is what MQTT 5 calls Retain Handling, and older versions lack."""
        if self._server.version == _MQTT_5:
            options = SubscribeOptions(qos, retainHandling=retained)
            self._paho.subscribe([(each, options) for each in filters])
        else:
            self._paho.subscribe([(each, qos) for each in filters])

    def acknowledge(self, arrival: Arrival) -> None:
        """Acknowledge a message, unless its connection is over: then it comes again."""
        if arrival.qos and arrival.connection == self._connection:
            self._paho.ack(arrival.message_id, arrival.qos)

    # ---- for clients to define ----

    def on_connected(self, *, session_present: bool) -> None:
        """There is a connection; the server may have kept the session."""

    def on_refused(self, code: ReasonCode) -> None:
        """The server does not take the connection."""

    def on_unreachable(self) -> None:
        """There is no server at the address."""

    def on_lost(self, code: ReasonCode) -> None:
        """The connection has ended."""

    def on_subscribed(self, codes: Sequence[ReasonCode]) -> None:
        """The server has answered a subscription."""

    def on_arrival(self, arrival: Arrival) -> None:
        """A message has come."""

    def on_published(self, message_id: int, code: ReasonCode) -> None:
        """The server has answered a message of this client."""

    # ---- what paho calls ----

    def _connected(
        self, _client: paho.Client, _data: Any, flags: Any, code: ReasonCode, _properties: Any
    ) -> None:
        if code.is_failure:
            self.on_refused(code)
            return
        self._connection += 1
        self.on_connected(session_present=flags.session_present)

    def _disconnected(
        self, _client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, _properties: Any
    ) -> None:
        self._connection += 1
        self.on_lost(code)

    def _arrived(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            # MQTT forbids it (4.0, 1.5.4), and whoever sends it again sends the same.
            unsaid = self._unreadable.count(time.monotonic())
            if unsaid is not None:
                more = since_last_line(unsaid)
                logger.warning("a message is left out: its topic is no UTF-8%s", more)
            client.ack(message.mid, message.qos)
            return
        self.on_arrival(
            Arrival(
                *(topic, bytes(message.payload), message.qos, bool(message.retain)),
                *(bool(message.dup), message.mid, self._connection),
            )
        )
