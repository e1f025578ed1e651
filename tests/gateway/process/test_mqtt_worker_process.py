"""Workers that only speak MQTT, beside the gateway with the views: each in its own process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from gateway.mqtt.packets.encoder import encode_publish
from gateway.mqtt.packets.packets import PacketType
from tests.attacks.test_mqtt_qos_2 import RawClient
from tests.consumers.running import Broker, Process
from tests.gateway.mqtt.in_memory import PahoClient, address, eventually
from tests.gateway.mqtt.journal.test_restart import MqttGateway
from tests.ports import reserved_ports
from waylog.history.erasures import append_erasures
from waylog.observability.telemetry import now_ms

WAIT_S: Final = 60.0
#: So many that each has 1 MiB for incomplete packets.
WORKERS: Final = 64


class Pair(NamedTuple):
    """The gateway with the views, and a worker without views."""

    gateway: MqttGateway
    edge: MqttGateway


@pytest.fixture(scope="module")
def pair(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    common = tmp_path_factory.mktemp("edge")
    relay = str(common / "relay.sock")
    folders = [common / "a", common / "b"]
    for folder in folders:
        folder.mkdir()
    shared = ("--workers-share-port", "--mqtt-workers", str(WORKERS))
    first, second = (("--mqtt-worker", number) for number in "12")
    gateway = MqttGateway(folders[0], gateway_broker.address, *shared, *first, "--relay", relay)
    edge = MqttGateway(folders[1], gateway_broker.address, *shared, *second, "--edge", relay)
    yield Pair(gateway, edge)
    edge.close()
    gateway.close()


async def test_a_worker_lets_nobody_in_before_it_has_heard_the_clock_of_the_others(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    relay, heard = tmp_path / "relay.sock", asyncio.Event()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A gateway that is too busy to answer.
        while await reader.read(4096):
            heard.set()
        writer.close()

    (port,) = reserved_ports(1)
    async with await asyncio.start_unix_server(hear, relay):
        worker = Process(
            *("gateway", "--bootstrap-servers", gateway_broker.address, "--open"),
            *("--mqtt", f"127.0.0.1:{port}", "--data", str(tmp_path), "--edge", str(relay)),
            *("--workers-share-port", "--mqtt-workers", "2", "--mqtt-worker", "2"),
        )
        try:
            async with asyncio.timeout(WAIT_S):
                await heard.wait()
            # Some hundred times as long as it would take to listen.
            for _ in range(20):
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", port)
                await asyncio.sleep(0.1)
        finally:
            assert await asyncio.to_thread(worker.stop) == 0


async def client(worker: MqttGateway, user: str, name: str) -> PahoClient:
    made = PahoClient(worker.port, name)
    await made.connect(user)
    return made


async def it_comes(sender: PahoClient, reader: PahoClient, topic: str) -> None:
    """Publish until the reader receives it: subscriptions reach other workers with a delay."""
    async with asyncio.timeout(WAIT_S):
        while True:
            await sender.publish(topic, "?")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    message = await reader.messages.get()
                    assert message.topic == topic
                    return


async def test_of_a_group_over_two_workers_one_member_gets_an_address(pair: Pair) -> None:
    members = [await client(worker, "gus", f"m{n}") for n, worker in enumerate(pair)]
    # Because of this subscription the worker is sent the addresses, too.
    watcher = await client(pair.edge, "gus", "watcher")
    await watcher.subscribe("devices/gus/phone/address")
    for member in members:
        await member.subscribe("$share/g/devices/gus/phone/address")
        await member.subscribe("devices/gus/last/address")
    first, second = members
    for reader, sender, last in ((first, second, "a"), (second, first, "b")):
        # A worker that knows the other's last subscription knows all earlier ones.
        await reader.subscribe(f"devices/gus/x/{last}")
        await it_comes(sender, reader, f"devices/gus/x/{last}")
    names = [f"Kaiserplatz {number}, Bonn" for number in range(8)]
    received: list[str] = []

    async def receive(member: PahoClient) -> None:
        while not (message := await member.messages.get()).topic.startswith("devices/gus/last"):
            if message.topic.endswith("address"):
                received.append(msgspec.json.decode(message.payload)["display_name"])

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as receiving:
        for member in members:
            receiving.create_task(receive(member))
        for name in names:
            pair.gateway.publish(address("gus/phone", name))
        # Another device is in another partition, which may be read first.
        while len(received) < len(names):
            await asyncio.sleep(0.01)
        pair.gateway.publish(address("gus/last"))
    # Retained messages may have come with the subscription.
    assert sorted(received) == names
    for each in (watcher, *members):
        await each.close()


async def test_what_is_from_before_an_erasure_is_not_stored_by_a_worker_without_views(
    pair: Pair,
) -> None:
    phone = await client(pair.edge, "ida", "phone")
    began = now_ms() - 3_600_000
    append_erasures(pair.gateway.bootstrap_servers, ["ida/phone"], now_ms())
    number, is_stored = 0, True
    async with asyncio.timeout(WAIT_S):
        while is_stored:
            # With another time, so that it is not a repeat.
            number += 1
            position = {"lat": 50.0, "lon": 7.0, "time": began + number}
            await phone.publish("devices/ida/phone/position", msgspec.json.encode(position))
            stored = [value for _, value in pair.gateway.records("location")]
            is_stored = any(b"%d" % (began + number) in value for value in stored)
            await asyncio.sleep(0)
    await phone.close()


async def test_what_a_phone_repeats_at_a_worker_without_views_is_stored_once(pair: Pair) -> None:
    payload = b'{"lat":50.7,"lon":7.1,"time":%d}' % now_ms()
    for worker, is_repeated in ((pair.gateway, False), (pair.edge, True)):
        phone = await RawClient.connect(worker.port, "kim")
        phone.writer.write(
            encode_publish(4, "devices/ada/kim/position", payload, 1, False, is_repeated, 1)
        )
        await phone.read_until(lambda one=phone: bool(one.of(PacketType.PUBACK)))
        phone.writer.close()
    devices = [key for key, _ in pair.gateway.records("location")]
    assert devices.count(b"ada/kim") == 1


async def test_each_of_many_workers_takes_its_part_of_packets_that_do_not_come_whole(
    pair: Pair,
) -> None:
    packet = encode_publish(4, "devices/ada/x/note", bytes(260_000), 1, False, False, 1)
    for worker in pair:
        halves = [await RawClient.connect(worker.port, f"half{number}") for number in range(5)]
        ends = [asyncio.ensure_future(half.reader.read()) for half in halves]
        for half in halves:
            half.writer.write(packet[:-1])
        cut, _ = await asyncio.wait(ends, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        assert cut
        for half in halves:
            half.writer.close()
        await asyncio.gather(*ends, return_exceptions=True)


async def test_a_session_that_was_kept_by_one_worker_goes_on_at_the_other(pair: Pair) -> None:
    phones: list[PahoClient] = []
    for number, worker in enumerate((pair.edge, pair.gateway, pair.edge)):
        phone = PahoClient(worker.port, "tracker", clean_session=False)
        phone.client.reconnect_delay_set(60, 60)
        _, present = await phone.connect("una")
        assert present == bool(number)
        if number:
            async with asyncio.timeout(WAIT_S):
                await phones[-1].disconnected.get()
        phones.append(phone)
    for phone in phones:
        await phone.close()


@pytest.mark.parametrize("killed", ["edge", "gateway"])
async def test_a_message_waits_for_a_client_that_is_away_since_before_its_worker_was_killed(
    pair: Pair, killed: str
) -> None:
    worker, other = (pair.edge, pair.gateway) if killed == "edge" else pair
    topic = f"devices/ora/{killed}/note"
    phone = PahoClient(worker.port, killed, clean_session=False)
    await phone.connect("ora")
    await phone.subscribe(topic)
    await phone.close()
    key = f"session\0ora\0{killed}".encode()
    await eventually(lambda: b"note" in dict(pair.gateway.records("mqtt-state")).get(key, b""))
    worker.kill()
    worker.http = "127.0.0.1:0"  # a worker without views reports "none"
    worker.start()
    sender = await client(other, "ora", "sender")
    reader = await client(worker, "ora", "reader")
    # Subscriptions become known in order, so that of the absent client is known before this one.
    await reader.subscribe("devices/ora/x/probe")
    await it_comes(sender, reader, "devices/ora/x/probe")
    await sender.publish(topic, "news")
    # The other worker has the message only if the worker that keeps the session has passed it on.
    phone = PahoClient(other.port, killed, clean_session=False)
    assert (await phone.connect("ora"))[1] is True
    assert (await phone.message()).payload == b"news"
    for each in (phone, sender, reader):
        await each.close()


async def test_clients_of_all_workers_hear_each_other_again_after_a_restart_of_the_gateway(
    pair: Pair,
) -> None:
    phone = await client(pair.edge, "lea", "phone")
    await phone.subscribe("devices/lea/+/call")
    laptop = await client(pair.gateway, "lea", "laptop")
    await it_comes(laptop, phone, "devices/lea/phone/call")
    await laptop.close()
    pair.gateway.kill()
    pair.gateway.start()
    laptop = await client(pair.gateway, "lea", "laptop")
    await laptop.subscribe("devices/lea/+/note")
    await it_comes(laptop, phone, "devices/lea/phone/call")
    await it_comes(phone, laptop, "devices/lea/phone/note")
    await laptop.close()
    await phone.close()
