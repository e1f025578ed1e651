"""A friendship that ends by itself in the middle of a request: nothing unfiltered comes of it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.friends.friend_events import FriendEventFilter
from gateway.http.listener import start_http
from gateway.shares.share import TOWN_M, Terms
from gateway.users import rights
from gateway.users.auth import Identity
from gateway.users.rights import Rights
from gateway.viewers.viewers import Filter, Viewer
from gateway.views.view import ViewEvent
from tests.gateway.parts import parts
from tests.gateway.records import StoredRecord, address, fix
from tests.http_session import http_session
from waylog.config import Endpoint
from waylog.messages import encode
from waylog.observability.telemetry import now_ms

#: Nothing else has these digits.
AT = 47.512345, 9.912345
DEVICE = "/v1/devices/ada%2Fphone"
PATHS = (
    *("/v1/devices", DEVICE, f"{DEVICE}/address", f"{DEVICE}/track", f"{DEVICE}/timeline"),
    *(f"{DEVICE}/places", f"{DEVICE}/visits", f"{DEVICE}/trips", f"{DEVICE}/days"),
)


def end_after(monkeypatch: pytest.MonkeyPatch, looks: int, until: int) -> None:
    """Let the time be over when it has been looked at so often."""
    looked = count()
    monkeypatch.setattr(rights, "_now_ms", lambda: until - 1 if next(looked) < looks else until + 1)


async def test_no_answer_is_unfiltered_whenever_the_friendship_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, until = now_ms(), now_ms() + 3_600_000
    async with parts(tmp_path, open_mode=False) as services, http_session() as session:
        tokens = {name: services.users.add(name) for name in ("ada", "eve")}
        services.users.rights.befriend("ada", "eve", 0, precision="town", until=until)
        where: dict[str, Any] = {"lat": AT[0], "lon": AT[1]}
        position, named = fix(time=now, received=now, **where), address(time=now, **where)
        services.location_view.on_records([StoredRecord(b"ada/phone", encode(position))])
        services.address_view.on_records([StoredRecord(b"ada/phone", encode(named))])
        services.location_view.on_caught_up()
        services.address_view.on_caught_up()
        await services.places.refresh()
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")

        async def ask(name: str, path: str) -> tuple[int, bytes]:
            span = f"?from={now - 86_400_000}&to={now + 60_000}"
            url = f"http://{server.endpoint}{path}{span if path.startswith(DEVICE) else ''}"
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            async with session.get(url, headers=headers) as answer:
                return answer.status, await answer.read()

        try:
            for path in PATHS[:4]:
                assert b"47.5123" in (await ask("ada", path))[1], path
                # What the rights are is known from now on, and has an end.
                assert (await ask("eve", path))[0] == 200, path
            for path in PATHS:
                statuses = set()
                for looks in range(12):
                    with monkeypatch.context() as patch:
                        end_after(patch, looks, until)
                        status, content = await ask("eve", path)
                    assert b"47.5123" not in content, (path, looks)
                    statuses.add(status)
                # It was over before, and not over at all.
                assert len(statuses) > 1 or path == "/v1/devices", path
        finally:
            await server.close()


@pytest.mark.parametrize("looks", range(4))
async def test_nothing_missed_is_unfiltered_whenever_the_friendship_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    until = now_ms() + 3_600_000
    coarse = {"ada": Terms(cell_m=TOWN_M)}
    eve = Identity("eve", rights=Rights(friends={"ada": 0}, coarse=coarse, ends={"ada": until}))
    async with parts(tmp_path) as services:
        await services.places.refresh()
        viewer = Viewer(Filter(), {}, eve, lambda _: ())
        value = encode(fix(lat=AT[0], lon=AT[1]))
        missed = [ViewEvent("location", 0, 0, "ada/phone", *AT, value)]
        end_after(monkeypatch, looks, until)
        shown = viewer.shown_of_before(missed, FriendEventFilter(services.friend_filter))
    assert len(shown) == (looks > 0)
    assert all(b"47.5123" not in each.value for each in shown)
