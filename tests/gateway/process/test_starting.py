"""A gateway that is started while its log cannot be reached."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from pathlib import Path

import pytest

from gateway.users.database import UserStore
from tests.consumers.running import Broker, Process
from tests.gateway.raw_http import Answer, ask, read_answer, request
from tests.ports import reserved_ports
from waylog.kafka.clients import ensure_topics

NOBODY = "127.0.0.1:1"
FIX = b'{"device":"phone","lat":1,"lon":2}'


async def test_probes_are_answered_until_the_log_comes_and_nobody_is_refused(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path)
    ensure_topics(broker.address)
    broker.kill()
    users = UserStore(tmp_path / "users.db")
    token = users.add("ada")
    users.close()
    assert token is not None
    port = reserved_ports(1)[0]
    address = ("127.0.0.1", port)
    gateway = Process(
        *("gateway", "--bootstrap-servers", broker.address, "--http", f"127.0.0.1:{port}"),
        *("--mqtt", "none", "--data", str(tmp_path)),
    )
    seen: Counter[int] = Counter()

    async def send() -> Answer:
        headers = (("Authorization", f"Bearer {token}"), ("Content-Type", "application/json"))
        answer = await ask(address, "POST", "/v1/positions", headers, FIX)
        seen[answer.status] += 1
        return answer

    async def send_until_accepted() -> None:
        while (await send()).status != 200:
            pass

    try:
        await asyncio.to_thread(gateway.wait_for, "waiting for the log")
        assert (await ask(address, "GET", "/healthz")).status == 200
        not_ready = await ask(address, "GET", "/readyz")
        assert not_ready.status == 503
        assert f"waits for the log at {broker.address}".encode() in not_ready.body
        assert (await send()).headers["retry-after"] == "2"
        # It has not been answered when the gateway is ready: the real server does it.
        reader, writer = await asyncio.open_connection(*address)
        sending = asyncio.create_task(send_until_accepted())
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(gateway.wait_for, "gateway ready")
        async with asyncio.timeout(60):
            # A connection that is refused, reset or not answered would end it with an error.
            await sending
        assert seen.keys() == {200, 503}
        writer.write(request("GET", "/readyz"))
        ready = await read_answer(reader)
        assert (ready.status, ready.body) == (200, b'{"status":"ready"}')
        writer.close()
    finally:
        status = gateway.stop()
        broker.process.stop()
    assert status == 0, gateway.output


async def test_it_tells_which_topic_it_waits_for_and_what_creates_it(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    port = reserved_ports(1)[0]
    gateway = Process(
        *("gateway", "--bootstrap-servers", broker.address, "--http", f"127.0.0.1:{port}"),
        *("--mqtt", "none", "--data", str(tmp_path)),
    )
    try:
        line = await asyncio.to_thread(gateway.wait_for, "waiting for the log: topic location")
        assert "`waylog topics ensure`" in line.string
        not_ready = await ask(("127.0.0.1", port), "GET", "/readyz")
        assert not_ready.status == 503
        assert b"waits for the log: topic location" in not_ready.body
        ensure_topics(broker.address)
        await asyncio.to_thread(gateway.wait_for, "gateway ready")
    finally:
        gateway.stop()
        broker.process.stop()


def test_a_supervisor_hears_that_it_is_ready_only_from_the_real_server(
    tmp_path: Path, supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())
    port = reserved_ports(1)[0]
    gateway = Process(
        *("gateway", "--bootstrap-servers", NOBODY, "--http", f"127.0.0.1:{port}"),
        *("--mqtt", "none", "--data", str(tmp_path)),
    )
    try:
        assert supervisor.recv(4096).startswith(b"STATUS=not ready: ")
        assert asyncio.run(ask(("127.0.0.1", port), "GET", "/healthz")).status == 200
    finally:
        assert gateway.stop() == 0
    supervisor.setblocking(False)
    heard: list[bytes] = []
    with pytest.raises(BlockingIOError):
        while True:  # it may have said again why it is not ready
            heard.append(supervisor.recv(4096))
    assert not any(b"READY=1" in each for each in heard)


async def test_one_that_starts_takes_no_clients_from_another_at_the_same_port(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    port = reserved_ports(1)[0]
    address = ("127.0.0.1", port)
    common = ("gateway", "--http", f"127.0.0.1:{port}", "--mqtt", "none", "--workers-share-port")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = Process(
        *(*common, "--bootstrap-servers", gateway_broker.address),
        *("--data", str(tmp_path / "first")),
    )
    second: Process | None = None
    try:
        await asyncio.to_thread(first.wait_for, "gateway ready")
        second = Process(
            *(*common, "--bootstrap-servers", NOBODY), *("--data", str(tmp_path / "second"))
        )
        await asyncio.to_thread(second.wait_for, "waiting for the log")
        answers = [(await ask(address, "GET", "/readyz")).status for _ in range(50)]
        assert set(answers) == {200}
    finally:
        for each in (second, first):
            if each is not None:
                each.stop()
