"""Messages beyond their sender's quota that cannot be refused: they are held, at little cost."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass

from gateway.mqtt.settings import Settings
from gateway.users import auth
from gateway.users.admission import Admission
from gateway.users.rights import Rights
from tests.attacks.test_mqtt_turns import publish
from tests.gateway.mqtt.in_memory import Platform, Users, eventually

#: A fix may be sent every 50 ms, after as many as may be sent at once.
PER_MINUTE = 1_200
AT_ONCE = PER_MINUTE
TOPIC = "devices/eve/phone/position"


@dataclass
class People(Users):
    """Accepts every client, with a quota."""

    async def authenticate(  # type: ignore[override]
        self, user: str, password: str, address: str = ""
    ) -> auth.Identity | None:
        return auth.Identity(user, rights=Rights(fixes_per_minute=PER_MINUTE))


class Clock:
    """The clock of the quotas, which stands still until it is started."""

    def __init__(self) -> None:
        self._started: float | None = None

    def start(self) -> None:
        self._started = time.monotonic()

    def __call__(self) -> float:
        return 1.0 if self._started is None else 1.0 + time.monotonic() - self._started


@asynccontextmanager
async def listening(
    clock: Clock, settings: Settings | None = None
) -> AsyncIterator[tuple[Platform, Counter[str]]]:
    platform = Platform(users=People())
    with closing(Admission.in_memory(clock=clock)) as admission:
        async with platform.listening(settings, admission=admission):
            yield platform, platform.server.counters


def fixes(count: int) -> bytes:
    position = json.dumps({"lat": 1.5, "lon": 2.5}).encode()
    return publish(TOPIC, position, 0) * count


async def opened(platform: Platform, name: str) -> asyncio.StreamWriter:
    """Connect a client that says only what it is told to."""
    endpoint = platform.server.endpoint
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    body = b"\0\4MQTT\4\xc2\0\0" + b"".join(
        len(each).to_bytes(2, "big") + each for each in (name.encode(), b"eve", b"x")
    )
    writer.write(bytes([0x10, len(body)]) + body)
    assert await reader.readexactly(4) == b"\x20\2\0\0"
    return writer


async def test_what_a_client_leaves_behind_is_stored_as_the_quota_allows() -> None:
    clock = Clock()
    async with listening(clock) as (platform, counters):
        phone = await opened(platform, "phone")
        phone.write(fixes(AT_ONCE + 20))
        phone.close()
        await phone.wait_closed()
        await eventually(lambda: counters["publishes_beyond_quota"] > 0)
        clock.start()
        await eventually(lambda: len(platform.log.fixes) == AT_ONCE + 20)
        await eventually(lambda: platform.server.gauge("connections") == 0)


async def test_a_client_that_has_gone_is_not_read_for_long() -> None:
    clock = Clock()
    async with listening(clock, Settings(gone_client_timeout_s=0.2)) as (platform, counters):
        stays, goes = [await opened(platform, name) for name in ("stays", "goes")]
        stays.write(fixes(AT_ONCE + 20))
        await eventually(lambda: counters["publishes_beyond_quota"] > 0)
        goes.write(fixes(AT_ONCE))
        goes.close()
        await eventually(lambda: platform.server.gauge("connections") == 1)
        assert len(platform.log.fixes) == AT_ONCE
        # The client that is there is read on.
        clock.start()
        await eventually(lambda: len(platform.log.fixes) == AT_ONCE + 20)
        assert platform.server.gauge("connections") == 1
        stays.close()


async def test_messages_that_are_held_are_tried_again_one_after_the_other() -> None:
    clock = Clock()
    async with listening(clock) as (platform, counters):
        crowd = [await opened(platform, str(number)) for number in range(40)]
        crowd[0].write(fixes(AT_ONCE))
        await eventually(lambda: len(platform.log.fixes) == AT_ONCE)
        for each in crowd:
            each.write(fixes(2))
        await eventually(lambda: counters["publishes_beyond_quota"] >= len(crowd))
        clock.start()
        await eventually(lambda: len(platform.log.fixes) == AT_ONCE + 80)
        # If all were tried whenever there is room for one, that would be 40 times 80.
        assert counters["publishes_beyond_quota"] < 800
        for each in crowd:
            each.close()
