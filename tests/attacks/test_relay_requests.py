"""One user's requests to the gateway with the views leave room for those of the others.

The gateway does not answer here: so many requests are under way only while it is busy.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.requests import REQUESTS_EACH, Requests, ShareUsed
from gateway.mqtt.sessions.claims import SessionBusy, SessionClaims
from gateway.mqtt.workers.membership import DeduplicatingSubmitter, about_fixes
from gateway.mqtt.workers.relay_client import RelayClient
from tests.gateway.mqtt.in_memory import eventually, new_router
from tests.gateway.records import MemoryLog, MemoryTelemetry, fix
from waylog.observability.telemetry import now_ms

#: More than all users together may have under way.
STORM = 11_000


class BusyGateway:
    """The gateway's end of the relay: it keeps every request, and answers when told to."""

    def __init__(self) -> None:
        self.requests: list[list[Any]] = []
        self.asked: Counter[str] = Counter()
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                kind, *arguments = msgspec.msgpack.decode(await reader.readexactly(size))
                if kind != "watch":
                    self.requests.append(arguments)
                    self.asked[kind] += 1
        except asyncio.IncompleteReadError:
            writer.close()

    def answer_all(self, answer: Any) -> None:
        assert self._writer is not None
        requests, self.requests = self.requests, []
        for number, *_ in requests:
            frame = msgspec.msgpack.encode(("answer", number, answer))
            self._writer.write(len(frame).to_bytes(4, "big") + frame)


@asynccontextmanager
async def relayed(folder: Path) -> AsyncIterator[tuple[BusyGateway, RelayClient]]:
    gateway = BusyGateway()
    server = await asyncio.start_unix_server(gateway.serve, folder / "relay")
    client = RelayClient(folder / "relay", *[lambda *_: None] * 3)
    running = asyncio.create_task(client.run())
    await client.connected.wait()
    try:
        yield gateway, client
    finally:
        running.cancel()
        await asyncio.wait((running,))
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


def claims_by(client: RelayClient) -> SessionClaims:
    loop = asyncio.get_running_loop()
    journal = Journal(
        *("worker", lambda *_: None, now_ms, loop.time, lambda _: None),
        shared=True,
    )
    return SessionClaims(new_router(), journal, client.request, loop.time)


async def test_repeated_fixes_of_one_user_leave_room_for_sessions_and_fixes_of_others(
    tmp_path: Path,
) -> None:
    async with relayed(tmp_path) as (gateway, client):
        log = MemoryLog()
        submitter = DeduplicatingSubmitter(
            *(log, MemoryTelemetry(), asyncio.get_running_loop()),
            is_stored=about_fixes(client, "known"),
        )
        submitter.repeated = True
        storm = [submitter.submit_location(fix("eve/phone", n)) for n in range(STORM)]
        await eventually(lambda: gateway.asked["known"] >= REQUESTS_EACH)
        bobs = submitter.submit_location(fix("bob/phone"))
        claiming = asyncio.create_task(claims_by(client).claim(("bob", "phone"), False))
        await eventually(lambda: gateway.asked["claim"] == 1)
        await eventually(lambda: gateway.asked["known"] == REQUESTS_EACH + 1)
        gateway.answer_all(False)
        # Nothing of the storm is lost: what could not be asked about is appended.
        await eventually(lambda: len(log.appended) == STORM + 1)
        log.acknowledge()
        await eventually(lambda: all(each.done() for each in (bobs, *storm)))
        claiming.cancel()


async def test_who_has_used_its_share_comes_again_for_its_session(tmp_path: Path) -> None:
    async with relayed(tmp_path) as (gateway, client):
        claims = claims_by(client)
        claiming = [
            asyncio.create_task(claims.claim(("eve", f"phone-{number}"), False))
            for number in range(REQUESTS_EACH)
        ]
        await eventually(lambda: gateway.asked["claim"] == REQUESTS_EACH)
        # To let it in without asking would make a second session of the same name.
        with pytest.raises(SessionBusy):
            await claims.claim(("eve", "one-more"), False)
        bobs = asyncio.create_task(claims.claim(("bob", "phone"), False))
        await eventually(lambda: gateway.asked["claim"] == REQUESTS_EACH + 1)
        gateway.answer_all(None)
        await asyncio.gather(*claiming, bobs)
        # Answers give the share back.
        again = asyncio.create_task(claims.claim(("eve", "one-more"), False))
        await eventually(lambda: len(gateway.requests) == 1)
        gateway.answer_all(None)
        await again


async def test_a_request_counts_until_its_answer_has_come_however_late(tmp_path: Path) -> None:
    async with relayed(tmp_path) as (gateway, client):
        late: list[Any] = []
        asking = [
            asyncio.create_task(client.request("claim", number, user="eve", late=late.append))
            for number in range(REQUESTS_EACH)
        ]
        await eventually(lambda: len(gateway.requests) == REQUESTS_EACH)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        with pytest.raises(ShareUsed):
            await client.request("claim", "more", user="eve")
        gateway.answer_all("session")
        await eventually(lambda: late == ["session"] * REQUESTS_EACH)
        asking = [asyncio.create_task(client.request("claim", "more", user="eve"))]
        await eventually(lambda: len(gateway.requests) == 1)
        gateway.answer_all("session")
        assert await asyncio.gather(*asking) == ["session"]


async def test_an_answer_is_not_lost_when_its_asker_is_cancelled_as_it_comes() -> None:
    sent: list[int] = []
    late: list[Any] = []
    requests = Requests(lambda _, number: sent.append(number))
    asking = asyncio.create_task(requests.ask("claim", user="eve", late=late.append))
    await eventually(lambda: bool(sent))
    requests.answered(sent[0], "session")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert late == ["session"]
