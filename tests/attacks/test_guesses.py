"""Guessing a password, through connections that all have the same address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiohttp
import pytest

from gateway.limits.bounds import HttpLimits
from tests.attacks.test_mqtt_addresses import RATE_EXCEEDED, WRONG, connect
from tests.attacks.workers import Workers, workers
from tests.consumers.running import Broker
from tests.gateway.running import Login, json_of

AT_ONCE = HttpLimits.guesses_at_once_per_name
PASSWORD = "correct horse battery staple"
POSITION = {"lat": 1, "lon": 2}


@pytest.fixture(scope="module", params=[1, 3], ids=["one_worker", "three_workers"])
def gateway(
    request: pytest.FixtureRequest,
    gateway_broker: Broker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("guesses")
    with workers(folder, gateway_broker.address, request.param) as running:
        yield running


async def sign_in(session: aiohttp.ClientSession, name: str, password: str) -> int:
    basic = aiohttp.encode_basic_auth(name, password)
    async with session.get("/v1/devices", headers={"Authorization": basic}) as answer:
        await answer.read()
        return answer.status


async def connack(gateway: Workers, name: str, password: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.mqtt_port)
    writer.write(connect(name, password))
    async with asyncio.timeout(60):
        head = await reader.readexactly(4)
    writer.close()
    assert head[0] == 0x20
    return head[3]


async def test_guesses_from_this_machine_are_counted_by_name_over_all_ways(
    gateway: Workers,
) -> None:
    name = f"ada{gateway.mqtt_port}"
    gateway.users.add(name, password=PASSWORD)
    phone = gateway.users.add_token(name, "phone")
    bob = gateway.user(f"bob{gateway.mqtt_port}")
    async with gateway.client() as stranger, gateway.client(bob) as other:
        # This password is verified, and remembered, before the guesses begin.
        assert await sign_in(stranger, name, PASSWORD) == 200
        guessed, started = AT_ONCE // 2, time.monotonic()
        over_http = [await sign_in(stranger, name, f"guess {n}") for n in range(guessed)]
        assert set(over_http) == {401}
        code = WRONG
        while code == WRONG:
            guessed += 1
            code = await connack(gateway, name, f"guess {guessed}")
        assert code == RATE_EXCEEDED
        # One guess is given back every half a minute, however long this takes.
        began_to_refuse = time.monotonic()
        given_back = (began_to_refuse - started) * HttpLimits.guesses_per_minute_per_name / 60
        assert AT_ONCE < guessed <= AT_ONCE + 1 + given_back
        verdicts = [await sign_in(stranger, name, f"another guess {n}") for n in range(3)]
        assert 429 in verdicts
        # Tokens, which cannot be guessed, and passwords verified before need not wait.
        async with (
            gateway.client(Login(name, phone)) as telephone,
            telephone.post("/v1/positions", json=POSITION) as answer,
        ):
            await json_of(answer)
        assert await connack(gateway, name, phone) == 0
        assert await sign_in(stranger, name, PASSWORD) == 200
        assert await sign_in(stranger, *bob) == 200
        async with other.get("/v1/devices") as answer:
            await json_of(answer)


async def test_an_old_password_that_is_repeated_is_one_guess(gateway: Workers) -> None:
    name = f"eve{gateway.mqtt_port}"
    gateway.users.add(name, password=PASSWORD)
    async with gateway.client() as session:
        for _ in range(2 * AT_ONCE):
            assert await sign_in(session, name, "the password of last year") == 401
        assert await sign_in(session, name, PASSWORD) == 200


async def test_guesses_do_not_keep_the_owner_out_of_a_known_browser(gateway: Workers) -> None:
    name, other = (f"{each}{gateway.mqtt_port}" for each in ("joe", "kim"))
    for user in (name, other):
        gateway.users.add(user, password=PASSWORD)
    async with gateway.client() as stranger:

        async def cookies_of(user: str) -> dict[str, str]:
            # Signed in without a password, so that no verified password is remembered.
            body = {"code": gateway.users.sessions.new_code(user)}
            async with stranger.post("/v1/session", json=body) as answer:
                await json_of(answer)
                for cookie in answer.cookies.values():
                    assert cookie["httponly"]
                    assert cookie["samesite"] == "Strict"
                    assert int(cookie["max-age"]) >= 30 * 86_400
                return {each.key: each.value for each in answer.cookies.values()}

        async def page(password: str, shown: dict[str, str]) -> int:
            header = {"Cookie": "; ".join(f"{key}={value}" for key, value in shown.items())}
            body = {"user": name, "token": password}
            async with stranger.post("/v1/session", json=body, headers=header) as answer:
                return answer.status

        own, others = await cookies_of(name), await cookies_of(other)
        status, guess = 401, 0
        while status == 401:
            guess += 1
            status = await sign_in(stranger, name, f"guess {guess}")
        assert status == 429
        tries = [await page(f"a slip {n}", own) for n in range(AT_ONCE // 2)]
        assert set(tries) == {401}
        assert await page(PASSWORD, own) == 200
        forged = {key: value[:-1] for key, value in own.items()}
        swapped = dict(zip(own, others.values(), strict=True))
        gateway.users.set_password(name, "another one")
        for shown in ({}, own, forged, swapped, others, dict.fromkeys(own, "\udcff")):
            assert 429 in [await page(f"{guess}.{n}", shown) for n in range(3)]
            guess += 1
        own = await cookies_of(name)
        # Known browsers have a limit of their own.
        tries = [await page(f"one more {n}", own) for n in range(2 * AT_ONCE)]
        assert tries[:AT_ONCE] == [401] * AT_ONCE
        assert 429 in tries[AT_ONCE:]
