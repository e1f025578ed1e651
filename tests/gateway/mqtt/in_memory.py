"""In-memory replacements for what the MQTT listener needs of the gateway, and MQTT clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from gateway.bodies.parsing import Parsing
from gateway.friends.friend_events import FriendEventFilter
from gateway.limits.refusal_sampler import RefusalSampler
from gateway.mqtt.interfaces import AddressChannel, Identity
from gateway.mqtt.listening.listener import MqttServer, start_mqtt
from gateway.mqtt.packets.packets import PacketType
from gateway.mqtt.rights.acl import AccessRules
from gateway.mqtt.sessions.connection import Connection
from gateway.mqtt.sessions.router import Router
from gateway.mqtt.settings import Settings
from gateway.users.admission import Admission
from gateway.users.permissions import Permissions
from waylog.config import Endpoint
from waylog.messages import Address, Event, Fix, Rejected, encode
from waylog.network.connection_pool import ConnectionPool

WAIT_S = 60.0
ANY_PORT = Endpoint("127.0.0.1", 0)


@dataclass(frozen=True)
class User:
    """An identity."""

    user: str
    device: str | None = None
    admin: bool = False


class Users:
    """An authenticator: names and passwords; without any, it accepts everybody under any name."""

    def __init__(self, known: dict[str, tuple[str, User]] | None = None) -> None:
        self.known = known
        self.gate: asyncio.Event | None = None

    async def authenticate(self, user: str, password: str, address: str = "") -> User | None:
        if self.gate is not None:
            await self.gate.wait()
        if self.known is None:
            return User(user)
        expected, identity = self.known.get(user, ("", None))
        return identity if identity is not None and password == expected else None

    async def authenticate_certificate(self, name: str) -> User | None:
        user, _, device = name.partition("/")
        known = self.known is None or user in self.known
        return User(user, device or None) if known else None


@dataclass
class MemoryLog:
    """A submitter. `hold` leaves futures open until `confirm`; `broken` makes appends fail."""

    fixes: list[Fix] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    messages: list[tuple[str, bytes, bytes, list[tuple[str, bytes]]]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    hold: bool = False
    broken: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def _append(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self.broken:
            future.set_exception(ConnectionError("no broker"))
        elif self.hold:
            self.waiting.append(future)
        else:
            loop.call_soon(future.set_result, None)
        return future

    def confirm(self, count: int | None = None) -> None:
        """Acknowledge the oldest `count` records, or all."""
        for future in self.waiting[:count]:
            if not future.done():
                future.set_result(None)
        del self.waiting[:count]

    def submit_location(self, fix: Fix) -> asyncio.Future[None]:
        self.fixes.append(fix)
        return self._append()

    def submit_event(self, event: Event) -> asyncio.Future[None]:
        self.events.append(event)
        return self._append()

    def event_receipt(self, event: Event) -> asyncio.Future[None]:
        return self.submit_event(event)

    def rejected_receipt(
        self, rejected: Rejected, *, sender: str | None = None
    ) -> asyncio.Future[None]:
        return self.submit_rejected(rejected)

    def submit_message(
        self, topic: str, key: bytes, payload: bytes, headers: list[tuple[str, bytes]]
    ) -> asyncio.Future[None]:
        self.messages.append((topic, key, payload, headers))
        return self._append()

    def submit_rejected(
        self, rejected: Rejected, *, sender: str | None = None, stranger: str | None = None
    ) -> asyncio.Future[None]:
        self.rejected.append(rejected)
        return self._append()


class Addresses:
    """A view of addresses."""

    def __init__(self) -> None:
        self.by_device: dict[str, Address] = {}

    def latest(self, device: str) -> Address | None:
        return self.by_device.get(device)

    def devices(self, user: str | None) -> list[str]:
        return [name for name in self.by_device if user in {None, name.split("/")[0]}]


class Locations:
    """A view of positions."""

    def __init__(self) -> None:
        self.by_device: dict[str, Fix] = {}

    def latest(self, device: str) -> Fix | None:
        return self.by_device.get(device)

    def devices(self, user: str | None) -> list[str]:
        return [name for name in self.by_device if user in {None, name.split("/")[0]}]


class Push:
    """A pusher."""

    def __init__(self) -> None:
        self.channels: list[AddressChannel] = []

    def register(self, channel: AddressChannel) -> None:
        self.channels.append(channel)

    def unregister(self, channel: AddressChannel) -> None:
        self.channels.remove(channel)


def changed(channel: AddressChannel, new: Address) -> None:
    """Pass a new address to a channel as the view does."""
    channel.address_changed(new.device, encode(new))


def address(device: str = "alice/phone", name: str = "Kaiserplatz 4, Bonn") -> Address:
    """Return an address of a device."""
    return Address(
        device=device,
        fix_id="f1",
        time=1_761_994_805_000,
        lat=50.73,
        lon=7.1,
        display_name=name,
        address={"road": "Kaiserplatz", "city": "Bonn"},
    )


@dataclass
class Platform:
    """A listening server, with everything that it needs."""

    log: MemoryLog = field(default_factory=MemoryLog)
    users: Users = field(default_factory=Users)
    addresses: Addresses = field(default_factory=Addresses)
    locations: Locations = field(default_factory=Locations)
    push: Push = field(default_factory=Push)
    server: MqttServer = field(init=False)

    @contextlib.asynccontextmanager
    async def listening(
        self,
        settings: Settings | None = None,
        refusals: RefusalSampler | None = None,
        rules: AccessRules | None = None,
        permissions: Permissions | None = None,
        telling: FriendEventFilter | None = None,
        parsing: Parsing | None = None,
        connections: ConnectionPool | None = None,
        admission: Admission | None = None,
        endpoint: Endpoint = ANY_PORT,
    ) -> AsyncIterator[Platform]:
        self.server = await start_mqtt(
            endpoint,
            submitter=self.log,
            authenticator=self.users,
            address_view=self.addresses,
            location_view=self.locations,
            pusher=self.push,
            settings=settings,
            refusals=refusals,
            rules=rules,
            permissions=permissions,
            telling=telling,
            parsing=parsing,
            connections=connections,
            admission=admission,
        )
        try:
            yield self
        finally:
            await self.server.close()
            if parsing is not None:
                await parsing.close()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


class PahoClient:
    """Eclipse Paho's client, an implementation that is not ours, with awaitable answers."""

    def __init__(self, port: int, client_id: str, *, version: int = 4, **options: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._port = port
        self.version = version
        self.connected: asyncio.Queue[tuple[PahoReasonCode, bool]] = asyncio.Queue()
        self.disconnected: asyncio.Queue[PahoReasonCode] = asyncio.Queue()
        self.messages: asyncio.Queue[paho.MQTTMessage] = asyncio.Queue()
        self.published: asyncio.Queue[tuple[int, PahoReasonCode]] = asyncio.Queue()
        self.subscribed: asyncio.Queue[list[PahoReasonCode]] = asyncio.Queue()
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTProtocolVersion(version),
            **options,
        )
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish
        self.client.on_subscribe = self._on_subscribe

    def _tell(self, queue: asyncio.Queue[Any], item: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the test is over
            self._loop.call_soon_threadsafe(queue.put_nowait, item)

    def _on_connect(
        self, _client: Any, _data: Any, flags: Any, code: Any, _properties: Any
    ) -> None:
        self.connack_properties = _properties
        self._tell(self.connected, (code, flags.session_present))

    def _on_disconnect(self, _c: Any, _d: Any, _flags: Any, code: Any, _properties: Any) -> None:
        self._tell(self.disconnected, code)

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self._tell(self.messages, message)

    def _on_publish(self, _c: Any, _d: Any, mid: int, code: Any, _properties: Any) -> None:
        self._tell(self.published, (mid, code))

    def _on_subscribe(self, _c: Any, _d: Any, _mid: int, codes: Any, _properties: Any) -> None:
        self._tell(self.subscribed, list(codes))

    async def connect(
        self,
        user: str | None = None,
        password: str | None = None,
        *,
        keep_alive: int = 60,
        properties: PahoProperties | None = None,
        **options: Any,
    ) -> tuple[PahoReasonCode, bool]:
        """Connect; return the reason code, and whether a session was present."""
        if user is not None:
            self.client.username_pw_set(user, password)
        if properties is not None:
            options["properties"] = properties
        await asyncio.to_thread(self.client.connect, "127.0.0.1", self._port, keep_alive, **options)
        self.client.loop_start()
        async with asyncio.timeout(WAIT_S):
            return await self.connected.get()

    async def subscribe(self, topic: str, qos: int = 1, **options: Any) -> list[int]:
        """Subscribe; return the reason codes."""
        if options:
            self.client.subscribe(topic, **options)
        else:
            self.client.subscribe(topic, qos)
        async with asyncio.timeout(WAIT_S):
            return [code.value for code in await self.subscribed.get()]

    async def publish(
        self, topic: str, payload: str | bytes, qos: int = 1, retain: bool = False, **options: Any
    ) -> int:
        """Publish, wait for the acknowledgement (of QoS 1 and 2), return its reason code."""
        self.client.publish(topic, payload, qos, retain, **options)
        async with asyncio.timeout(WAIT_S):
            return int((await self.published.get())[1].value)

    async def message(self) -> paho.MQTTMessage:
        """Return the next message."""
        async with asyncio.timeout(WAIT_S):
            return await self.messages.get()

    async def close(self) -> None:
        """Disconnect with a DISCONNECT packet."""
        self.client.disconnect()
        await self._stop()

    async def vanish(self) -> None:
        """Close the socket without DISCONNECT, like a phone in a tunnel."""
        sock = self.client.socket()
        assert sock is not None
        sock.close()
        await self._stop()

    async def _stop(self) -> None:
        await asyncio.to_thread(self.client.loop_stop)
        # Paho leaves the sockets that wake its thread to the garbage collector.
        self.client._reset_sockets(sockpair_only=True)


def split_packets(data: bytes) -> list[tuple[int, bytes]]:
    """Return the first byte (packet type and flags) and the body of each packet of a server."""
    packets = []
    while data:
        size, shift, header = 0, 0, 1
        while True:
            size |= (data[header] & 0x7F) << shift
            shift += 7
            header += 1
            if data[header - 1] < 0x80:
                break
        packets.append((data[0], data[header : header + size]))
        data = data[header + size :]
    return packets


class Wire:
    """The bytes between one client and a Connection, without any socket."""

    def __init__(self, router: Router, now: float = 0.0) -> None:
        self.router = router
        self.now = now
        self.connection = Connection(router, None, now)

    def send(self, data: bytes) -> list[Any]:
        """Take bytes of the client; return the packets that the server has to decide about."""
        self.connection.receive_data(data, self.now)
        events = []
        while (event := self.connection.next_event(self.now)) is not None:
            events.append(event)
        return events

    def connect(
        self,
        client_id: str = "phone",
        identity: Identity | None = None,
        *,
        version: int = 4,
        clean: bool = True,
        keep_alive: int = 0,
        properties: bytes = b"",
    ) -> bytes:
        """Connect and accept the client; return CONNACK and what followed it."""
        identity = identity or User("alice", admin=True)
        name = b"\0\6MQIsdp" if version == 3 else b"\0\4MQTT"
        body = name + bytes([version, 2 if clean else 0]) + keep_alive.to_bytes(2, "big")
        if version == 5:
            body += bytes([len(properties)]) + properties
        body += len(client_id).to_bytes(2, "big") + client_id.encode()
        (packet,) = self.send(bytes([PacketType.CONNECT << 4, len(body)]) + body)
        self.connection.accept(packet, identity, self.now, assigned_client_id="assigned")
        return self.received()

    def subscribe(self, topic_filter: str, qos: int = 1) -> bytes:
        """Subscribe; return SUBACK and what followed it."""
        properties = b"\0" if self.connection.version == 5 else b""
        body = b"\0\1" + properties + len(topic_filter).to_bytes(2, "big") + topic_filter.encode()
        self.send(b"\x82" + bytes([len(body) + 1]) + body + bytes([qos]))
        return self.received()

    def received(self) -> bytes:
        """Return what the client was sent since the last call."""
        if self.connection in self.router.changed:
            self.router.changed.remove(self.connection)
        return self.connection.take_outgoing(self.now)

    def lose(self) -> None:
        """Break the network connection."""
        self.connection.lost(self.now)


def new_router(settings: Settings | None = None, rules: AccessRules | None = None) -> Router:
    """Return a router at time 0."""
    return Router(settings or Settings(), rules or AccessRules(), 0.0)
