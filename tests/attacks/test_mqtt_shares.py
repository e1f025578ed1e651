"""One user against shared memory of the MQTT listener: other users are not affected."""

from __future__ import annotations

import asyncio

from gateway.mqtt.listening.options import within_machine
from gateway.mqtt.packets.encoder import encode_publish
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import PacketType, ReasonCode
from gateway.mqtt.sessions.router import Router
from gateway.mqtt.settings import Settings
from tests.attacks.test_mqtt_qos_2 import RawClient
from tests.gateway.mqtt.in_memory import (
    PahoClient,
    Platform,
    User,
    Wire,
    eventually,
    new_router,
    split_packets,
)
from tests.gateway.mqtt.journal_worker import Log, Worker, payloads
from tests.gateway.mqtt.journal_worker import publish as publish_to_router
from tests.gateway.mqtt.workers.test_workers import connected, workers

EVE, ADA = User("eve"), User("ada")


def away(router: Router, name: str, user: User, topic: str) -> None:
    """Have a client subscribe and vanish."""
    wire = Wire(router)
    wire.connect(name, user, clean=False)
    wire.subscribe(topic)
    wire.lose()


def test_sessions_without_number_and_messages_for_each_cost_one_user_his_own() -> None:
    router = new_router(
        Settings(offline_sessions_per_user_max=100, held_bytes_per_user_max=1024 * 1024)
    )
    note = "devices/{}/phone/note"
    away(router, "phone", ADA, note.format("ada"))
    for number in range(2_000):
        away(router, f"e{number}", EVE, note.format("eve"))
    for number in range(1_000):
        for user in (EVE, ADA):
            topic = note.format(user.user)
            router.publish(Message(topic, b"%04d" % number + bytes(96), 1), None, 0.0)
    assert router.offline_sessions() == 101
    assert router.counters["sessions_evicted"] == 1_900
    # Eve's newest sessions are kept; the messages that wait for all of them are bounded.
    assert ("eve", "e1999") in router.sessions and ("eve", "e1899") not in router.sessions
    assert router.accounts.of("eve").account.held <= 1024 * 1024
    assert router.accounts.held_bytes <= 1024 * 1024 + 1_000 * 300
    assert router.sessions[("ada", "phone")].queued() == 1_000
    # All charged bytes are released in the end.
    for session in list(router.sessions.values()):
        router.end(session)
    assert not router.accounts.held_bytes and not router.accounts.users
    assert not router.accounts.subscriptions.used


def test_a_client_that_reads_gets_its_messages_however_much_waits_for_others_of_its_user() -> None:
    router = new_router(Settings(held_bytes_per_user_max=10_000))
    topic = "devices/eve/phone/note"
    away(router, "away", EVE, topic)
    reader = Wire(router)
    reader.connect("reader", EVE)
    reader.subscribe(topic)
    for number in range(200):
        router.publish(Message(topic, bytes(100), 1), None, 0.0)
        for _, body in split_packets(reader.received()):
            reader.send(b"\x40\x02" + body[2 + len(topic) : 4 + len(topic)])
        assert router.counters["deliveries"] >= number + 1
    assert router.accounts.of("eve").account.held <= 10_000


def test_retained_messages_of_one_user_push_out_his_own_oldest() -> None:
    log = Log()
    worker = Worker(log, "a")
    worker.router = new_router(
        Settings(retained_messages_per_user_max=50, retained_bytes_per_user_max=100_000)
    )
    worker.router.keep(worker.journal, 0.0)
    router = worker.router
    publisher = {}
    for user in (ADA, EVE):
        wire = publisher[user] = Wire(router)
        wire.connect("c", user)

    def retain(user: User, name: str, size: int = 10) -> None:
        topic = f"devices/{user.user}/{name}/sign"
        (packet,) = publisher[user].send(encode_publish(4, topic, bytes(size), 1, True, False, 1))
        publisher[user].connection.acknowledge(packet, 0, 0.0)

    retain(ADA, "phone")
    for number in range(1_000):
        retain(EVE, f"d{number}")
    assert len(router.retained) == 51
    assert router.retained.get("devices/ada/phone/sign") is not None
    assert router.retained.get("devices/eve/d999/sign") is not None
    assert router.retained.get("devices/eve/d949/sign") is None
    for number in range(20):
        retain(EVE, f"large{number}", 20_000)
    assert router.retained.size_bytes < 110_000
    assert router.retained.get("devices/ada/phone/sign") is not None
    # Evicted messages are removed from the log, too: the next start does not read them again.
    kept = {record.key() for record in log.compacted() if record.value() is not None}
    assert len([key for key in kept if key.startswith(b"retained")]) == len(router.retained)


def test_when_all_retain_too_much_whoever_has_most_gives_way() -> None:
    router = new_router(Settings(retained_bytes_max=200_000, retained_bytes_per_user_max=100_000))
    router.publish(Message("devices/ada/phone/sign", bytes(100), 1, True), None, 0.0, "ada")
    for number in range(2_000):
        user = f"eve{number % 4}"
        message = Message(f"devices/{user}/{number}/sign", bytes(1_000), 1, True)
        router.publish(message, None, 0.0, user)
    assert router.retained.size_bytes <= 200_000
    assert router.retained.get("devices/ada/phone/sign") is not None


def test_subscriptions_beyond_the_share_are_refused_and_others_subscribe() -> None:
    router = new_router(Settings(subscription_bytes_per_user_max=50_000))
    codes = []
    for number in range(3):
        wire = Wire(router)
        wire.connect(f"e{number}", EVE, version=5)
        for each in range(20):
            deep = "/".join(["devices/eve", *(["+"] * (5 + each % 3)), str(number), str(each)])
            codes.append(wire.subscribe(deep)[-1])
    assert codes[0] == 1 and codes[-1] == ReasonCode.QUOTA_EXCEEDED
    wire = Wire(router)
    wire.connect("a", ADA, version=5)
    assert wire.subscribe("devices/ada/#")[-1] == 1


def test_filters_that_no_record_could_hold_are_refused() -> None:
    router = new_router(Settings(filter_bytes_per_session_max=1_000))
    wire = Wire(router)
    wire.connect("e", EVE, version=5)
    long = "devices/eve/" + "x" * 80
    codes = [wire.subscribe(f"{long}/{number}")[-1] for number in range(15)]
    assert codes.count(1) == 10 and set(codes[10:]) == {ReasonCode.QUOTA_EXCEEDED}


async def test_connections_and_wills_beyond_the_share_are_refused() -> None:
    settings = Settings(connections_per_user_max=3, held_bytes_per_user_max=20_000)
    async with Platform().listening(settings) as platform:
        port = platform.server.endpoint.port
        ours = [PahoClient(port, f"e{n}", version=5) for n in range(4)]
        codes = [(await client.connect("eve"))[0].value for client in ours[:3]]
        assert codes == [0, 0, 0]
        ours[3].client.reconnect_delay_set(60, 60)
        assert (await ours[3].connect("eve"))[0].value == ReasonCode.QUOTA_EXCEEDED
        other = PahoClient(port, "a", version=5)
        other.client.will_set("devices/ada/phone/gone", bytes(100))
        assert (await other.connect("ada"))[0].value == 0
        await ours[0].close()
        await eventually(lambda: platform.server.gauge("connections") <= 4)
        again = PahoClient(port, "e5", version=5)
        again.client.reconnect_delay_set(60, 60)
        again.client.will_set("devices/eve/phone/gone", bytes(30_000))
        assert (await again.connect("eve"))[0].value == ReasonCode.QUOTA_EXCEEDED
        for client in (*ours[1:], other, again):
            await client.close()
        assert platform.server.counters["connects_beyond_share"] == 2


async def test_what_one_user_has_under_way_to_the_log_stops_reading_only_that_user() -> None:
    settings = Settings(publish_bytes_in_flight_per_user_max=1_000_000)
    platform = Platform()
    platform.log.hold = True
    async with platform.listening(settings):
        port = platform.server.endpoint.port
        eve = await RawClient.connect(port, "eve")  # RawClient always signs in as ada
        topic = "devices/ada/phone/position"
        for number in range(1, 21):
            payload = b"{" + b" " * 200_000
            eve.writer.write(encode_publish(4, topic, payload, 1, False, False, number))
        await eventually(lambda: len(platform.log.waiting) == 5)
        await asyncio.sleep(0.1)
        assert len(platform.log.waiting) == 5
        other = PahoClient(port, "other")
        await other.connect("bob")
        other.client.publish("devices/bob/phone/position", '{"lat":1,"lon":2}', 1)
        await eventually(lambda: len(platform.log.fixes) == 1)
        platform.log.hold = False
        platform.log.confirm()
        await other.published.get()
        await eve.read_until(lambda: len(eve.of(PacketType.PUBACK)) == 20)
        eve.writer.close()
        await other.close()


async def test_packets_that_never_come_whole_are_cut_beyond_the_share_of_their_user() -> None:
    settings = Settings(incomplete_bytes_per_user_max=250_000)
    async with Platform().listening(settings) as platform:
        port = platform.server.endpoint.port
        large = encode_publish(4, "devices/ada/phone/x", bytes(200_000), 1, False, False, 1)
        counters, shares = platform.server.counters, platform.server.router.accounts.incomplete
        halves = []
        for number in range(5):
            half = await RawClient.connect(port, f"e{number}")  # RawClient always signs in as ada
            half.writer.write(large[:100_000])
            await half.writer.drain()
            halves.append(half)
            expected = min(number + 1, 2)
            await eventually(
                lambda n=number, e=expected: (  # type: ignore[misc]
                    shares.held_by("ada") == e * 100_000
                    and counters["incomplete_beyond_share"] == max(0, n - 1)
                )
            )
        # A client whose packets are complete is served, and releases its share.
        bob = PahoClient(port, "other")
        await bob.connect("bob")
        bob.client.publish("devices/bob/phone/x", bytes(200_000), 1)
        await bob.published.get()
        await eventually(lambda: shares.held_by("bob") == 0)
        halves[1].writer.close()
        await eventually(lambda: shares.held_by("ada") == 100_000)
        halves[0].writer.write(large[100_000:])
        await halves[0].read_until(lambda: bool(halves[0].of(PacketType.PUBACK)))
        for each in halves:
            each.writer.close()
        await eventually(lambda: shares.used == 0)
        await bob.close()


async def test_strangers_that_send_half_a_connect_have_the_share_of_their_address() -> None:
    settings = Settings(incomplete_bytes_per_user_max=50_000)
    async with Platform().listening(settings) as platform:
        port = platform.server.endpoint.port
        head = b"\x10\xb0\xea\x01\0\4MQTT\4\x84\0\0"
        sockets = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + b"\x75\x30" + b"x" * 20_000)
            sockets.append((reader, writer))
        counters, shares = platform.server.counters, platform.server.router.accounts.incomplete
        await eventually(lambda: counters["incomplete_beyond_share"] == 2)
        assert 40_000 <= shares.used <= 50_000
        bob = PahoClient(port, "other")
        assert (await bob.connect("bob"))[0].value == 0
        for _, writer in sockets:
            writer.close()
        await eventually(lambda: shares.used == 0)
        await bob.close()


async def test_clients_that_read_nothing_are_cut_beyond_the_share_of_their_user() -> None:
    settings = Settings(unread_bytes_per_user_max=300_000)
    async with Platform().listening(settings) as platform:
        port = platform.server.endpoint.port
        bob = PahoClient(port, "other")
        await bob.connect("bob")
        await bob.subscribe("devices/bob/#")
        stalled = []
        for number in range(8):
            each = await RawClient.connect(port, f"e{number}")
            each.writer.write(b"\x82\x12\0\1\0\x0ddevices/ada/#\0")
            stalled.append(each)
        await eventually(lambda: platform.server.gauge("connections") == 9)
        counters, shares = platform.server.counters, platform.server.router.accounts.unread
        sender = await RawClient.connect(port, "sender")
        flood = encode_publish(4, "devices/ada/x", bytes(60_000), 1, False, False, 1)
        # One at a time: many in one turn of the server may cut all of them.
        while not counters["unread_beyond_share"]:
            sender.packets.clear()
            sender.writer.write(flood)
            await sender.read_until(lambda: bool(sender.of(PacketType.PUBACK)))
        assert 0 < shares.held_by("ada") <= 300_000
        bob.client.publish("devices/bob/x", b"hello", 1)
        assert (await bob.message()).payload == b"hello"
        for each in (*stalled, sender):
            each.writer.transport.abort()
        await eventually(lambda: shares.used == 0)
        await bob.close()


def test_aliases_do_not_hold_a_megabyte_of_topics() -> None:
    wire = Wire(new_router())
    wire.connect("e", EVE, version=5)
    topic = "devices/eve/" + "x" * 5_000
    sent = b"".join(
        encode_publish(5, f"{topic}{alias}", b"", 0, False, False, 0, {35: alias})
        for alias in range(1, 5)
    )
    assert len(wire.send(sent)) == 3
    (packet,) = split_packets(wire.received())
    assert packet[0] >> 4 == PacketType.DISCONNECT and packet[1][0] == ReasonCode.QUOTA_EXCEEDED


def test_where_everybody_is_who_they_say_one_user_may_have_all() -> None:
    router = new_router(
        Settings(users_share=False, connections_max=10, offline_sessions_per_user_max=1)
    )
    for number in range(10):
        wire = Wire(router)
        wire.connect(f"c{number}", EVE, clean=False)
    assert sum(each.connection is not None for each in router.sessions.values()) == 10


def test_each_of_three_workers_has_its_part() -> None:
    alone, one = within_machine(Settings()), within_machine(Settings(workers=3))
    for name in ("held_bytes_per_user_max", "held_bytes_max", "offline_sessions_per_user_max"):
        assert getattr(one, name) * 3 - getattr(alone, name) in range(3)
    assert one.retained_messages_per_user_max == alone.retained_messages_per_user_max


async def test_retained_messages_of_one_user_are_bounded_over_all_workers() -> None:
    async with workers(3) as running:
        for worker in running:
            worker.server.router.retained._user_messages_max = 20
        publishers = [await connected(worker, f"e{n}", "eve") for n, worker in enumerate(running)]
        other = await connected(running[0], "a", "ada")
        await other.publish("devices/ada/phone/sign", "1", retain=True)
        for number in range(60):
            client = publishers[number % 3]
            await client.publish(f"devices/eve/d{number}/sign", "1", retain=True)
        stores = [worker.server.router.retained for worker in running]
        await eventually(lambda: all(len(store) == 21 for store in stores))
        assert all(store.get("devices/ada/phone/sign") is not None for store in stores)
        for client in (*publishers, other):
            await client.close()


def test_what_is_restored_counts() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe("devices/alice/phone/note")
    wire.lose()
    for number in range(100):
        publish_to_router(first.router, b"%d" % number)
    first.turn()
    first.stop()
    second = Worker(log, "b")
    assert second.router.accounts.held_bytes == first.router.accounts.held_bytes > 0
    wire, _ = second.client()
    assert len(payloads(wire.first)) > 0  # type: ignore[attr-defined]
