"""Queues of phones, as their apps keep them, against a log that fails sometimes."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from gateway.http.listener import start_http
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog
from tests.http_session import http_session
from waylog.config import Endpoint
from waylog.messages import decode_fix, decode_rejected

TIME_S = 1_795_000_000


class MoodyLog(MemoryLog):
    """A log that fails every third append, and acknowledges the others in the next loop turn."""

    def send(self, *arguments: object) -> None:
        super().send(*arguments)  # type: ignore[arg-type]
        answer = self.fail if len(self.appended) % 3 == 0 else self.acknowledge
        if answer == self.fail:
            self.appended.pop()
            self.appended.append(("lost", None, b"", None))
        asyncio.get_running_loop().call_soon(answer)


def queue() -> deque[Any]:
    """Return ten fixes and, among them, messages that no server can accept."""
    waiting: deque[Any] = deque()
    for number in range(10):
        waiting.append(
            {
                **{"_type": "location", "_id": f"{number:08x}", "tid": "ph"},
                **{"lat": number, "lon": 2, "tst": TIME_S + number, "t": "p"},
            }
        )
        if number % 4 == 1:
            waiting.append({"_type": "location", "lat": "north", "tst": TIME_S})
    return waiting


@pytest.mark.parametrize("deletes_on_4xx", [False, True], ids=["Android", "iOS"])
async def test_a_queue_drains_in_order_whatever_happens(
    tmp_path: Path, deletes_on_4xx: bool
) -> None:
    log = MoodyLog()
    refusals = 0
    async with parts(tmp_path, log=log) as services:
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        url = f"http://127.0.0.1:{server.endpoint.port}"
        waiting = queue()
        async with http_session(url) as client, asyncio.timeout(60):
            while waiting:
                # The head of the queue is sent until it has been accepted.
                answer = await client.post(
                    "/owntracks", data=json.dumps(waiting[0]), headers={"X-Limit-D": "phone"}
                )
                await answer.read()
                refusals += answer.status == 503
                assert answer.status in (200, 503)
                if answer.status == 200 or (deletes_on_4xx and 400 <= answer.status < 500):
                    waiting.popleft()
        await server.close()
    assert refusals
    stored = [decode_fix(value) for topic, _, value, _ in log.appended if topic == "location"]
    assert [fix.lat for fix in stored] == list(range(10))
    poison = [decode_rejected(value) for topic, _, value, _ in log.appended if topic == "error"]
    assert len(poison) == 3
    assert all(b"north" in rejected.raw for rejected in poison)
