"""Connections that end before the log has answered: QoS 2 stays exactly once (MQTT-4.3.3-10)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

import pytest

from gateway.mqtt.listening.listener import MqttServer, start_mqtt
from gateway.mqtt.packets.encoder import encode_acknowledgement, encode_publish
from gateway.mqtt.packets.packets import PacketType
from gateway.mqtt.publishing.mapping import parse_rule
from tests.gateway.mqtt.in_memory import (
    WAIT_S,
    Addresses,
    Locations,
    MemoryLog,
    PahoClient,
    Push,
    User,
    Users,
    eventually,
    split_packets,
)
from tests.gateway.mqtt.workers.test_workers import Worker, connected, workers
from waylog.config import Endpoint

COUNT = 30
NOTE = "devices/ada/phone/note"
MAPPED = "devices/ada/phone/temperature"
POSITION = "devices/ada/phone/position"


def connect_packet(client_id: str, version: int = 4, user: str = "ada") -> bytes:
    """Return the CONNECT of a client whose session is kept."""
    body = b"\0\4MQTT" + bytes([version, 0x80]) + b"\0\0"
    if version == 5:
        body += b"\5\x11\0\0\xff\xff"  # Session Expiry Interval
    for each in (client_id, user):
        body += len(each).to_bytes(2, "big") + each.encode()
    return bytes([0x10, len(body)]) + body


def publishes(server: MqttServer, count: int) -> bool:
    """Return whether `count` publishes were handled."""
    return server.counters["publishes"] == count


@dataclass
class RawClient:
    """A client on a socket; `packets` are the packets that it has received."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    packets: list[tuple[int, bytes]] = field(default_factory=list)
    _rest: bytes = b""

    @classmethod
    async def connect(cls, port: int, client_id: str = "sensor", version: int = 4) -> RawClient:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.writer.write(connect_packet(client_id, version))
        await client.read_until(lambda: bool(client.of(PacketType.CONNACK)))
        return client

    def of(self, kind: int) -> list[bytes]:
        return [body for first, body in self.packets if first >> 4 == kind]

    async def read_until(self, condition: object) -> None:
        assert callable(condition)
        async with asyncio.timeout(WAIT_S):
            while not condition():
                piece = await self.reader.read(65536)
                if not piece:
                    raise ConnectionError("the server has closed the connection")
                self.packets += split_packets(piece)  # answers are small: packets arrive whole

    def publish(self, topic: str, first_id: int, count: int, *, dup: bool, version: int) -> None:
        for number in range(first_id, first_id + count):
            payload = b'{"lat":50.7,"lon":7.1,"time":%d}' % (1_761_994_800 + number)
            self.writer.write(encode_publish(version, topic, payload, 2, False, dup, number))

    async def cut(self) -> None:
        """Abort the connection, like a phone in a tunnel."""
        self.writer.transport.abort()
        self.writer.close()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("topic", [NOTE, MAPPED, POSITION])
async def test_what_is_sent_again_while_the_log_is_slow_is_stored_and_delivered_once(
    version: int, topic: str
) -> None:
    log = MemoryLog(hold=True)
    server = await start_mqtt(
        Endpoint("127.0.0.1", 0),
        submitter=log,
        authenticator=Users(),
        address_view=Addresses(),
        location_view=Locations(),
        pusher=Push(),
        mapping=(parse_rule("devices/+/+/temperature=temperature"),),
    )
    try:
        port = server.endpoint.port
        subscriber = PahoClient(port, "subscriber")
        await subscriber.connect("ada")
        await subscriber.subscribe(topic, 2)
        # A rejected message comes first: messages that need no append still wait behind it.
        for attempt in range(3):
            client = await RawClient.connect(port, version=version)
            client.writer.write(
                encode_publish(version, POSITION, b"{", 2, False, attempt > 0, COUNT + 1)
            )
            client.publish(topic, 1, COUNT, dup=attempt > 0, version=version)
            # When this one was handled, all before it were.
            client.writer.write(encode_publish(version, "devices/ada/x", b"", 0, False, False, 0))
            await eventually(partial(publishes, server, COUNT + 2 + attempt))
            if attempt < 2:
                await client.cut()
        log.confirm()
        await client.read_until(lambda: len(client.of(PacketType.PUBREC)) == COUNT + 1)
        for number in range(1, COUNT + 2):
            client.writer.write(encode_acknowledgement(PacketType.PUBREL, version, number))
        await client.read_until(lambda: len(client.of(PacketType.PUBCOMP)) == COUNT + 1)
        received = [(await subscriber.message()).payload for _ in range(COUNT)]
        assert len(set(received)) == COUNT
        assert len(log.messages) == (COUNT if topic == MAPPED else 0)
        assert len(log.fixes) == (COUNT if topic == POSITION else 0)
        assert len(log.rejected) == 1
        client.writer.close()
        await subscriber.close()
        assert subscriber.messages.empty()
    finally:
        await server.close()


async def test_what_the_log_refused_is_stored_when_it_is_sent_again() -> None:
    log = MemoryLog(hold=True)
    server = await start_mqtt(
        Endpoint("127.0.0.1", 0),
        submitter=log,
        authenticator=Users({"ada": ("", User("ada"))}),
        address_view=Addresses(),
        location_view=Locations(),
        pusher=Push(),
        mapping=(parse_rule("devices/+/+/temperature=temperature"),),
    )
    try:
        port = server.endpoint.port
        first = await RawClient.connect(port)
        first.publish(MAPPED, 1, 2, dup=False, version=4)
        await eventually(lambda: len(log.waiting) == 2)
        await first.cut()
        refused, stored = log.waiting
        second = await RawClient.connect(port)
        second.publish(MAPPED, 1, 2, dup=True, version=4)
        second.writer.write(encode_publish(4, "devices/ada/x", b"", 0, False, False, 0))
        await eventually(lambda: server.counters["publishes"] == 3)
        stored.set_result(None)
        refused.set_exception(ConnectionError("no broker"))
        # A publish that must not be acknowledged ends the connection that has repeated it.
        with pytest.raises(ConnectionError):
            await second.read_until(lambda: bool(second.of(PacketType.PUBREC)))
        second.writer.close()
        log.hold = False
        third = await RawClient.connect(port)
        third.publish(MAPPED, 1, 2, dup=True, version=4)
        await third.read_until(lambda: len(third.of(PacketType.PUBREC)) == 2)
        assert [payload[-3:-1] for _, _, payload, _ in log.messages] == [b"01", b"02", b"01"]
        third.writer.close()
    finally:
        await server.close()


async def test_a_client_that_comes_to_another_worker_meanwhile_doubles_nothing() -> None:
    async with workers(3) as running:
        first, second, third = running
        subscriber = await connected(third, "subscriber")
        await subscriber.subscribe(POSITION, 2)
        await eventually(lambda: len(first.server.router.elsewhere) == 1)
        sensor = await RawClient.connect(first.port)
        await eventually(lambda: second.journal.owner_of(("ada", "sensor")) == first.journal.worker)
        sensor.publish(POSITION, 1, COUNT, dup=False, version=4)
        await eventually(lambda: len(first.log.appended) == COUNT)
        await sensor.cut()
        # The session is handed over as soon as the log has answered its publishes.
        coming = asyncio.create_task(RawClient.connect(second.port))
        while not first.server.router.sessions[("ada", "sensor")].on_settled:
            await asyncio.sleep(0.005)
        first.log.acknowledge()
        again = await coming
        again.publish(POSITION, 1, COUNT, dup=True, version=4)
        await again.read_until(lambda: len(again.of(PacketType.PUBREC)) == COUNT)
        received = {(await subscriber.message()).payload for _ in range(COUNT)}
        assert len(received) == COUNT
        assert not second.log.appended and not third.log.appended
        await subscriber.close()
        assert subscriber.messages.empty()
        again.writer.close()


def is_owned(asked: Worker, owner: Worker) -> bool:
    """Return whether one worker knows that the sensor's session is at another one."""
    return bool(asked.journal.owner_of(("ada", "sensor")) == owner.journal.worker)


async def arrived(port: int) -> RawClient:
    """Connect, again while the server is busy, and check that the session is present."""
    async with asyncio.timeout(WAIT_S):
        while True:
            client = await RawClient.connect(port)
            present, code = client.of(PacketType.CONNACK)[-1][:2]
            if not code:
                assert present
                return client
            client.writer.close()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ending", ["cut", "closed", "left open"])
@pytest.mark.parametrize("heard", [True, False])
async def test_a_client_that_moves_faster_than_the_log_tells_of_it_doubles_nothing(
    ending: str, heard: bool
) -> None:
    async with workers(3, log_lag_s=0.2) as running:
        first, second, third = running
        subscriber = await connected(third, "subscriber")
        await subscriber.subscribe(NOTE, 2)
        await eventually(lambda: len(first.server.router.elsewhere) == 1)
        await eventually(lambda: len(second.server.router.elsewhere) == 1)
        sensor = await RawClient.connect(first.port)
        sensor.writer.close()
        for each in (second, third):
            await eventually(partial(is_owned, each, first))
        left = []
        before = sum(each.server.counters["publishes"] for each in running)
        for turn, worker in enumerate([second, third, first, second, first, third, second]):
            sensor = await arrived(worker.port)
            sensor.publish(NOTE, 1, 1, dup=turn > 0, version=4)
            left.append(sensor)
            if heard:
                await sensor.read_until(partial(sensor.of, PacketType.PUBREC))
            elif not turn:
                await eventually(lambda: second.server.counters["publishes"] > before)
            if ending == "cut":
                await sensor.cut()
            elif ending == "closed":
                sensor.writer.close()
        sensor = await arrived(third.port)
        sensor.publish(NOTE, 1, 1, dup=True, version=4)
        await sensor.read_until(lambda: bool(sensor.of(PacketType.PUBREC)))
        # Late records of the earlier workers end nothing here.
        for each in (first, second):
            await eventually(partial(is_owned, each, third))
        sensor.writer.write(encode_acknowledgement(PacketType.PUBREL, 4, 1))
        await sensor.read_until(lambda: bool(sensor.of(PacketType.PUBCOMP)))
        sensor.publish(NOTE, 2, 1, dup=False, version=4)
        await sensor.read_until(lambda: len(sensor.of(PacketType.PUBREC)) == 2)
        received = [(await subscriber.message()).payload[-3:-1] for _ in "12"]
        assert received == [b"01", b"02"]
        assert subscriber.messages.empty()
        for each in (*left, sensor):
            each.writer.close()
        await subscriber.close()


async def test_a_session_on_its_way_to_one_worker_is_not_lost_to_another() -> None:
    async with workers(3, log_lag_s=0.2) as running:
        first, second, third = running
        sensor = await RawClient.connect(first.port)
        for each in (second, third):
            await eventually(partial(is_owned, each, first))
        sensor.publish(POSITION, 1, 1, dup=False, version=4)
        await eventually(lambda: len(first.log.appended) == 1)
        await sensor.cut()
        coming = asyncio.create_task(RawClient.connect(second.port))
        await eventually(lambda: ("ada", "sensor") in second.server.router.claiming)
        # Only one worker may have the session: this one says that it is busy (3 in MQTT 3).
        refused = await RawClient.connect(third.port)
        assert refused.of(PacketType.CONNACK) == [b"\0\3"]
        refused.writer.close()
        first.log.acknowledge()
        await (await coming).cut()
        again = await arrived(third.port)
        again.publish(POSITION, 1, 1, dup=True, version=4)
        await again.read_until(lambda: bool(again.of(PacketType.PUBREC)))
        assert not second.log.appended and not third.log.appended
        again.writer.close()
