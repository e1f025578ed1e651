"""A restarted gateway still knows what it knew, however much the log holds."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.consumers.running import Broker, Process
from tests.gateway.running import Gateway, Login, json_of
from waylog.kafka.clients import ensure_topics
from waylog.messages import decode_fix
from waylog.observability.telemetry import now_ms
from waylog.sealing.sealing import ENVIRONMENT
from waylog.sealing.value_encryption import ensure_master_key

NOW = now_ms()
HOUR = 3_600_000
#: Far fewer than the fixes that are sent.
TAIL = ("--view-tail", "5")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """Yield a gateway on a log of its own."""
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    ensure_topics(broker.address)
    running = Gateway(tmp_path, broker.address, *TAIL)
    yield running
    running.close()
    broker.process.stop()


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(1500):
        if await condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail(what)


async def send(gateway: Gateway, user: Login, *positions: dict[str, object]) -> None:
    """Send fixes."""
    async with gateway.client(user) as client:
        await json_of(await client.post("/v1/positions", json=list(positions)))


async def newest(gateway: Gateway, user: Login, device: str) -> dict[str, Any] | None:
    async with gateway.client(user) as client:
        answer = await client.get(f"/v1/devices/{user.name}%2F{device}")
        found = await answer.json()
        return found["fix"] if answer.status == 200 else None


async def is_newest(gateway: Gateway, user: Login, device: str, time: int) -> None:
    async def there() -> bool:
        fix = await newest(gateway, user, device)
        return fix is not None and fix["time"] == time

    await until(there, f"the newest fix of {device} is not that of {time}")


def times_in_the_log(gateway: Gateway, device: str) -> list[int]:
    return [
        decode_fix(value).time
        for key, value in gateway.records("location")
        if key == device.encode()
    ]


def busy(count: int) -> list[dict[str, object]]:
    """Return fixes of many other devices, in all partitions."""
    return [
        {"device": f"d{number % 50}", "lat": 1, "lon": 2, "time": NOW + number}
        for number in range(count)
    ]


@pytest.mark.parametrize("orderly", [True, False])
async def test_the_newest_fix_and_the_ids_of_a_device_survive_a_restart(
    gateway: Gateway, orderly: bool
) -> None:
    ada, eve = gateway.user("ada"), gateway.user("eve")
    sent = [{"device": "phone", "lat": 47, "lon": 9, "time": NOW + n} for n in range(20)]
    await send(gateway, ada, *sent)
    await send(gateway, eve, *busy(1000))
    await is_newest(gateway, ada, "phone", NOW + 19)
    await is_newest(gateway, eve, "d49", NOW + 999)
    if orderly:
        assert gateway.process.stop() == 0
    else:
        gateway.kill()
    gateway.start()
    await is_newest(gateway, ada, "phone", NOW + 19)
    # A phone that was without a network repeats what it has sent, and sends what it kept.
    late = {"device": "phone", "lat": 1, "lon": 2, "time": NOW - HOUR}
    await send(gateway, ada, *sent, late)
    await send(gateway, eve, *busy(1000))
    await until(
        lambda: asyncio.to_thread(
            lambda: NOW - HOUR in times_in_the_log(gateway, f"{ada.name}/phone")
        ),
        "the late fix is not in the log",
    )
    found = await newest(gateway, ada, "phone")
    assert found is not None
    assert found["time"] == NOW + 19
    assert sorted(times_in_the_log(gateway, f"{ada.name}/phone")) == [
        NOW - HOUR,
        *range(NOW, NOW + 20),
    ]
    assert len(gateway.records("location")) == 1021


def publish(where: str, login: Login, device: str, *positions: dict[str, object]) -> None:
    """Publish over MQTT, each after the acknowledgement of the one before, without DUP."""
    host, _, port = where.rpartition(":")
    client = paho.Client(CallbackAPIVersion.VERSION2, f"{device}-{now_ms()}")
    client.username_pw_set(*login)
    client.connect(host, int(port))
    client.loop_start()
    for position in positions:
        topic = f"devices/{login.name}/{device}/position"
        sent = client.publish(topic, json.dumps(position), qos=1)
        sent.wait_for_publish(60)
        assert sent.is_published()
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_repetition_is_stored_once_whichever_worker_it_comes_to_after_a_restart(
    tmp_path: Path, orderly: bool
) -> None:
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    ensure_topics(broker.address)
    relay = str(tmp_path / "relay.sock")
    gateway = Gateway(
        *(tmp_path, broker.address, *TAIL, "--mqtt", "127.0.0.1:0"),
        *("--relay", relay, "--workers-share-port"),
    )

    def start_workers() -> list[Process]:
        words = ("gateway", "--bootstrap-servers", broker.address, "--data", str(tmp_path))
        return [
            Process(*words, "--mqtt", "127.0.0.1:0", "--edge", relay, "--workers-share-port")
            for _ in range(2)
        ]

    def place_of(worker: Process) -> str:
        return worker.wait_for(r"gateway ready http=none mqtt=(\S+)").group(1)

    workers = start_workers()
    ada = gateway.user("ada")
    sent: list[dict[str, object]]
    sent = [{"lat": 47, "lon": 9 + n / 1000, "time": NOW + n} for n in range(30)]
    await asyncio.to_thread(publish, place_of(workers[0]), ada, "phone", *sent)
    await is_newest(gateway, ada, "phone", NOW + 29)
    for worker in workers:
        worker.stop(signal.SIGTERM if orderly else signal.SIGKILL)
    if orderly:
        assert gateway.process.stop() == 0
    else:
        gateway.kill()
    gateway.start()
    workers = start_workers()
    more: list[dict[str, object]] = [
        {"lat": 48, "lon": 9, "time": NOW + n} for n in (-HOUR, 30, 31)
    ]
    for worker in workers:
        await asyncio.to_thread(publish, place_of(worker), ada, "phone", *sent[10:], *more)
        await is_newest(gateway, ada, "phone", NOW + 31)
    expected = [NOW - HOUR, *range(NOW, NOW + 32)]
    assert sorted(times_in_the_log(gateway, "ada/phone")) == expected
    for worker in workers:
        worker.stop()
    gateway.close()
    broker.process.stop()


async def test_what_is_kept_of_sealed_values_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    ensure_master_key(tmp_path / "master.key")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "master.key"))
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    request.addfinalizer(broker.process.stop)
    ensure_topics(broker.address)
    gateway = Gateway(tmp_path, broker.address, *TAIL)
    request.addfinalizer(gateway.close)
    ada = gateway.user("ada")
    await send(gateway, ada, {"device": "phone", "lat": 12.3456789, "lon": 9, "time": NOW})
    await is_newest(gateway, ada, "phone", NOW)
    # So many that the first is not among the records that are read again.
    others = [{"device": f"d{n}", "lat": 1, "lon": 2, "time": NOW + n} for n in range(200)]
    await send(gateway, ada, *others)
    await is_newest(gateway, ada, "d199", NOW + 199)
    assert gateway.process.stop() == 0
    kept = b"".join(path.read_bytes() for path in (tmp_path / "views").rglob("*") if path.is_file())
    assert b"ada/phone" in kept
    assert b"12.3456789" not in kept
    gateway.start()
    await is_newest(gateway, ada, "phone", NOW)
    assert "views had 201 entries" in gateway.process.output
