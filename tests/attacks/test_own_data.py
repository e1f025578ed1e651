"""What pages of other sites, impatient users and slow ones can do to imports and exports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from tests.attacks.test_nobody import basic
from tests.attacks.test_sessions import JSON, signed_in
from tests.consumers.running import Broker
from tests.gateway.imports.uploading import IMPORTS, created, gpx, shown, upload
from tests.gateway.raw_http import ask, request
from tests.gateway.running import Gateway, Login, json_of

#: Bytes that a user may have uploaded here.
BYTES_MAX = 5_000_000


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("own-data")
    bound = ("--import-bytes-max", str(BYTES_MAX))
    running = Gateway(folder, gateway_broker.address, *bound)
    yield running
    running.close()


@pytest.fixture(scope="module")
def ada(gateway: Gateway) -> Login:
    return gateway.user("ada")


async def test_a_page_of_another_site_can_do_nothing(gateway: Gateway, ada: Login) -> None:
    headers = await signed_in(gateway, ada)
    async with gateway.client(ada) as client:
        found = await created(client, {"walk.gpx": gpx(3)})
    one = f"{IMPORTS}/{found['id']}"
    body = json.dumps({"files": [{"name": "x.gpx", "bytes": 1}]}).encode()
    offset = ("Upload-Offset", "0")
    foreign = ("Origin", "https://evil.example")
    forged: tuple[tuple[str, str, bytes], ...] = (
        ("POST", IMPORTS, body),
        ("PATCH", f"{one}/files/0", b"x"),
        ("POST", f"{one}/run", b""),
        ("DELETE", one, b""),
        ("POST", "/v1/forwardings", b'{"name":"a","kind":"webhook","url":"https://x.example"}'),
    )
    for method, path, content in forged:
        # Without an Origin, too: a form of an old browser.
        for more in ((foreign,), (), (("Sec-Fetch-Site", "cross-site"),)):
            answer = await ask(
                gateway.address, method, path, (*headers, JSON, offset, *more), content
            )
            assert answer.status == 403, (method, path, more)
    for path in (IMPORTS, "/v1/export", "/v1/forwardings"):
        cross = ("Sec-Fetch-Site", "cross-site")
        answer = await ask(gateway.address, "GET", path, (*headers, cross), b"")
        assert answer.status == 403, path
    async with gateway.client(ada) as client:
        assert (await shown(client, found))["files"][0]["received"] == 0


async def test_names_lead_nowhere_and_are_given_back_as_they_are(gateway: Gateway) -> None:
    bo = gateway.user("bo")
    async with gateway.client(bo) as client:
        for name in ("../../../../etc/cron.d/x", "/etc/passwd", "C:\\x.gpx", "<script>.gpx", "..."):
            found = await created(client, {name: gpx(1)})
            assert found["files"][0]["name"] == name
            await upload(client, found, [gpx(1)])
            async with client.delete(f"{IMPORTS}/{found['id']}") as answer:
                assert answer.status == 204
        for name in ("", "a\nb", "x" * 256, "\0", "."):
            announced = {"files": [{"name": name, "bytes": 1}]}
            async with client.post(IMPORTS, json=announced) as answer:
                assert answer.status == 400, name
        for device in ("a" * 129, "\u202e" * 200, "   "):
            announced = {"files": [{"name": "a.gpx", "bytes": 1}]}
            async with client.post(IMPORTS, json=announced | {"device": device}) as answer:
                assert answer.status == 400, device
        for number in ("1", "-1", "../0", "0" * 5000, "٣"):
            found = await created(client, {"a.gpx": b"x"})
            path = f"{IMPORTS}/{found['id']}/files/{number}"
            async with client.patch(path, data=b"x", headers={"Upload-Offset": "0"}) as answer:
                assert answer.status in {400, 404, 431}, number
            async with client.delete(f"{IMPORTS}/{found['id']}") as answer:
                assert answer.status == 204
    everything = {path.name for path in (gateway.folder / "users.db.imports").rglob("*")}
    assert not [name for name in everything if "gpx" in name or "passwd" in name]


async def test_an_upload_has_bounds(gateway: Gateway) -> None:
    cy = gateway.user("cy")
    async with gateway.client(cy) as client:
        too_much = {"files": [{"name": "a.gpx", "bytes": BYTES_MAX + 1}]}
        async with client.post(IMPORTS, json=too_much) as answer:
            assert "are allowed" in (await json_of(answer, 413))["error"]
        many = {"files": [{"name": f"{number}.gpx", "bytes": 0} for number in range(1001)]}
        async with client.post(IMPORTS, json=many) as answer:
            await json_of(answer, 400)
        large = {"files": [{"name": "a.gpx", "bytes": BYTES_MAX // 8}]}
        statuses = []
        for _ in range(12):
            async with client.post(IMPORTS, json=large) as answer:
                statuses.append(answer.status)
        # What is announced counts, whether or not it comes.
        assert statuses == [201] * 8 + [413] * 4
        async with client.get(IMPORTS) as answer:
            for each in await json_of(answer):
                async with client.delete(f"{IMPORTS}/{each['id']}") as ended:
                    assert ended.status == 204
        for offset in ("-1", "", "1e3", "0x0", "9" * 400, "٣"):
            found = await created(client, {"a.gpx": b"x"})
            path = f"{IMPORTS}/{found['id']}/files/0"
            async with client.patch(path, data=b"x", headers={"Upload-Offset": offset}) as answer:
                assert answer.status == 400, offset
            async with client.delete(f"{IMPORTS}/{found['id']}") as answer:
                assert answer.status == 204


async def test_a_thousand_uploads_at_once_leave_the_gateway_to_others(gateway: Gateway) -> None:
    dee, eve = gateway.user("dee"), gateway.user("eve")
    content = b"x" * 300_000
    async with gateway.client(dee) as client, gateway.client(eve) as other:
        found = [await created(client, {"a.bin": content}) for _ in range(10)]

        async def part(number: int) -> int:
            path = f"{IMPORTS}/{found[number % 10]['id']}/files/0"
            async with client.patch(path, data=content, headers={"Upload-Offset": "0"}) as answer:
                return answer.status

        uploading = asyncio.gather(*(part(number) for number in range(1000)))
        longest = 0.0
        while not uploading.done():
            begun = time.monotonic()
            async with other.post("/v1/positions", json={"lat": 1, "lon": 2}) as answer:
                await json_of(answer)
            longest = max(longest, time.monotonic() - begun)
            await asyncio.sleep(0.01)
        statuses = await uploading
        # Each part was taken once; what was too much at once is asked for again.
        assert statuses.count(200) <= 10
        assert set(statuses) <= {200, 409, 503}
        assert longest < 20
        for each in found:
            now = (await shown(client, each))["files"][0]["received"]
            assert now in {0, len(content)}


async def test_a_part_that_does_not_come_is_not_waited_for_long(gateway: Gateway) -> None:
    fay = gateway.user("fay")
    async with gateway.client(fay) as client:
        found = await created(client, {"a.gpx": b"x" * 100_000})
    path = f"{IMPORTS}/{found['id']}/files/0"
    head = request(
        "PATCH",
        path,
        (basic(fay), ("Upload-Offset", "0"), ("Content-Length", "100000")),
        b"",
    )
    _, writer = await asyncio.open_connection(*gateway.address)
    # A client that breaks off in the middle of a part has sent nothing.
    writer.write(head.replace(b"Content-Length: 0\r\n", b"") + b"x" * 50_000)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with gateway.client(fay) as client:
        assert (await shown(client, found))["files"][0]["received"] == 0


async def test_exports_of_a_user_take_turns(gateway: Gateway, ada: Login) -> None:
    async with gateway.client(ada) as client:

        async def export() -> int:
            async with client.get("/v1/export?device=none") as answer:
                await answer.read()
                return answer.status

        statuses = await asyncio.gather(*(export() for _ in range(20)))
        assert set(statuses) == {200, 429}
        # Nothing is held for ever.
        assert await export() == 200
