from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from waylog.cli import CommandError
from waylog.replay.readers.recorded import RecordedFix
from waylog.replay.senders.http import HttpSender
from waylog.replay.senders.tally import Tally
from waylog.replay.senders.wire import Outgoing, outgoing


class Gateway:
    """A fake gateway; the first `failures` requests get `status`."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        self.failures = 0
        self.answer: Any = {"accepted": 1, "rejected": []}
        self.under_way = 0
        self.under_way_max = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            body = await request.read()
            await asyncio.sleep(0)
            if self.failures:
                self.failures -= 1
                return web.Response(status=self.status, text="no")
            self.bodies.append((request.path, dict(request.headers), body))
            return web.json_response(self.answer)
        finally:
            self.under_way -= 1

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self.handle)
        server = TestServer(app)
        await server.start_server()
        try:
            yield str(server.make_url("/"))
        finally:
            await server.close()


def fixes(count: int, devices: int = 1, wire_format: str = "positions") -> list[Outgoing]:
    return [
        outgoing(
            RecordedFix(time=1748772000000 + 1000 * index, lat=47.0, lon=9.0),
            "mika",
            f"d{index % devices}",
            wire_format,
        )
        for index in range(count)
    ]


async def stream(items: list[Outgoing]) -> AsyncIterator[Outgoing]:
    for item in items:
        yield item


async def test_positions_go_in_batches_and_in_order() -> None:
    gateway, tally = Gateway(), Tally()
    async with gateway.serving() as url:
        await HttpSender(url, "mika", "secret", "positions", tally).run(stream(fixes(1000)))
    batches = [msgspec.json.decode(body) for _, _, body in gateway.bodies]
    assert [each["time"] for batch in batches for each in batch] == [
        fix.time for fix in fixes(1000)
    ]
    assert len(batches) < 100
    assert tally.summary() == {
        "sent": 1000,
        "acknowledged": 1000,
        "rejected": 0,
        "retries": 0,
        "devices": 1,
    }
    assert gateway.bodies[0][1]["Authorization"] == "Basic bWlrYTpzZWNyZXQ="


async def test_owntracks_phones_send_one_by_one_but_side_by_side() -> None:
    gateway, tally = Gateway(), Tally()
    gateway.answer = []
    async with gateway.serving() as url:
        await HttpSender(url, "mika", None, "owntracks", tally).run(
            stream(fixes(200, 10, "owntracks"))
        )
    assert tally.acknowledged == 200
    assert 2 <= gateway.under_way_max <= 10
    for device in range(10):
        times = [
            msgspec.json.decode(body)["tst"]
            for _, headers, body in gateway.bodies
            if headers["X-Limit-D"] == f"d{device}"
        ]
        assert len(times) == 20
        assert times == sorted(times)


@pytest.mark.parametrize("wire_format", ["overland", "osmand", "owntracks", "positions"])
async def test_a_gateway_that_is_not_ready_gets_everything_later(wire_format: str) -> None:
    gateway, tally = Gateway(), Tally()
    gateway.status, gateway.failures = 503, 3
    async with gateway.serving() as url:
        await HttpSender(url, "mika", None, wire_format, tally).run(
            stream(fixes(5, 2, wire_format))
        )
    assert tally.acknowledged == 5
    assert tally.retries >= 3


async def test_fixes_refused_for_good_are_counted_and_not_repeated() -> None:
    gateway, tally = Gateway(), Tally()
    gateway.answer = {"accepted": 0, "rejected": [{"index": 0, "reason": "no"}]}
    async with gateway.serving() as url:
        await HttpSender(url, "mika", None, "positions", tally).run(stream(fixes(1)))
    assert (tally.acknowledged, tally.rejected, len(gateway.bodies)) == (0, 1, 1)


async def test_a_wrong_token_is_a_users_mistake() -> None:
    gateway = Gateway()
    gateway.status, gateway.failures = 401, 1_000
    async with gateway.serving() as url:
        with pytest.raises(ExceptionGroup) as caught:
            await HttpSender(url, "mika", "x", "positions", Tally()).run(stream(fixes(5000, 7)))
    assert caught.group_contains(CommandError, match="does not accept user 'mika'")
