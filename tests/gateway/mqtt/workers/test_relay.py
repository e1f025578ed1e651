"""Workers without views, and the gateway that sends them addresses."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.mqtt.packets.message import Message
from gateway.mqtt.requests import RelayUnavailable
from gateway.mqtt.workers.membership import DeduplicatingSubmitter, about_fixes
from gateway.mqtt.workers.relay import EVERYBODY, Relay, watched
from gateway.mqtt.workers.relay_client import RelayClient
from gateway.mqtt.workers.worker_hub import WorkerHub
from tests.consumers.running import Broker
from tests.gateway.mqtt.in_memory import PahoClient, address, eventually
from tests.gateway.mqtt.journal.test_restart import MqttGateway
from tests.gateway.records import MemoryLog, MemoryTelemetry, fix
from waylog.messages import decode_fix, encode
from waylog.process.background import end_on_failure


@pytest.mark.parametrize(
    ("topic_filter", "name"),
    [
        ("devices/ada/phone/address", "ada/phone"),
        ("owntracks/ada/phone/info", "ada/phone"),
        ("devices/ada/phone/#", "ada/phone"),
        ("devices/ada/phone/+", "ada/phone"),
        ("owntracks/ada/places/event", "ada/places"),
        ("devices/ada/+/address", "ada/"),
        ("owntracks/ada/#", "ada/"),
        ("owntracks/+/+", EVERYBODY),
        ("#", EVERYBODY),
        ("+/ada/phone/address", "ada/phone"),
        ("devices/ada/phone/position", None),
        ("owntracks/ada/phone", None),
        ("sensors/#", None),
        ("devices/ada", None),
    ],
)
def test_whose_addresses_a_filter_can_match(topic_filter: str, name: str | None) -> None:
    assert watched(topic_filter) == name


class Views:
    """The views on the gateway's side."""

    def __init__(self) -> None:
        self.addresses: dict[str, bytes] = {}
        self.known: set[tuple[str, str]] = set()

    def newest_raw(self, device: str) -> bytes | None:
        return self.addresses.get(device)

    def retained(self, topic_filter: str) -> Iterator[Message]:
        yield Message(topic_filter, b"retained", 1, True)

    def is_known(self, device: str, fix_id: str) -> bool:
        return (device, fix_id) in self.known


def relay_of(views: Views) -> Relay:
    loop = asyncio.get_running_loop()
    return Relay(views, views, WorkerHub(loop.call_later, views.is_known))


@contextlib.asynccontextmanager
async def relayed(
    path: Path, views: Views
) -> AsyncIterator[tuple[Relay, RelayClient, list[tuple[str, bytes]]]]:
    relay = relay_of(views)
    await relay.start(path)
    received: list[tuple[str, bytes]] = []

    def take(device: str, value: bytes) -> None:
        received.append((device, value))

    client = RelayClient(path, take, take, take)
    running = asyncio.create_task(client.run())
    await client.connected.wait()
    try:
        yield relay, client, received
    finally:
        running.cancel()
        await relay.close()


async def test_a_worker_gets_what_it_watches_and_nothing_else(tmp_path: Path) -> None:
    async with relayed(tmp_path / "relay", Views()) as (relay, client, received):
        client.watch(["devices/ada/phone/address", "owntracks/ada/phone/info"], True)
        client.watch(["devices/bob/+/address"], True)
        await eventually(lambda: len(relay._watchers) == 2)
        for device in ("ada/phone", "ada/bike", "bob/car", "eve/car"):
            relay.address_changed(device, device.encode())
        await eventually(lambda: len(received) == 2)
        assert received == [("ada/phone", b"ada/phone"), ("bob/car", b"bob/car")]
        client.watch(["devices/ada/phone/address"], False)
        client.watch(["owntracks/ada/phone/info", "devices/bob/+/address"], False)
        await eventually(lambda: not relay._watchers)


async def test_notices_and_arrivals_reach_the_workers_of_their_user(tmp_path: Path) -> None:
    async with relayed(tmp_path / "relay", Views()) as (relay, client, received):
        client.watch(["devices/ada/phone/notice", "owntracks/ada/places/event"], True)
        await eventually(lambda: len(relay._watchers) == 2)
        for device in ("eve/phone", "ada/bike", "ada/phone"):
            relay.noticed(device, b"notice")
        relay.arrived("eve/phone", b"transition")
        relay.arrived("ada/bike", b"transition")
        await eventually(lambda: len(received) == 2)
        assert received == [("ada/phone", b"notice"), ("ada/bike", b"transition")]


async def test_no_other_account_of_the_machine_may_open_the_relay(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with relayed(tmp_path / "relay", Views()):
            assert (tmp_path / "relay").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


async def test_a_worker_that_was_cut_off_gets_what_it_missed(tmp_path: Path) -> None:
    views = Views()
    path = tmp_path / "relay"
    async with relayed(path, views) as (relay, client, received):
        client.watch(["devices/ada/phone/address"], True)
        await eventually(lambda: len(relay._watchers) == 1)
        await relay.close()
        await eventually(lambda: not client.connected.is_set())
        with pytest.raises(RelayUnavailable):
            await client.request("known", "ada/phone", "1", user="ada")
        views.addresses["ada/phone"] = b"meanwhile"
        again = relay_of(views)
        await again.start(path)
        await eventually(lambda: received == [("ada/phone", b"meanwhile")])
        await again.close()


async def test_questions_are_answered(tmp_path: Path) -> None:
    views = Views()
    views.known.add(("ada/phone", "1"))
    async with relayed(tmp_path / "relay", views) as (_, client, _received):
        assert await client.request("known", "ada/phone", "1", user="ada") is True
        assert await client.request("known", "ada/phone", "2", user="ada") is False
        assert await client.request("retained", "a/b", "ada", user="ada") == [
            ["a/b", b"retained", None]
        ]


async def test_a_repeated_fix_is_asked_about_and_any_other_is_not(tmp_path: Path) -> None:
    views = Views()
    log = MemoryLog()
    async with relayed(tmp_path / "relay", views) as (_, client, _received):
        loop = asyncio.get_running_loop()
        submitter = DeduplicatingSubmitter(
            log, MemoryTelemetry(), loop, is_stored=about_fixes(client, "known")
        )
        submitter.submit_location(fix())
        assert len(log.appended) == 1
        log.acknowledge()
        stored = fix(id="another worker's")
        views.known.add((stored.device, stored.id))
        submitter.repeated = True
        receipt = submitter.submit_location(stored)
        await eventually(receipt.done)
        assert receipt.exception() is None
        assert len(log.appended) == 1 or len(log.appended) == 0
        new = submitter.submit_location(fix(id="nobody's"))
        await eventually(lambda: any(decode_fix(each[2]).id == "nobody's" for each in log.appended))
        assert not new.done()
        log.acknowledge()
        await eventually(new.done)


async def test_addresses_reach_clients_of_a_worker_without_views(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    relay = str(tmp_path / "relay.sock")
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    gateway = MqttGateway(
        folders[0], gateway_broker.address, "--workers-share-port", "--relay", relay
    )
    gateway.publish(address("eve/before", "Marktplatz 1, Bonn"))
    edge = MqttGateway(folders[1], gateway_broker.address, "--workers-share-port", "--edge", relay)
    try:
        phone = PahoClient(edge.port, "phone")
        await phone.connect("eve")
        topic = "devices/eve/phone/position"
        position: dict[str, Any] = {"lat": 50.73, "lon": 7.1, "time": 1_761_994_805_000}
        assert await phone.publish(topic, msgspec.json.encode(position)) == 0
        await phone.subscribe("devices/eve/+/address")
        message = await phone.message()
        assert message.topic == "devices/eve/before/address" and message.retain
        gateway.publish(address("eve/phone"))
        message = await phone.message()
        assert message.topic == "devices/eve/phone/address"
        assert message.payload == encode(address("eve/phone"))
        # Messages between clients cross, too, in both directions.
        laptop = PahoClient(gateway.port, "laptop")
        await laptop.connect("eve")
        await laptop.subscribe("devices/eve/+/note")
        await phone.subscribe("devices/eve/+/call")
        for sender, reader, last in ((phone, laptop, "note"), (laptop, phone, "call")):
            await _until_it_comes(sender, reader, f"devices/eve/phone/{last}")
        await laptop.close()
        await phone.close()
    finally:
        edge.close()
        gateway.close()


async def _until_it_comes(sender: PahoClient, reader: PahoClient, topic: str) -> None:
    """Publish until it arrives: other workers know a subscription a moment after its SUBACK."""
    async with asyncio.timeout(60):
        while reader.messages.empty():
            await sender.publish(topic, "?")
            await asyncio.sleep(0.02)
    assert (await reader.message()).topic == topic


async def test_a_frame_that_cannot_be_handled_ends_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The frames behind it are lost, and with them messages that have been acknowledged.
    class FailingViews(Views):
        def is_known(self, device: str, fix_id: str) -> bool:
            raise KeyError("nobody has thought of this")

    ended: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), ended.append)
    async with relayed(tmp_path / "relay", FailingViews()) as (_, client, _):
        asking = asyncio.ensure_future(client.request("known", "ada/phone", "1", user="ada"))
        await eventually(lambda: len(ended) == 1)
        asking.cancel()
    assert "the relay between workers failed; this process ends" in caplog.text


@pytest.mark.parametrize("found_before", [0, 1, 250])
async def test_a_search_that_fails_has_an_empty_answer_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, found_before: int
) -> None:
    class FailingViews(Views):
        def retained(self, topic_filter: str) -> Iterator[Message]:
            if topic_filter != "odd":
                yield from super().retained(topic_filter)
                return
            for number in range(found_before):
                yield Message(f"a/{number}", b"", 1, True)
            raise KeyError("nobody has thought of this")

    class FailingAtOnce(FailingViews):
        def retained(self, topic_filter: str) -> Iterator[Message]:
            if topic_filter == "odd":
                raise KeyError("nobody has thought of this")
            return super().retained(topic_filter)

    ended: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), ended.append, callbacks_of=("gateway", "waylog"))
    views = FailingViews() if found_before else FailingAtOnce()
    async with relayed(tmp_path / "relay", views) as (_, client, _):
        odd, good = await asyncio.gather(
            client.request("retained", "odd", "eve", user="eve"),
            client.request("retained", "a/b", "ada", user="ada"),
        )
        assert odd == []
        assert good == [["a/b", b"retained", None]]
        assert await client.request("retained", "odd", "eve", user="eve") == []
    assert not ended
    assert caplog.text.count("the search for what is retained for 'odd' has failed") == 1


async def test_an_answer_fits_into_a_frame(tmp_path: Path) -> None:
    class LargeViews(Views):
        def retained(self, topic_filter: str) -> Iterator[Message]:
            payload = bytes(256 * 1024)
            for number in range(300):
                yield Message(f"a/{number}", payload, 1, True)

    async with relayed(tmp_path / "relay", LargeViews()) as (_, client, _):
        found = await client.request("retained", "a/#", "ada", user="ada")
        assert 100 < len(found) < 200
        assert len(await client.request("retained", "a/#", "ada", user="ada")) == len(found)
