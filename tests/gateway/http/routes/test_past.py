"""Questions about the past over HTTP, to a reading process that is shared by all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

from gateway.http.listener import start_http
from tests import child_processes
from tests.attacks.test_event_loop import write_past
from tests.consumers.running import Broker
from tests.gateway.parts import parts
from tests.http_session import http_session
from waylog.config import Endpoint


async def test_what_a_friend_asks_is_at_the_expense_of_the_friend(
    tmp_path: Path, gateway_broker: Broker
) -> None:
    past = tmp_path / "past"
    write_past(past, 2_000)
    async with (
        asyncio.timeout(120),
        parts(
            tmp_path, open_mode=False, past=past, bootstrap_servers=gateway_broker.address
        ) as services,
        http_session() as session,
    ):
        tokens = {name: services.users.add(name) for name in ("ada", "eve")}
        services.users.rights.befriend("ada", "eve", since=0)
        for view in (services.location_view, services.address_view):
            view.on_caught_up()
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")

        async def ask(name: str, kind: str) -> tuple[int, bytes]:
            url = f"http://{server.endpoint}/v1/devices/ada%2Fphone/{kind}"
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            async with session.get(url, headers=headers) as answer:
                return answer.status, await answer.read()

        stopped: list[int] = []
        try:
            for name in tokens:
                status, content = await ask(name, "visits")
                assert status == 200, content
                # Rows that are told in several steps are one array.
                assert len(json.loads(content)) == 2_000
            [reader] = child_processes.children("gateway.tracks.archive_process")
            for kind in ("track", "visits", "trips", "places"):
                os.kill(reader, signal.SIGSTOP)
                stopped.append(reader)
                of_friend = [asyncio.create_task(ask("eve", kind)) for _ in range(8)]
                done, _ = await asyncio.wait(of_friend, return_when=asyncio.FIRST_COMPLETED)
                assert {task.result()[0] for task in done} == {503}
                of_owner = asyncio.create_task(ask("ada", "visits"))
                await asyncio.wait([of_owner], timeout=0.5)
                os.kill(stopped.pop(), signal.SIGCONT)
                assert (await of_owner)[0] == 200
                statuses = [status for status, _ in await asyncio.gather(*of_friend)]
                # One was read already, and four more waited.
                assert sorted(statuses) == [200] * 5 + [503] * 3
        finally:
            for reader in stopped:
                os.kill(reader, signal.SIGCONT)
            await server.close()
