"""Requests of one MQTT client made as expensive as possible: others do not wait for them."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from gateway.bodies.parsing import Parsing
from gateway.mqtt.packets.message import Message
from gateway.mqtt.sessions.connection import Connection
from gateway.mqtt.settings import Settings
from gateway.users import auth
from gateway.users.rights import USUAL_RIGHTS, Rights
from tests.attacks.turns import TURN_MS_MAX, Turns, measured_turns
from tests.gateway.mqtt.in_memory import Platform, Users, eventually

PAYLOAD_BYTES = 250_000
CLIENTS = 2_000
FRIENDS = Rights(friends={f"friend{number}": 0 for number in range(50)})


class People(Users):
    """Accepts every client under its name."""

    async def authenticate(  # type: ignore[override]
        self, user: str, password: str, address: str = ""
    ) -> auth.Identity | None:
        return auth.Identity(user, rights=FRIENDS if user == "bob" else USUAL_RIGHTS)


def text(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def packet(first: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while True:
        size, digit = size >> 7, size & 0x7F
        length += bytes([digit | (0x80 if size else 0)])
        if not size:
            return bytes([first]) + length + body


def publish(topic: str, payload: bytes, qos: int = 1) -> bytes:
    identifier = b"\0\1" if qos else b""
    return packet(0x30 | qos << 1, text(topic) + identifier + payload)


def subscribe(*filters: str) -> bytes:
    return packet(0x82, b"\0\1" + b"".join(text(each) + b"\0" for each in filters))


def unsubscribe(*filters: str) -> bytes:
    return packet(0xA2, b"\0\1" + b"".join(map(text, filters)))


class Client:
    """A blocking client, for use in a thread."""

    def __init__(
        self,
        port: int,
        user: str,
        name: str,
        keep_alive: int = 0,
        will: bytes | None = None,
        password: str = "x",
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._file = self._socket.makefile("rb")
        flags = 0xC2 if will is None else 0xC6
        body = text("MQTT") + bytes([4, flags]) + struct.pack(">H", keep_alive) + text(name)
        if will is not None:
            body += text(f"devices/{user}/phone/position") + text(will)
        self.ask(packet(0x10, body + text(user) + text(password)), 2)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, data: bytes, answer: int) -> None:
        """Send a packet, and wait for one of type `answer`."""
        self.send(data)
        self.wait(answer)

    def wait(self, kind: int) -> None:
        while True:
            first = self._file.read(1)
            assert first, "the server has closed the connection"
            size, shift = 0, 0
            while True:
                digit = self._file.read(1)[0]
                size |= (digit & 0x7F) << shift
                shift += 7
                if digit < 0x80:
                    break
            self._file.read(size)
            if first[0] >> 4 == kind:
                return

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Bench:
    """A server, and the measured values."""

    def __init__(self, platform: Platform, turns: Turns) -> None:
        self.platform = platform
        self.server = platform.server
        self._turns = turns
        self.figures: dict[str, float] = {}

    async def client(self, user: str, name: str, **options: bytes | int) -> Client:
        port = self.server.endpoint.port
        return await asyncio.to_thread(
            Client,
            port,
            user,
            name,
            **options,  # type: ignore[arg-type]
        )

    async def clients(self, user: str, count: int, keep_alive: int = 0) -> list[Client]:
        port = self.server.endpoint.port
        return await asyncio.to_thread(
            lambda: [Client(port, user, f"c{n}", keep_alive) for n in range(count)]
        )

    async def measure(self, name: str, act: Callable[..., object], *arguments: object) -> None:
        """Call `act` in a thread, and record the longest turn of the loop meanwhile."""
        await asyncio.sleep(0.02)
        self._turns.worst()
        await asyncio.to_thread(act, *arguments)
        await asyncio.sleep(0.05)  # for the consequences
        self.figures[name] = self._turns.worst()

    def check(self, limit_ms: float = TURN_MS_MAX) -> None:
        print({name: round(each, 1) for name, each in self.figures.items()})
        assert {name: each for name, each in self.figures.items() if each > limit_ms} == {}


@asynccontextmanager
async def bench(settings: Settings | None = None) -> AsyncIterator[Bench]:
    platform = Platform(users=People())
    async with platform.listening(settings, parsing=Parsing()):
        with measured_turns() as turns:
            yield Bench(platform, turns)


def filled(item: Callable[[int], Mapping[str, object]]) -> bytes:
    """Return a JSON list that is as long as a packet may be."""
    items: list[bytes] = []
    size = 0
    while size < PAYLOAD_BYTES:
        items.append(json.dumps(item(len(items)), separators=(",", ":")).encode())
        size += len(items[-1]) + 1
    return b"[" + b",".join(items) + b"]"


def position(number: int) -> dict[str, object]:
    return {"lat": 1.5, "lon": 2.5, "time": int(time.time() * 1000) - number}


def location(number: int) -> dict[str, object]:
    seconds = int(time.time()) - number
    return {"_type": "location", "lat": 1.5, "lon": 2.5, "tst": seconds}


PAYLOADS: dict[str, Callable[[], bytes]] = {
    "positions": lambda: filled(position),
    "objects": lambda: b"[" + b",".join([b"{}"] * (PAYLOAD_BYTES // 3)) + b"]",
    "few objects": lambda: b"[" + b",".join([b"{}"] * 10_000) + b"]",
    "numbers": lambda: b"[" + b",".join([b"1"] * (PAYLOAD_BYTES // 2)) + b"]",
    "deep": lambda: b"[" * PAYLOAD_BYTES,
    "a long string": lambda: b'{"lat":"' + b"x" * PAYLOAD_BYTES + b'"}',
    "locations": lambda: filled(location),
}


async def test_no_payload_keeps_others_waiting() -> None:
    async with bench() as server:
        for topic in ("devices/{}/phone/position", "owntracks/{}/phone"):
            for name, make in PAYLOADS.items():
                # Some use up what may be refused of one user in a minute.
                user = f"{topic.split('/')[0]}-{name}".replace(" ", "-")
                eve = await server.client(user, "e")
                said = publish(topic.format(user), make())
                await server.measure(user, eve.ask, said, 4)
                eve.close()
        assert len(server.platform.log.fixes) > 5_000
        server.check()


async def test_what_is_read_elsewhere_stays_in_order_and_is_stored() -> None:
    async with bench() as server:
        eve = await server.client("eve", "e")
        topic = "devices/eve/phone/position"
        large, small = filled(position), json.dumps(position(-1)).encode()
        await asyncio.to_thread(eve.send, publish(topic, large) + publish(topic, small))
        await asyncio.to_thread(eve.wait, 4)
        await asyncio.to_thread(eve.wait, 4)
        fixes = server.platform.log.fixes
        assert len(fixes) == len(json.loads(large)) + 1
        assert fixes[-1].time == json.loads(small)["time"]
        eve.close()


async def test_no_will_keeps_others_waiting() -> None:
    async with bench() as server:
        will = filled(position)[:60_000].rpartition(b",{")[0] + b"]"
        clients = [await server.client("eve", f"e{n}", will=will) for n in range(5)]

        def go() -> None:
            for each in clients:
                each.close()

        await server.measure("wills", go)
        expected = 5 * len(json.loads(will))
        await eventually(lambda: len(server.platform.log.fixes) == expected)
        server.check()


async def test_no_packets_of_one_client_keep_others_waiting() -> None:
    """The smallest packets, as many as can arrive at once, are handled in turns."""
    async with bench() as server:
        eve = await server.client("eve", "e")
        pings = b"\xc0\0" * 100_000

        def ping() -> None:
            # If the answers were not read, the server would stop reading.
            for start in range(0, len(pings), 20_000):
                eve.send(pings[start : start + 20_000])
                for _ in range(10_000):
                    eve.wait(13)

        await server.measure("pings", ping)
        flood = publish("devices/eve/a/b", b"", 0) * 8_000
        await server.measure("messages", lambda: eve.ask(flood + b"\xc0\0", 13))
        asked = subscribe("owntracks/+/+") * 2_000
        bob = await server.client("bob", "b")
        await server.measure("subscriptions", lambda: bob.ask(asked + b"\xc0\0", 13))
        for each in (eve, bob):
            each.close()
        server.check()


async def test_clients_of_one_user_have_the_time_of_one_client() -> None:
    """Everything that many clients send arrives at once, and is handled in turns of their user."""
    async with bench(Settings(connections_per_user_max=400)) as server:
        crowd = await server.clients("eve", 200)
        flood = publish("devices/eve/a/b", b"", 0) * 1_000 + b"\xc0\0"

        def flood_all() -> None:
            for each in crowd:
                each.send(flood)
            for each in crowd:
                each.wait(13)

        await server.measure("messages", flood_all)
        assert server.server.counters["publishes"] == 200 * 1_000
        refused = publish("owntracks/eve/phone", b"x", 0) * 10

        def refuse_all() -> None:
            for each in crowd:
                each.send(refused + b"\xc0\0")
            for each in crowd:
                each.wait(13)

        await server.measure("refused messages", refuse_all)
        for each in crowd:
            each.close()
        server.check()


def connections_of(server: Bench, user: str) -> list[Connection]:
    sessions = server.server.router.sessions.values()
    found = [each.connection for each in sessions if each.identity.user == user]
    return [each for each in found if isinstance(each, Connection)]


async def test_work_for_many_clients_of_one_user_goes_in_turns_with_that_of_others() -> None:
    async with bench(Settings(connections_per_user_max=400)) as server:
        crowd = await server.clients("eve", 300)
        bob = await server.client("bob", "b")
        router = server.server.router

        def subscribed(user: str) -> int:
            sessions = router.sessions.values()
            return sum(len(each.subscriptions) for each in sessions if each.identity.user == user)

        for each in crowd:
            each.send(subscribe(*(f"owntracks/eve/d{number}" for number in range(200))))
        while subscribed("eve") < 1_000:
            await asyncio.sleep(0)
        before = subscribed("eve")
        bob.send(subscribe(*(f"owntracks/bob/d{number}" for number in range(20))))
        while subscribed("bob") < 20:
            await asyncio.sleep(0)
        # With as many steps for each client of eve, she would have 300 * 20 more.
        assert subscribed("eve") - before < 3_000
        for each in (*crowd, bob):
            each.close()


async def test_answers_to_many_clients_of_one_user_go_in_turns_with_those_to_others() -> None:
    async with bench(Settings(connections_per_user_max=2_000)) as server:
        crowd = await server.clients("eve", 1_500)
        bob = await server.client("bob", "b")
        eves, bobs = connections_of(server, "eve"), connections_of(server, "bob")
        assert (len(eves), len(bobs)) == (1_500, 1)
        for each in (*eves, *bobs):
            each.send(b"\xd0\0")
        server.server.wake()
        while bobs[0].outgoing_bytes:
            await asyncio.sleep(0)
        assert sum(bool(each.outgoing_bytes) for each in eves) > 500
        for client in (*crowd, bob):
            client.close()


async def test_no_filters_keep_others_waiting() -> None:
    """200 filters in a packet, from a user with 50 friends, are handled in turns."""
    async with bench() as server:
        filters = {
            "one level each": [f"owntracks/+/d{n}" for n in range(200)],
            "long": [f"owntracks/+/{'x' * 1_000}{n}" for n in range(200)],
            "deep": ["+/" * 100 + str(n) for n in range(200)],
            "shared": [f"$share/g{n}/#" for n in range(200)],
        }
        for name, asked in filters.items():
            bob = await server.client("bob", name)
            await server.measure(f"{name}: subscribe", bob.ask, subscribe(*asked), 9)
            await server.measure(f"{name}: again", bob.ask, subscribe(*asked), 9)
            await server.measure(f"{name}: unsubscribe", bob.ask, unsubscribe(*asked), 11)
            await asyncio.to_thread(bob.ask, subscribe(*asked), 9)
            await server.measure(f"{name}: goodbye", bob.close)
        server.check()


async def test_no_crowd_of_clients_keeps_others_waiting() -> None:
    """One message goes to 2,000 clients; then the keep-alive of all of them ends at once."""
    async with bench(Settings(connections_per_user_max=2 * CLIENTS)) as server:
        crowd = await server.clients("eve", CLIENTS, keep_alive=8)
        publisher = await server.client("eve", "e")
        topic = "devices/eve/phone/sign"

        def subscribe_all() -> None:
            for each in crowd:
                each.ask(subscribe(topic), 9)

        def say() -> None:
            for number in range(3):
                publisher.ask(publish(topic, b"%d" % number * 200), 4)
            for each in crowd:
                for _ in range(3):
                    each.wait(3)

        await asyncio.to_thread(subscribe_all)
        await server.measure("fan-out", say)
        ended = server.server.counters

        def be_silent() -> None:
            deadline = time.monotonic() + 60
            while ended["connections_ended"] < CLIENTS and time.monotonic() < deadline:
                time.sleep(0.05)

        await server.measure("time-outs", be_silent)
        assert ended["connections_ended"] == CLIENTS
        for each in (*crowd, publisher):
            each.close()
        server.check(16.0)  # without steps it was twice that, and grew with the clients


async def test_what_clients_that_have_gone_asked_for_is_not_looked_for() -> None:
    """Many filters that match nothing among many retained messages, from clients that close."""
    platform = Platform(users=People())
    async with platform.listening():
        server = platform.server
        for number in range(10_000):
            topic = f"owntracks/carol/d{number}/info/{number}"
            server.router.retained.take(Message(topic, b"x", 0, True))
        filters = subscribe(*(f"owntracks/carol/+/none{number}/#" for number in range(200)))

        def come_and_go() -> None:
            clients = [Client(server.endpoint.port, "carol", f"c{each}") for each in range(50)]
            for client in clients:
                client.send(filters)
            for client in clients:
                client.close()

        before_s = time.thread_time()
        await asyncio.to_thread(come_and_go)
        await eventually(lambda: not server.pool.used)
        # Some 0.2 s for the subscriptions; the searches would take 10 s.
        assert time.thread_time() - before_s < 4
