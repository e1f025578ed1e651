"""A device that was erased leaves room for another one."""

from __future__ import annotations

import json

from tests.gateway.running import Gateway, Login, answered
from waylog.history.erasures import append_erasures
from waylog.observability.telemetry import now_ms


async def test_an_erased_device_does_not_count_among_those_of_its_user(
    gateway: Gateway, user: Login
) -> None:
    gateway.users.rights.set_quota(user.name, None, 1)

    async with gateway.client(user) as client:

        async def accepted(device: str) -> bool:
            body = json.dumps({"device": device, "lat": 1, "lon": 2})
            answer = await client.post("/v1/positions", data=body)
            return bool((await answer.json())["accepted"])

        async def is_bounded() -> bool:
            # The bound takes effect within two seconds.
            return not await accepted("another")

        assert await accepted("old")
        await answered(is_bounded)
        append_erasures(gateway.bootstrap_servers, [f"{user.name}/old"], now_ms())
        append_erasures(gateway.bootstrap_servers, [f"{user.name}/another"], now_ms())
        assert await answered(lambda: accepted("new"))
        assert not await accepted("newest")
