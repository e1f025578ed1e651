"""The locustfile without our command: `locust -f load_tests/locustfile.py`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from load_tests.account import read_accounts
from load_tests.outcome import read_outcomes
from tests.load_tests.mqtt_acceptor import mqtt_acceptor
from tests.load_tests.test_fleet import address

ROOT = Path(__file__).parents[2]


async def locust(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "locust", "-f", "load_tests/locustfile.py", *words),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_it_lists_its_users() -> None:
    users = (await locust("--list")).split()
    assert set(users) >= {"FleetUser", "MqttPhone", "HttpPhone", "HttpBatch"}


@pytest.mark.parametrize("user", ["FleetUser", "MqttPhone"])
async def test_mqtt_users_account_for_their_fixes_over_broken_connections(
    tmp_path: Path, user: str
) -> None:
    async with mqtt_acceptor() as acceptor:
        acceptor.push = address
        acceptor.acknowledge = lambda number: None if number in (20, 50) else True
        output = await locust(
            *(user, "--headless", "-u", "1" if user == "FleetUser" else "10", "-r", "10"),
            *("--devices", "10", "--interval", "0.1", "--duration", "1.5"),
            *("--mqtt", f"127.0.0.1:{acceptor.port}", "--out", str(tmp_path)),
            *("--exit-code-on-error", "0"),
        )
    assert "fix to acknowledgement" in output
    assert "fix to address" in output
    outcome = read_outcomes([tmp_path / "outcome-0.json"])
    account = read_accounts([tmp_path / "account-0.msgpack"])
    assert outcome.sent == outcome.acknowledged == len(set(acceptor.payloads)) >= 100
    assert outcome.resent > 0
    assert outcome.pushes >= 0.9 * outcome.sent
    assert sum(device.sent for device in account.devices) == outcome.sent
    for device in account.devices:
        assert all(device.is_acknowledged(sequence) for sequence in range(device.sent))


@pytest.mark.parametrize(("user", "fixes"), [("HttpPhone", 1), ("HttpBatch", 50)])
async def test_http_users_repeat_what_was_not_accepted(
    tmp_path: Path, user: str, fixes: int
) -> None:
    requests = 0

    async def positions(request: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        if requests in (3, 4):
            return web.Response(status=503)
        body = await request.json()
        count = len(body) if isinstance(body, list) else 1
        assert count == fixes
        return web.json_response({"accepted": count, "rejected": []})

    app = web.Application()
    app.router.add_post("/v1/positions", positions)
    server = TestServer(app)
    await server.start_server()
    await locust(
        *(user, "--headless", "-u", "5", "-r", "5", "--duration", "1.5", "--out", str(tmp_path)),
        *("--interval", str(0.2 / fixes), "--gateway", str(server.make_url("/"))),
        *("--exit-code-on-error", "0"),
    )
    await server.close()
    outcome = read_outcomes([tmp_path / "outcome-0.json"])
    assert outcome.sent == outcome.acknowledged == (requests - 2) * fixes > 0
    assert outcome.resent == 2 * fixes
