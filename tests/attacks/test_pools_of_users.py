"""One user takes all of a pool that it may have, and another is still served."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.http.listener import start_http
from gateway.limits.bounds import RECORD_BYTES, HttpLimits
from gateway.notices.arrivals import Arrival
from gateway.notices.web_push import Subscription, WebPush
from gateway.users.admission import REGISTRATIONS_PER_MINUTE
from gateway.users.database import TooManyTokens, UserStore
from tests.consumers.running import Broker
from tests.gateway.notices.test_web_push import Browser
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog
from tests.gateway.running import Gateway, Login, json_of
from tests.ports import reserved_ports
from waylog.config import Endpoint


class SlowService:
    """Answers requests for `/fast` at once; all others wait for `end`."""

    def __init__(self) -> None:
        self.waiting = self.fast = 0
        self.end = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/fast" or request.query.get("q") == "fast":
            self.fast += 1
            return web.Response(status=201, text="[]")
        self.waiting += 1
        await self.end.wait()
        return web.Response(status=201)


@asynccontextmanager
async def listening(service: SlowService, port: int = 0) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", service.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        service.end.set()
        await runner.cleanup()


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_notifications_that_a_slow_service_holds_keep_back_nobody_elses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = UserStore(tmp_path / "users.db")
    push = WebPush(store, "mailto:me@example.org", anywhere=True)
    service = SlowService()
    async with listening(service) as url:
        for user, paths in (("eve", range(10)), ("ada", ["fast"])):
            store.add(user)
            for path in paths:
                push.subscribe(user, Subscription(f"{url}/{path}", Browser().keys))
        for number in range(50):
            push.arrived(Arrival(f"eve/{number}", {"place_id": "p"}, 5_000, 4_000, 47.1, 9.5))
        push.arrived(Arrival("ada/phone", {"place_id": "p"}, 5_000, 4_000, 47.1, 9.5))
        await until(lambda: service.fast == 1)
        assert 1 <= service.waiting <= 4
        await until(lambda: len(push._sending) == 20)
        assert caplog.text.count("notifications of user 'eve' are left out") == 1
        await push.close()
    store.close()


@pytest.fixture(scope="module")
def geocoder_port() -> int:
    return reserved_ports(1)[0]


@pytest.fixture(scope="module")
def gateway(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory, geocoder_port: int
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("pools")
    geocoder = f"http://127.0.0.1:{geocoder_port}"
    running = Gateway(folder, gateway_broker.address, "--geo-url", geocoder)
    yield running
    running.close()


@pytest.fixture
def ada(gateway: Gateway) -> Login:
    return gateway.user("ada")


async def test_questions_of_one_user_to_the_geocoder_leave_room_for_others(
    gateway: Gateway, ada: Login, geocoder_port: int
) -> None:
    eve = gateway.user("eve")
    service = SlowService()
    async with (
        listening(service, geocoder_port),
        gateway.client(eve) as attacker,
        gateway.client(ada) as victim,
    ):
        asking = [asyncio.create_task(attacker.get("/search?q=slow")) for _ in range(90)]
        await until(lambda: sum(task.done() for task in asking) == 90 - 8 - 16)
        refused = [await json_of(task.result(), 503) for task in asking if task.done()]
        assert all("too many of your questions" in each["error"] for each in refused)
        await until(lambda: service.waiting == 8)
        async with victim.get("/search?q=fast") as answer:
            assert answer.status == 201
        service.end.set()
        for task in asking:
            (await task).release()


async def test_a_user_registers_so_many_devices_and_no_more(gateway: Gateway) -> None:
    eve, bob = gateway.user("eve2"), gateway.user("bob2")
    path = "/api/mobile_app/registrations"
    async with gateway.client(eve) as attacker, gateway.client(bob) as victim:
        began, status, registered = time.monotonic(), 201, -1
        while status == 201:
            registered += 1
            async with attacker.post(path, json={"device_name": f"d{registered}"}) as answer:
                status = answer.status
        assert status == 429
        since = (time.monotonic() - began) / 60 * REGISTRATIONS_PER_MINUTE
        assert REGISTRATIONS_PER_MINUTE <= registered <= REGISTRATIONS_PER_MINUTE + since
        await json_of(await victim.post(path, json={"device_name": "phone"}), 201)


def test_devices_have_so_many_tokens_together(tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.db")
    store.add("ada")
    for number in range(3):
        store.add_token("ada", f"phone{number}", devices_tokens_max=3)
    with pytest.raises(TooManyTokens):
        store.add_token("ada", "phone0", devices_tokens_max=3)
    # An operator may exceed the limit.
    store.add_token("ada", "phone0")
    store.close()


def batch(user: str, number: int, count: int) -> bytes:
    """Return an Overland batch of fixes that were not sent before."""
    return json.dumps(
        {
            "locations": [
                {
                    "type": "Feature",
                    "geometry": {"type": "Point", "coordinates": [2, 1]},
                    "properties": {
                        "timestamp": 1_761_994_800 + 1000 * number + each,
                        "device_id": user,
                        "battery_level": 0.5,
                    },
                }
                for each in range(count)
            ]
        }
    ).encode()


async def test_a_user_fills_his_share_of_the_logs_queue_and_no_more_while_it_does_not_answer(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    limits = HttpLimits(
        append_timeout_s=0.3, under_way_bytes_max=10_000_000, under_way_bytes_each_max=500_000
    )
    async with parts(tmp_path, log=log, limits=limits) as services:
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        async with aiohttp.ClientSession(f"http://{server.endpoint}") as session:

            async def send(user: str, body: bytes) -> int:
                headers = {"Authorization": aiohttp.encode_basic_auth(user, "x")}
                async with session.post("/overland", data=body, headers=headers) as answer:
                    await answer.read()
                    return answer.status

            refused = [await send("eve", batch("eve", number, 300)) for number in range(8)]
            assert set(refused) == {503}
            # Clients that give up waiting leave their records in the queue, and their share in use.
            assert len(log.deliveries) == 2 * 300
            assert services.under_way.held_by("eve") > 2 * 300 * RECORD_BYTES
            victim = asyncio.create_task(send("ada", batch("ada", 0, 1)))
            await until(lambda: len(log.deliveries) == 2 * 300 + 1)
            log.acknowledge()
            assert await victim == 200
            await until(lambda: services.under_way.used == 0)
            # A repeated batch is known, and acknowledged.
            assert await send("eve", batch("eve", 0, 300)) == 200
        await server.close()


async def test_a_websocket_holds_what_it_has_sent_and_not_a_number_of_fixes(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    limits = HttpLimits(under_way_bytes_max=10_000_000, under_way_bytes_each_max=100_000)
    async with parts(tmp_path, log=log, limits=limits) as services:
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        async with (
            aiohttp.ClientSession(f"http://{server.endpoint}") as session,
            session.ws_connect("/v1/ws") as socket,
        ):
            for number in range(20):
                fix = {"lat": 1, "lon": 2, "time": 1_761_994_800_000 + number}
                await socket.send_json(fix | {"id": str(number), "attributes": {"x": "y" * 9_000}})
            refused = 0
            async with asyncio.timeout(60):
                while refused < 10:
                    answer = await socket.receive_json()
                    refused += answer.get("retry") is True
            assert len(log.deliveries) == 10
            log.acknowledge()
            await until(lambda: services.under_way.used == 0)
        await server.close()
