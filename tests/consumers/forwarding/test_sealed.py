"""Values of the log are sealed: forwardings send them in the clear, and need the key for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.forwarding.running import LOOPBACK, Platform
from tests.consumers.running import Broker, Process, await_condition
from tests.gateway.running import Gateway, json_of
from waylog.forwarding.keys import FORWARDING_KEY
from waylog.kafka.topics import (
    FORWARDING,
    FORWARDING_DEAD_LETTER,
    FORWARDING_PROGRESS,
    LOCATION,
)
from waylog.sealing.sealing import ENVIRONMENT, is_sealed
from waylog.sealing.value_encryption import ensure_master_key


class Sealed(NamedTuple):
    """A platform whose values are sealed."""

    platform: Platform
    gateway: Gateway


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    folder: Path = tmp_path_factory.mktemp("sealed")
    broker = Broker(folder)
    platform = Platform(broker.address, folder, environment=ENVIRONMENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT, str(platform.key_file))
        gateway = Gateway(folder, broker.address)
    try:
        yield Sealed(platform, gateway)
    finally:
        gateway.close()
        platform.close()
        broker.process.stop()


async def test_a_server_gets_what_the_log_has_sealed(sealed: Sealed) -> None:
    platform, gateway = sealed
    server = HttpServer()
    server.answer = lambda seen: (404, "no such device") if seen.path == "/refused" else None
    with server.running():
        worker = platform.worker()
        async with gateway.client(gateway.user("anna")) as client:
            for path in ("/hook", "/refused"):
                body = {"name": "x", "kind": "webhook", "url": server.url + path, "token": "t0ken"}
                await json_of(await client.post("/v1/forwardings", json=body), 201)
            fix = {"device": "phone", "lat": 47.123456, "lon": 9.654321}
            await json_of(await client.post("/v1/positions", json=fix))
            await_condition(lambda: len(server.seen) == 2, 60, "both are sent the fix")
            for each in server.seen:
                assert json.loads(each.body)["lat"] == 47.123456
                assert each.headers["Authorization"] == "Bearer t0ken"
            await_condition(lambda: gateway.records(FORWARDING_DEAD_LETTER), 60, "a dead letter")
        worker.stop()
        for topic in (FORWARDING, FORWARDING_PROGRESS, FORWARDING_DEAD_LETTER, LOCATION):
            values = [value for _, value in gateway.records(topic)]
            assert values
            assert all(is_sealed(value) for value in values), topic


@pytest.mark.parametrize(
    ("environment", "key", "status", "message"),
    [
        ("", "none", 2, f"{ENVIRONMENT} or {FORWARDING_KEY} has to name the file"),
        (ENVIRONMENT, "another", 2, "another master key than the log's values"),
        (FORWARDING_KEY, "another", 2, "another master key than the log's values"),
        # It can read forwardings, and no fixes.
        (FORWARDING_KEY, "right", 1, f"are sealed: {ENVIRONMENT} has to name the file of the mas"),
        (ENVIRONMENT, "missing", 2, "No such file"),
    ],
)
def test_a_worker_without_the_key_says_so_and_ends(
    sealed: Sealed, tmp_path: Path, environment: str, key: str, status: int, message: str
) -> None:
    platform = sealed.platform
    ensure_master_key(tmp_path / "another")
    files = {"right": platform.key_file, "another": tmp_path / "another"}
    platform.put("anna", 1, "http://127.0.0.1:9/", since=0)
    platform.fixes("anna/phone", 1)
    words = (
        "--bootstrap-servers",
        platform.servers,
        *LOOPBACK,
        "--group",
        f"of-{environment}-{key}",
    )
    named = {environment: str(files.get(key, tmp_path / key))} if environment else {}
    worker = Process("forwarding", "run", *words, environment=named)
    assert worker.wait() == status
    assert message in worker.output
    assert "Traceback" not in worker.output
