"""A gateway reports its parts that are not ready, and recovers without a restart."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.mqtt.packets.packets import ReasonCode
from gateway.observability.readiness import (
    HOPELESS_S,
    Ask,
    Readiness,
    history_trouble,
    reader_trouble,
)
from tests.contract.broker_process import BrokerProcess
from tests.gateway.mqtt.in_memory import PahoClient
from tests.gateway.running import Gateway, Login
from tests.ports import reserved_ports
from tests.small_disk import SmallDisk, small_disk
from waylog.history.job_report import JobReport, write_report
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import ensure_topics

POSITION = '{"lat":47,"lon":9,"time":17000000%d}'
FIX = {"device": "phone", "lat": 47.1, "lon": 9.5}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 32 * 1024 * 1024) as disk:
        yield disk


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    process.start()
    ensure_topics(process.bootstrap_servers)
    yield process
    process.stop()


async def readiness(gateway: Gateway) -> tuple[int, Any]:
    async with gateway.client() as client, client.get("/readyz") as answer:
        return answer.status, await answer.json()


async def until_ready(gateway: Gateway, *, ready: bool, timeout_s: float = 60) -> Any:
    async with asyncio.timeout(timeout_s):
        while True:
            status, body = await readiness(gateway)
            if (status == 200) == ready:
                return body
            await asyncio.sleep(0.1)


async def post(gateway: Gateway, login: Login, number: int) -> int:
    async with (
        gateway.client(login) as client,
        client.post("/v1/positions", json=FIX | {"time": 1_700_000_000_000 + number}) as answer,
    ):
        return answer.status


async def test_requests_wait_shorter_where_their_append_is_known_to_fail_and_only_there() -> None:
    readiness, troubled = Readiness(), set[str]()

    def ask(part: str) -> Ask:
        return lambda: "silent" if part in troubled else None

    for part in ("appending", "address"):
        readiness.add(part, ask(part))
    waits = []
    for now in (set(), {"address"}, {"address", "appending"}, {"address"}, set[str]()):
        troubled.clear()
        troubled.update(now)
        await readiness.look()
        waits.append(readiness.append_timeout_s(10.0))
    assert waits == [10.0, 10.0, HOPELESS_S, 10.0, 10.0]


async def test_a_gateway_without_brokers_is_not_ready_and_says_so(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "gateway").mkdir()
    gateway = Gateway(tmp_path / "gateway", broker.bootstrap_servers)
    try:
        assert await readiness(gateway) == (200, {"status": "ready"})
        # The broker hangs: its connections stay open, but nothing arrives.
        os.kill(broker.pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            # Other parts may notice first.
            while "location" not in (body := (await readiness(gateway))[1]).get("parts", {}):
                await asyncio.sleep(0.1)
        assert body["status"] == "not ready"
        assert "nothing heard from the log for" in body["parts"]["location"]
        gateway.process.wait_for("not ready: ")
        os.kill(broker.pid, signal.SIGCONT)
        await until_ready(gateway, ready=True)
        gateway.process.wait_for("ready again")
        broker.kill()
        await until_ready(gateway, ready=False)
        broker.start()
        await until_ready(gateway, ready=True)
    finally:
        gateway.close()
    assert "Traceback" not in gateway.process.output


async def test_a_full_disk_is_answered_soon_and_all_goes_on_when_there_is_room(
    disk: SmallDisk, tmp_path: Path
) -> None:
    broker = BrokerProcess(disk.folder)
    broker.start()
    ensure_topics(broker.bootstrap_servers)
    pid = broker.pid
    (tmp_path / "gateway").mkdir()
    (mqtt,) = reserved_ports(1)
    gateway = Gateway(tmp_path / "gateway", broker.bootstrap_servers, "--mqtt", f"127.0.0.1:{mqtt}")
    login = gateway.user("anna")
    try:
        assert await post(gateway, login, 0) == 200
        disk.fill()
        statuses = []
        for number in range(1, 100):
            began = time.monotonic()
            statuses.append(await post(gateway, login, number))
            if statuses[-1] == 503:
                break
        # Sooner than the ten seconds in which a dead leader may be replaced.
        assert statuses[-1] == 503, statuses
        assert time.monotonic() - began < 8
        body = await until_ready(gateway, ready=False)
        assert "its disk may be full" in body["parts"]["appending"]
        phones = [PahoClient(mqtt, f"v{each}", version=each) for each in (4, 5)]
        for phone in phones:
            await phone.connect(login.name, login.token, keep_alive=600)
            phone.client.publish("devices/anna/phone/position", POSITION % (10 + phone.version), 1)
        # No client waits for ever or gets an acknowledgement; paho reconnects by itself.
        codes = [await asyncio.wait_for(phone.disconnected.get(), 60) for phone in phones]
        assert codes[1].value == ReasonCode.SERVER_BUSY
        assert all(phone.published.empty() for phone in phones)
        disk.free()
        for phone in phones:
            _, code = await asyncio.wait_for(phone.published.get(), 60)
            assert not code.is_failure
            await phone.close()
        await until_ready(gateway, ready=True)
        async with asyncio.timeout(60):
            while await post(gateway, login, 1000) != 200:
                await asyncio.sleep(0.1)
        assert broker.pid == pid
        assert sum("no room left in" in line for line in broker.output) == 1
    finally:
        gateway.close()
        broker.stop()
    assert "Traceback" not in "".join(broker.output) + gateway.process.output


async def test_a_history_without_room_is_named_and_keeps_no_request_from_being_served(
    disk: SmallDisk, broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "gateway").mkdir()
    history = ("--history", str(disk.folder))
    gateway = Gateway(tmp_path / "gateway", broker.bootstrap_servers, *history)
    try:
        assert await readiness(gateway) == (200, {"status": "ready"})
        disk.fill()
        status, body = await readiness(gateway)
        assert (status, body["status"]) == (200, "ready")
        assert f"no room left in {disk.folder}" in body["others"]["history"]
        disk.free()
        assert await readiness(gateway) == (200, {"status": "ready"})
    finally:
        gateway.close()


async def test_a_reader_that_hears_nothing_says_why() -> None:
    (port,) = reserved_ports(1)
    loop = asyncio.get_running_loop()
    reader = BatchReader(f"127.0.0.1:{port}", "test", "location", loop, on_records=print)
    ask = reader_trouble(reader, lambda: reader.heard_at + 60)
    reader.start()
    try:
        async with asyncio.timeout(60):
            while reader.trouble is None:
                await asyncio.sleep(0.01)
        told = ask()
        assert told is not None
        assert told.startswith("nothing heard from the log for 60 s: ")
        assert f"127.0.0.1:{port}: connection refused" in told
    finally:
        await reader.close()


def test_a_history_is_well_if_its_folder_and_its_job_are(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    now = 1_000_000
    ask = history_trouble(folder, lambda: now)
    assert ask() is None
    folder.mkdir()
    assert ask() is None
    write_report(folder, JobReport(now, "spark", trouble="records wait"))
    assert ask() == "records wait"
    write_report(folder, JobReport(now, "spark"))
    assert ask() is None
    now += 61_000
    assert ask() == "nothing heard from the history job for 61 s"
