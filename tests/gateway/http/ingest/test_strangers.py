"""What is kept of requests whose senders are not known."""

from __future__ import annotations

from pathlib import Path

from gateway.http.listener import start_http
from gateway.limits.addresses import TrustedProxies
from gateway.limits.error_bytes import CUT, ErrorBytes
from gateway.limits.token_buckets import TokenBuckets
from tests.gateway.parts import parts
from tests.gateway.raw_http import ask
from tests.gateway.records import MemoryLog
from waylog.config import Endpoint
from waylog.messages import decode_rejected

WRONG_TOKEN = "Bearer wl_" + "q" * 43


async def test_one_address_does_not_use_up_what_may_be_kept_of_others(tmp_path: Path) -> None:
    log = MemoryLog()
    kept = ErrorBytes(TokenBuckets(clock=lambda: 1_000.0), per_minute=100)
    async with parts(tmp_path, log=log, error_bytes=kept) as services:
        services.authenticator.open_mode = False
        services.proxies = TrustedProxies(["127.0.0.0/8"])
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")

        async def is_kept_whole(address: str) -> bool:
            headers = (("Authorization", WRONG_TOKEN), ("X-Forwarded-For", address))
            place = (server.endpoint.host, server.endpoint.port)
            answer = await ask(place, "POST", "/v1/positions", headers, b"junk " * 100)
            assert answer.status == 401
            return CUT not in (decode_rejected(log.appended[-1][2]).headers or {})

        of_one = [await is_kept_whole("192.0.2.1") for _ in range(3)]
        assert of_one == [True, True, False]
        assert await is_kept_whole("192.0.2.2")
        log.acknowledge()
        await server.close()
