"""The service that a user gets while another one attacks: the figures of docs/security.md.

The gateway, the attacker (an ordinary user) and the victim are separate processes, and the log is a
real broker. `pytest -m long -s tests/attacks/test_victims.py` prints a row for each attack.
"""

from __future__ import annotations

import asyncio
import base64
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from threading import Thread
from typing import NamedTuple

import aiohttp
import pytest

from tests.attacks.test_mqtt_turns import Client, publish
from tests.attacks.workers import Workers, workers
from tests.consumers.running import Broker
from tests.gateway.running import Login
from tests.http_session import http_session
from waylog.observability.telemetry import now_ms

SECONDS = 6.0
MQTT_CLIENTS = 300


class Target(NamedTuple):
    """Where an attacked gateway listens."""

    http: tuple[str, int]
    mqtt_port: int

    @property
    def url(self) -> str:
        return f"http://{self.http[0]}:{self.http[1]}"


def authorization(login: Login) -> dict[str, str]:
    return {"Authorization": aiohttp.encode_basic_auth(*login)}


def nothing(_: Target, _login: Login) -> None:
    """Do nothing, for comparison."""
    time.sleep(60)


async def _post_for_ever(target: Target, login: Login, body: bytes, path: str) -> None:
    async with http_session(target.url, headers=authorization(login)) as session:

        async def post() -> None:
            while True:
                async with session.post(path, data=body) as answer:
                    await answer.read()

        await asyncio.gather(*(post() for _ in range(8)))


def large_bodies(target: Target, login: Login) -> None:
    point = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [2, 1]},
        "properties": {"timestamp": "2025-11-01T12:00:05+0100", "note": "x" * 600},
    }
    body = json.dumps({"locations": [point] * 9_500}).encode()
    asyncio.run(_post_for_ever(target, login, body, "/overland"))


def invented_devices(target: Target, login: Login) -> None:
    def batch(start: int) -> bytes:
        named = [f"d{start + n}" for n in range(100)]
        return json.dumps([{"device": each, "lat": 1, "lon": 2} for each in named]).encode()

    async def send() -> None:
        await asyncio.gather(
            *(_post_for_ever(target, login, batch(n * 100), "/v1/positions") for n in range(100))
        )

    asyncio.run(send())


def _unread(target: Target, login: Login, path: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(target.http)
    secret = base64.b64encode(f"{login.name}:{login.token}".encode()).decode()
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic {secret}\r\n\r\n".encode()
    )
    return connection


def unread_streams(target: Target, login: Login) -> None:
    held = [_unread(target, login, "/v1/stream") for _ in range(500)]
    body = json.dumps([{"lat": 1, "lon": 2, "note": "x" * 20} for _ in range(100)]).encode()
    asyncio.run(_post_for_ever(target, login, body, "/v1/positions"))
    del held


def unread_resumes(target: Target, login: Login) -> None:
    held: list[socket.socket] = []
    while True:
        held += [_unread(target, login, "/v1/stream?since=l0-0") for _ in range(10)]
        time.sleep(0.2)
        for each in held[:-40]:
            each.close()
        del held[:-40]


def lists_of_devices(target: Target, login: Login) -> None:
    async def ask() -> None:
        async with http_session(target.url, headers=authorization(login)) as session:

            async def get() -> None:
                while True:
                    async with session.get("/v1/devices") as answer:
                        await answer.read()

            await asyncio.gather(*(get() for _ in range(8)))

    asyncio.run(ask())


def refused_messages(target: Target, login: Login) -> None:
    """Send messages of one byte that nobody can read, as fast as many connections take them."""
    messages = publish(f"owntracks/{login.name}/x/note", b"x", qos=0) * 500

    def send(number: int) -> None:
        client = Client(target.mqtt_port, login.name, f"eve{number}", password=login.token)
        while True:
            client.send(messages)

    threads = [Thread(target=send, args=(n,), daemon=True) for n in range(MQTT_CLIENTS)]
    for each in threads:
        each.start()
    time.sleep(60)


ATTACKS: list[Callable[[Target, Login], None]] = [
    nothing,
    large_bodies,
    invented_devices,
    unread_streams,
    unread_resumes,
    lists_of_devices,
    refused_messages,
]


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("victims")
    with workers(folder, gateway_broker.address, 1) as running:
        yield running


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def row(times: list[float]) -> str:
    return f"{median(times):.0f} ms | {p99(times):.0f} ms | {max(times):.0f} ms"


@pytest.mark.long
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_a_victim_is_served_meanwhile(
    gateway: Workers, attack: Callable[[Target, Login], None]
) -> None:
    attacker = gateway.user(f"attacker-{attack.__name__}")
    victim = gateway.user(f"victim-{attack.__name__}")
    pid = gateway.process.pid
    before_mb = resident_mb(pid)
    target = Target(gateway.address, gateway.mqtt_port)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=attack, args=(target, attacker), daemon=True)
    process.start()
    times: list[float] = []
    over_mqtt: list[float] = []
    errors = 0
    phone = await asyncio.to_thread(
        Client, target.mqtt_port, victim.name, "phone", password=victim.token
    )
    topic = f"devices/{victim.name}/phone/position"
    try:
        async with gateway.client(victim) as client:
            await asyncio.sleep(2)
            began, spent = time.monotonic(), cpu_s(pid)
            while time.monotonic() - began < SECONDS:
                started = time.perf_counter()
                position = {"lat": 1, "lon": 2, "time": now_ms() - len(times)}
                async with client.post("/v1/positions", json=position) as answer:
                    errors += answer.status != 200
                    await answer.read()
                times.append((time.perf_counter() - started) * 1000)
                started = time.perf_counter()
                message = publish(topic, json.dumps({"lat": 1, "lon": 2}).encode())
                await asyncio.to_thread(phone.ask, message, 4)
                over_mqtt.append((time.perf_counter() - started) * 1000)
                await asyncio.sleep(0.005)
            share = (cpu_s(pid) - spent) / (time.monotonic() - began)
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
        phone.close()
    print(
        f"\n| {attack.__name__} | {row(times)} | {row(over_mqtt)} | {errors} of {len(times)} | "
        f"+ {resident_mb(pid) - before_mb:.0f} MB | {share:.0%} |"
    )
    assert errors == 0
    assert max(p99(times), p99(over_mqtt)) < 2_000
    # No well-behaved user is shut out afterwards.
    async with gateway.client(victim) as client, client.get("/v1/devices") as answer:
        assert answer.status == 200
