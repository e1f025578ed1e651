"""The bridge between an MQTT cluster and the log, with a real Mosquitto and our own listener."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.bridge.cluster import Cluster, ClusterSettings
from gateway.bridge.inbound import Inbound
from gateway.bridge.outbound import Outbound
from gateway.limits.token_buckets import TokenBuckets
from gateway.mqtt.rights.acl import AccessRules
from gateway.users.admission import Admission
from gateway.users.rights import USUAL_RIGHTS, Rights
from gateway.users.sender_devices import SenderDevices
from tests.gateway.mqtt.in_memory import (
    MemoryLog,
    PahoClient,
    Platform,
    User,
    Users,
    address,
    eventually,
)
from tests.ports import reserved_ports
from waylog.config import Endpoint
from waylog.messages import encode

FILTERS = ("owntracks/+/+", "devices/+/+/position")
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/bin")


def location(number: int) -> bytes:
    return msgspec.json.encode(
        {"_type": "location", "lat": 50.73, "lon": 7.1, "tst": 1761994805 + number, "tid": "ph"}
    )


@contextlib.asynccontextmanager
async def mosquitto(folder: Path) -> AsyncIterator[int]:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed: apt-get install mosquitto")
    (port,) = reserved_ports(1)
    configuration = folder / "mosquitto.conf"
    configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n")
    process = await asyncio.create_subprocess_exec(
        MOSQUITTO,
        "-c",
        str(configuration),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    await asyncio.sleep(0.02)
        writer.close()
        yield port
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def own_listener(_folder: Path) -> AsyncIterator[int]:
    class Everybody(Users):
        async def authenticate(self, user: str, password: str, address: str = "") -> User | None:
            return User(user, admin=True)

    class Everything(AccessRules):
        def may_publish(self, identity: Any, topic: str) -> bool:
            return True

    async with Platform(users=Everybody()).listening(rules=Everything()) as platform:
        yield platform.server.endpoint.port


CLUSTERS = pytest.mark.parametrize("cluster", [mosquitto, own_listener])
VERSIONS = pytest.mark.parametrize("version", [4, 5])


class Bridge:
    """A bridge without its Kafka clients."""

    def __init__(self, port: int, gate: tuple[Any, ...] = (), **options: Any) -> None:
        loop = asyncio.get_running_loop()
        self.log = MemoryLog()
        self.outbound = Outbound(self._publish, "seen")
        self.inbound = Inbound(self.log, loop, lambda: 1_761_994_900_000, self.outbound.seen, *gate)
        settings = ClusterSettings(
            Endpoint("127.0.0.1", port), "bridge", FILTERS, user="bridge", **options
        )
        self.cluster = Cluster(settings, loop, self.inbound.take)
        self.inbound.cluster = self.cluster

    def _publish(self, topic: str, payload: bytes, *, retain: bool) -> bool:
        return self.cluster.publish(topic, payload, retain=retain)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Bridge]:
        self.cluster.start()
        try:
            async with asyncio.timeout(60):
                await self.cluster.ready.wait()
            yield self
        finally:
            self.inbound.close()
            await self.cluster.close()


@contextlib.asynccontextmanager
async def phone(port: int, name: str = "phone") -> AsyncIterator[PahoClient]:
    client = PahoClient(port, name)
    await client.connect("ada")
    try:
        yield client
    finally:
        await client.close()


@CLUSTERS
@VERSIONS
async def test_what_the_cluster_has_goes_into_the_log(
    tmp_path: Path, cluster: Any, version: int
) -> None:
    async with cluster(tmp_path) as port, Bridge(port, version=version).running() as bridge:
        async with phone(port) as client:
            for number in range(5):
                await client.publish("owntracks/ada/phone", location(number))
            await client.publish("devices/ada/bike/position", b'{"lat":50,"lon":7}')
            await client.publish("owntracks/ada/phone", b"rubbish")
        # Our own listener does not pass on messages that it has rejected itself.
        rejected = 1 if cluster is mosquitto else 0
        await eventually(lambda: bridge.inbound.counters["messages"] == 6 + rejected)
        await eventually(lambda: len(bridge.log.rejected) == rejected)
        devices = [fix.device for fix in bridge.log.fixes]
        assert devices == ["ada/phone"] * 5 + ["ada/bike"]
        assert [fix.time for fix in bridge.log.fixes[:5]] == [
            (1761994805 + number) * 1000 for number in range(5)
        ]


@CLUSTERS
@VERSIONS
async def test_what_was_not_appended_is_delivered_again(
    tmp_path: Path, cluster: Any, version: int
) -> None:
    async with cluster(tmp_path) as port, Bridge(port, version=version).running() as bridge:
        bridge.log.broken = True
        async with phone(port) as client:
            await client.publish("owntracks/ada/phone", location(1))
            await eventually(lambda: bridge.inbound.counters["failed"] == 1)
            bridge.log.broken = False
            await eventually(lambda: bridge.inbound.counters["appended"] == 1)
            await client.publish("owntracks/ada/phone", location(2))
            await eventually(lambda: bridge.inbound.counters["appended"] == 2)
        assert bridge.cluster.connections == 2


async def test_however_often_the_log_refuses_what_it_refused_is_delivered_again(
    tmp_path: Path,
) -> None:
    async with own_listener(tmp_path) as port, Bridge(port).running() as bridge, phone(port) as ada:
        for number in range(1, 4):
            bridge.log.broken = True
            await ada.publish("owntracks/ada/phone", location(number))
            await reached(bridge, "failed", number)
            bridge.log.broken = False
            await reached(bridge, "appended", number)


async def reached(bridge: Bridge, counter: str, count: int) -> None:
    await eventually(lambda: bridge.inbound.counters[counter] == count)


async def test_what_is_nothing_for_the_log_keeps_nothing_back(tmp_path: Path) -> None:
    async with own_listener(tmp_path) as port:
        bridge = Bridge(port, in_flight_max=5)
        async with bridge.running(), phone(port) as client:
            for _ in range(10):
                await client.publish("owntracks/ada/", b"of no device")
            await client.publish("owntracks/ada/phone", location(1))
            await eventually(lambda: len(bridge.log.fixes) == 1)
        assert bridge.inbound.counters["ignored"] == 10


async def test_a_message_of_several_fixes_is_acknowledged_when_the_log_has_all(
    tmp_path: Path,
) -> None:
    both = msgspec.json.encode([{"lat": 50, "lon": 7, "time": each} for each in (1761994805, 6)])
    async with own_listener(tmp_path) as port:
        first = Bridge(port)
        first.log.hold = True
        async with first.running(), phone(port) as client:
            await client.publish("devices/ada/phone/position", both)
            await eventually(lambda: len(first.log.waiting) == 2)
            first.log.confirm(1)
        assert first.inbound.counters["appended"] == 0
        async with Bridge(port).running() as second:
            await eventually(lambda: second.inbound.counters["appended"] == 1)
        assert len(second.log.fixes) == 2


async def test_quotas_of_our_own_hold_for_what_the_cluster_delivers(tmp_path: Path) -> None:
    rights = {"ada": Rights(fixes_per_minute=3), "eve": Rights(may_send=False)}
    async with own_listener(tmp_path) as port:
        buckets = TokenBuckets(clock=lambda: 1.0)
        admission = Admission(buckets, SenderDevices(None, b"waylog"), None)
        gate = lambda user: rights.get(user, USUAL_RIGHTS), admission
        bridge = Bridge(port, gate)
        async with bridge.running(), phone(port) as client:
            for number in range(5):
                await client.publish("owntracks/ada/phone", location(number))
            await client.publish("owntracks/eve/phone", location(7))
            await client.publish("owntracks/bob/phone", location(8))
            await eventually(lambda: bridge.inbound.counters["appended"] == 7)
        assert [fix.user for fix in bridge.log.fixes] == ["ada"] * 3 + ["bob"]
        reasons = [(each.user, each.reason) for each in bridge.log.rejected]
        assert reasons == [
            ("ada", "ada may send 3 fixes a minute"),
            ("ada", "ada may send 3 fixes a minute"),
            ("eve", "no right to publish to this topic"),
        ]


@CLUSTERS
async def test_nothing_is_lost_while_the_bridge_is_away(tmp_path: Path, cluster: Any) -> None:
    async with cluster(tmp_path) as port:
        async with Bridge(port).running():
            pass
        async with phone(port) as client:
            for number in range(20):
                await client.publish("owntracks/ada/phone", location(number))
        async with Bridge(port).running() as bridge:
            await eventually(lambda: len(bridge.log.fixes) == 20)
            assert bridge.inbound.counters["failed"] == 0


@CLUSTERS
async def test_what_was_not_acknowledged_comes_to_the_next_bridge(
    tmp_path: Path, cluster: Any
) -> None:
    async with cluster(tmp_path) as port:
        first = Bridge(port)
        first.log.hold = True
        async with phone(port) as client:
            async with first.running():
                for number in range(10):
                    await client.publish("owntracks/ada/phone", location(number))
                await eventually(lambda: len(first.log.fixes) == 10)
                first.log.confirm(4)
                await eventually(lambda: first.inbound.counters["appended"] == 4)
            # Mosquitto reads one packet of each connection in turn, and discards what it has not
            # read when a client reconnects: four acknowledgements and DISCONNECT take five turns.
            for _ in range(10):
                await client.publish("elsewhere", b"")
        async with Bridge(port).running() as second:
            await eventually(lambda: len(second.log.fixes) == 6)
            assert {fix.time for fix in second.log.fixes} == {
                (1761994805 + number) * 1000 for number in range(4, 10)
            }


class Record:
    """A record of topic `address`."""

    def __init__(self, device: str) -> None:
        self._device = device

    def key(self) -> bytes:
        return self._device.encode()

    def value(self) -> bytes:
        return encode(address(self._device))


@CLUSTERS
async def test_addresses_go_back_to_the_devices_that_came_by_the_bridge(
    tmp_path: Path, cluster: Any
) -> None:
    async with (
        cluster(tmp_path) as port,
        Bridge(port).running() as bridge,
        phone(port) as client,
    ):
        await client.publish("owntracks/ada/phone", location(1))
        await eventually(lambda: len(bridge.log.fixes) == 1)
        bridge.outbound.on_records([Record("ada/phone"), Record("bob/phone")])
        await client.subscribe("#")
        received = [await client.message(), await client.message()]
        by_topic = {message.topic: msgspec.json.decode(message.payload) for message in received}
        assert set(by_topic) == {"devices/ada/phone/address", "owntracks/ada/phone/info"}
        assert by_topic["devices/ada/phone/address"]["display_name"] == "Kaiserplatz 4, Bonn"
        assert by_topic["owntracks/ada/phone/info"]["_type"] == "card"


def test_addresses_wait_for_a_connection_the_newest_of_each_device() -> None:
    sent: list[str] = []
    connected = False

    def publish(topic: str, payload: bytes, *, retain: bool) -> bool:
        if connected:
            sent.append(topic)
        return connected

    outbound = Outbound(publish, "all")
    outbound.on_records([Record("ada/phone"), Record("bob/phone"), Record("ada/phone")])
    assert not sent
    connected = True
    outbound.send_waiting()
    assert [topic for topic in sent if topic.startswith("devices")] == [
        "devices/bob/phone/address",
        "devices/ada/phone/address",
    ]
    outbound.send_waiting()
    assert len(sent) == 4


def test_of_an_erased_device_the_cluster_retains_nothing() -> None:
    retained: dict[str, bytes] = {}

    def publish(topic: str, payload: bytes, *, retain: bool) -> bool:
        retained[topic] = payload
        return retain

    outbound = Outbound(publish, "all")
    outbound.on_records([Record("ada/phone"), Record("bob/phone")])
    # A record with key `ada` is for the user's data that belongs to no device.
    outbound.on_erasures([Record("ada"), Record("ada/phone")])
    assert {topic: bool(payload) for topic, payload in retained.items()} == {
        "devices/ada/phone/address": False,
        "owntracks/ada/phone/info": False,
        "devices/bob/phone/address": True,
        "owntracks/bob/phone/info": True,
    }


def test_an_address_that_cannot_be_published_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent: list[str] = []

    def publish(topic: str, payload: bytes, *, retain: bool) -> bool:
        if "+" in topic:
            raise ValueError("Publish topic cannot contain wildcards.")  # as paho does
        sent.append(topic)
        return True

    outbound = Outbound(publish, "all")
    outbound.on_records([Record("ada/+"), Record("bob/phone")])
    assert sent == ["devices/bob/phone/address", "owntracks/bob/phone/info"]
    assert (outbound.published, outbound.dropped) == (1, 1)
    assert "the address of 'ada/+' cannot be published and is left out" in caplog.text


def test_many_addresses_that_wait_go_out_as_readily_each_as_few() -> None:
    connected = False
    outbound = Outbound(lambda *_, **__: connected, "all")

    def seconds_each(count: int) -> float:
        nonlocal connected
        connected = False
        outbound.on_erasures([Record(f"ada/{number}") for number in range(count)])
        connected = True
        began = time.thread_time()
        outbound.send_waiting()
        return (time.thread_time() - began) / count

    few = seconds_each(2_000)
    assert seconds_each(100_000) < 10 * few


class Retaining:
    """A cluster whose client accepts `takes` more messages; `retained` is what it keeps."""

    def __init__(self, takes: int = 1000) -> None:
        self.takes = takes
        self.retained: dict[str, bytes] = {}

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> bool:
        if not self.takes:
            return False
        self.takes -= 1
        assert retain
        self.retained[topic] = payload
        return True


@pytest.mark.parametrize(
    ("which", "devices"), [("seen", {"ada/phone"}), ("all", {"ada/phone", "bob/phone"})]
)
def test_of_devices_that_have_not_come_by_the_bridge_nothing_is_told_unless_it_is_asked_for(
    which: Any, devices: set[str]
) -> None:
    cluster = Retaining()
    outbound = Outbound(cluster.publish, which)
    outbound.seen("ada/phone")
    outbound.on_records([Record("ada/phone"), Record("bob/phone")])
    assert {"/".join(topic.split("/")[1:3]) for topic in cluster.retained} == devices


def test_a_connection_that_ends_between_address_and_card_loses_neither() -> None:
    cluster = Retaining(takes=1)
    outbound = Outbound(cluster.publish, "all")
    outbound.on_records([Record("ada/phone")])
    cluster.takes = 1000
    outbound.send_waiting()
    assert all(cluster.retained.values()) and len(cluster.retained) == 2
    cluster.retained.clear()
    outbound.on_records([Record("ada/phone")])
    # The card is not sent again for the same street.
    assert list(cluster.retained) == ["devices/ada/phone/address"]
    cluster.takes = 1
    outbound.on_erasures([Record("ada/phone")])
    cluster.takes = 1000
    outbound.send_waiting()
    assert not any(cluster.retained.values())
    # After an erasure the card is sent again, for the same street too.
    outbound.on_records([Record("ada/phone")])
    assert all(cluster.retained.values())
