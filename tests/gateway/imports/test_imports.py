"""Files are uploaded in parts, read by a process, stored once, and undone."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.consumers.running import Broker
from tests.gateway.imports.uploading import (
    BEGIN_S,
    IMPORTS,
    archive,
    created,
    ended,
    fixes_of,
    gpx,
    imported,
    kept,
    run,
    shown,
    upload,
)
from tests.gateway.running import Gateway, answered, json_of


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(tmp_path_factory.mktemp("imports"), gateway_broker.address)
    yield running
    running.close()


async def test_files_become_fixes_of_a_device_named_after_them(gateway: Gateway) -> None:
    ada = gateway.user("ada")
    csv = b"lat,lon,time\n47.2,9.6,2025-05-31T00:00:00Z\n99,9.6,2025-05-31T00:00:01Z\n"
    files = {
        "Strava/ride.gpx.gz": gzip.compress(gpx(450)),
        "Strava/all.zip": archive({"a.csv": csv, "note.txt": b"nothing", "b.gpx": b"<gpx><trk"}),
    }
    async with gateway.client(ada) as client:
        found = await imported(client, files)
        assert found["device"] == "ada/Strava"
        assert (found["state"], found["found"], found["stored"]) == ("done", 451, 451)
        assert 0 < found["read_bytes"] <= found["of_bytes"]
        ride, rest = found["files"]
        assert (ride["fixes"], ride["skipped"], ride["damage"]) == (450, {}, [])
        assert rest["fixes"] == 1
        assert rest["skipped"] == {
            "latitude 99 is out of range": 1,
            "a file that is no track (.txt)": 1,
        }
        assert len(rest["damage"]) == 1 and rest["damage"][0].startswith("Strava/all.zip/b.gpx")
        assert (found["from"], found["to"]) == (BEGIN_S * 1000, 1_748_649_600_000)

        async def newest() -> object:
            async with client.get("/v1/devices/ada%2FStrava") as answer:
                return (await answer.json()).get("lat")

        await answered(newest, lambda lat: lat == 47.2)  # the view follows the log
    fixes = fixes_of(gateway, "ada/Strava")
    assert [fix.time for fix in fixes] == sorted(fix.time for fix in fixes)
    assert {fix.source for fix in fixes} == {"import"}
    assert kept(gateway) == []


async def test_an_upload_goes_on_where_it_ended(gateway: Gateway) -> None:
    bo = gateway.user("bo")
    content = gpx(100)
    async with gateway.client(bo) as client:
        found = await created(client, {"walk.gpx": content})
        path = f"{IMPORTS}/{found['id']}/files/0"

        async def part(offset: int, data: bytes) -> tuple[int, str | None]:
            headers = {"Upload-Offset": str(offset)}
            async with client.patch(path, data=data, headers=headers) as answer:
                return answer.status, answer.headers.get("Upload-Offset")

        assert await part(0, content[:1000]) == (200, "1000")
        assert await part(0, content[:1000]) == (409, "1000")
        assert await part(1500, content[1500:]) == (409, "1000")
        assert (await shown(client, found))["files"][0]["received"] == 1000
        async with client.post(f"{IMPORTS}/{found['id']}/run") as answer:
            assert "not all of them" in (await json_of(answer, 409))["error"]
        assert await part(1000, content[1000:] + b"x") == (413, None)
        # Of two requests with the same part one is too late.
        both = await asyncio.gather(part(1000, content[1000:]), part(1000, content[1000:]))
        assert sorted(both) == [(200, str(len(content))), (409, str(len(content)))]
        await run(client, found)
        assert (await ended(client, found))["stored"] == 100
        assert await part(len(content), b"") == (409, None)


async def test_an_import_is_undone_and_its_device_erased(gateway: Gateway) -> None:
    cy = gateway.user("cy")
    async with gateway.client(cy) as client:
        found = await imported(client, {"walk.gpx": gpx(50)}, device="hike")
        assert found["undoable"] is True
        async with client.delete(f"{IMPORTS}/{found['id']}") as answer:
            assert answer.status == 204

        async def status() -> int:
            async with client.get("/v1/devices/cy%2Fhike") as answer:
                return answer.status

        assert await answered(status, lambda code: code == 404) == 404
        async with client.get(IMPORTS) as answer:
            assert await json_of(answer) == []
        assert [key for key, _ in gateway.records("erasure") if key == b"cy/hike"]
        # Its past would be dropped without a word.
        announced = {"files": [{"name": "walk.gpx", "bytes": 1}], "device": "hike"}
        async with client.post(IMPORTS, json=announced) as answer:
            assert "has been erased" in (await json_of(answer, 409))["error"]
        again = await imported(client, {"hike.gpx": gpx(50)})
        assert (again["device"], again["stored"]) == ("cy/hike-2", 50)

        async def track() -> list[str]:
            async with client.get("/v1/devices/cy%2Fhike-2/track?format=csv") as answer:
                return (await answer.text()).splitlines()

        await answered(track, lambda lines: len(lines) == 51)


async def test_positions_of_one_time_do_not_pass_for_others(gateway: Gateway) -> None:
    rows = b"1,2,2025-05-30T00:00:00Z\n1,3,2025-05-30T00:00:00Z\n"
    async with gateway.client(gateway.user("cleo")) as client:
        found = await imported(client, {"a.csv": b"lat,lon,time\n" + rows * 2})
        assert (found["found"], found["stored"]) == (4, 4)
        assert len({fix.id for fix in fixes_of(gateway, "cleo/a")}) == 2
        async with client.delete(f"{IMPORTS}/{found['id']}") as answer:
            assert answer.status == 204, await answer.text()


async def test_what_would_erase_other_positions_is_not_undone(gateway: Gateway) -> None:
    dee = gateway.user("dee")
    async with gateway.client(dee) as client:
        async with client.post(
            "/v1/positions", json={"device": "phone", "lat": 1, "lon": 2}
        ) as sent:
            await json_of(sent)
        before = await imported(client, {"walk.gpx": gpx(5)}, device="phone")
        assert before["undoable"] is False
        async with client.delete(f"{IMPORTS}/{before['id']}") as answer:
            assert "had positions before" in (await json_of(answer, 409))["error"]

        after = await imported(client, {"walk.gpx": gpx(5)}, device="watch")
        assert after["undoable"] is True
        # Older than all that was imported, so that the newest position does not tell.
        old = {"device": "watch", "lat": 1, "lon": 2, "time": (BEGIN_S - 60) * 1000}
        async with client.post("/v1/positions", json=old) as sent:
            await json_of(sent)

        async def undone() -> str:
            async with client.delete(f"{IMPORTS}/{after['id']}") as answer:
                return str((await json_of(answer, 409))["error"])

        assert "has other positions" in await undone()
        # It can be taken off the list all the same.
        async with client.delete(f"{IMPORTS}/{after['id']}?fixes=keep") as answer:
            assert answer.status == 204
    assert len(fixes_of(gateway, "dee/watch")) == 6


async def test_nobody_learns_of_anothers_import(gateway: Gateway) -> None:
    eve, fay = gateway.user("eve"), gateway.user("fay")
    async with gateway.client(eve) as owner, gateway.client(fay) as other:
        found = await created(owner, {"secret.gpx": gpx(3)})
        one = f"{IMPORTS}/{found['id']}"
        headers = {"Upload-Offset": "0"}
        for method, path in (
            *(("GET", one), ("DELETE", one), ("DELETE", f"{one}?fixes=keep")),
            *(("POST", f"{one}/run"), ("PATCH", f"{one}/files/0")),
        ):
            async with other.request(method, path, headers=headers, data=b"x") as answer:
                assert "no such import" in (await json_of(answer, 404))["error"], (method, path)
        async with other.get(IMPORTS) as answer:
            assert await json_of(answer) == []
        for name in ("..", "%2e%2e%2f", "0" * 32, f"../{found['id']}"):
            async with owner.get(f"{IMPORTS}/{name}") as answer:
                assert answer.status in {400, 404}, name
        assert (await shown(owner, found))["files"][0]["received"] == 0


async def test_two_imports_of_a_user_are_read_one_after_the_other(gateway: Gateway) -> None:
    gil = gateway.user("gil")
    async with gateway.client(gil) as client:
        files = [{f"{name}.gpx": gpx(2000, lat=40 + number)} for number, name in enumerate("ab")]
        both = [await created(client, each) for each in files]
        for found, each in zip(both, files, strict=True):
            await upload(client, found, each.values())
        for found in both:
            await run(client, found)
        first, second = [await ended(client, found) for found in both]
        assert (first["stored"], second["stored"]) == (2000, 2000)
        assert first["finished"] <= second["finished"]
        async with client.post(f"{IMPORTS}/{first['id']}/run") as answer:
            assert "done already" in (await json_of(answer, 409))["error"]


async def test_a_restart_interrupts_and_a_repetition_doubles_nothing(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    gateway = Gateway(tmp_path, gateway_broker.address)
    try:
        hal = gateway.user("hal")
        # Slow enough to be killed in the middle.
        gateway.users.rights.set_quota("hal", 400, None)
        async with gateway.client(hal) as client:
            found = await created(client, {"walk.gpx": gpx(1000)})
            await upload(client, found, [gpx(1000)])
            await run(client, found)
            await answered(lambda: shown(client, found), lambda now: now["stored"] >= 200)
        gateway.kill()
        gateway.start()
        gateway.users.rights.set_quota("hal", None, None)
        async with gateway.client(hal) as client:
            now = await ended(client, found)
            assert (now["state"], now["undoable"]) == ("interrupted", True)
            await run(client, found)
            now = await ended(client, found)
            assert (now["state"], now["stored"]) == ("done", 1000)
        fixes = fixes_of(gateway, "hal/walk")
        assert len(fixes) == len({fix.id for fix in fixes}) == 1000
        assert kept(gateway) == []
    finally:
        gateway.close()


async def test_who_is_revoked_leaves_no_files(gateway: Gateway) -> None:
    ida = gateway.user("ida")
    async with gateway.client(ida) as client:
        await upload(client, await created(client, {"walk.gpx": gpx(9)}), [gpx(9)])
    before = set(kept(gateway))
    gateway.users.revoke("ida")

    async def files() -> set[Path]:
        return set(kept(gateway))

    left = await answered(files, lambda now: len(now) < len(before))
    again = gateway.user("ida")
    async with gateway.client(again) as client, client.get(IMPORTS) as answer:
        assert await json_of(answer) == []
    assert left < before
