"""Imports are stopped, seen by other workers, begun once, and do not lie about for ever."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.imports.import_store import KEPT_MS, ImportRefused, ImportStore, WrongOffset
from gateway.imports.records import Import, ImportedFile
from tests.consumers.running import Broker
from tests.gateway.imports.uploading import (
    IMPORTS,
    created,
    ended,
    fixes_of,
    gpx,
    kept,
    run,
    shown,
    upload,
)
from tests.gateway.running import Gateway, answered, json_of
from waylog.observability.telemetry import now_ms


@pytest.fixture(scope="module")
def workers(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, Gateway]]:
    """Two workers with one folder."""
    folder = tmp_path_factory.mktemp("import-control")
    one = Gateway(folder, gateway_broker.address)
    other = Gateway(folder, gateway_broker.address)
    yield one, other
    other.close()
    one.close()


async def begun(client: aiohttp.ClientSession, name: str, count: int = 2000) -> dict[str, Any]:
    """Return an import that is being stored, slowly: its user has a quota of 400."""
    found = await created(client, {f"{name}.gpx": gpx(count)})
    await upload(client, found, [gpx(count)])
    await run(client, found)
    await answered(lambda: shown(client, found), lambda now: now["stored"] >= 200)
    return found


async def test_another_worker_sees_and_undoes_what_is_under_way(
    workers: tuple[Gateway, Gateway],
) -> None:
    one, other = workers
    ada = one.user("ada")
    one.users.rights.set_quota("ada", 400, None)
    async with one.client(ada) as client, other.client(ada) as elsewhere:
        found = await begun(client, "walk")
        now = await shown(elsewhere, found)
        assert (now["state"], now["found"]) == ("storing", 2000)
        # Why it stands still.
        now = await answered(lambda: shown(elsewhere, found), lambda now: now["reason"])
        assert "400 fixes a minute" in now["reason"]
        async with elsewhere.post(f"{IMPORTS}/{found['id']}/run") as answer:
            assert "storing already" in (await json_of(answer, 409))["error"]
        async with elsewhere.delete(f"{IMPORTS}/{found['id']}") as answer:
            assert answer.status == 204, await answer.text()
        async with client.get(IMPORTS) as answer:
            assert await json_of(answer) == []
    assert [key for key, _ in one.records("erasure") if key == b"ada/walk"]
    assert kept(one) == []


async def test_who_waits_for_a_quota_holds_nobody_up(workers: tuple[Gateway, Gateway]) -> None:
    one, _ = workers
    slow = [one.user(f"slow{number}") for number in range(2)]
    imports = []
    for login in slow:
        one.users.rights.set_quota(login.name, 400, None)
        async with one.client(login) as client:
            imports.append(await begun(client, "walk"))
    async with one.client(one.user("quick")) as client:
        found = await created(client, {"walk.gpx": gpx(500)})
        await upload(client, found, [gpx(500)])
        await run(client, found)
        assert (await ended(client, found))["stored"] == 500
    for login, found in zip(slow, imports, strict=True):
        async with one.client(login) as client:
            assert (await shown(client, found))["state"] == "storing"
            async with client.delete(f"{IMPORTS}/{found['id']}") as answer:
                assert answer.status == 204


async def test_what_runs_at_full_speed_is_stopped(workers: tuple[Gateway, Gateway]) -> None:
    one, _ = workers
    async with one.client(one.user("abe")) as client:
        found = await created(client, {"walk.gpx": gpx(100_000)})
        await upload(client, found, [gpx(100_000)])
        await run(client, found)
        await answered(lambda: shown(client, found), lambda now: now["stored"] > 0)
        async with client.delete(f"{IMPORTS}/{found['id']}") as answer:
            assert answer.status == 204, await answer.text()
    assert 0 < len(fixes_of(one, "abe/walk")) < 100_000
    assert kept(one) == []


async def test_what_is_stopped_and_kept_stays(workers: tuple[Gateway, Gateway]) -> None:
    one, other = workers
    bo = one.user("bo")
    one.users.rights.set_quota("bo", 400, None)
    async with one.client(bo) as client, other.client(bo) as elsewhere:
        found = await begun(client, "walk")
        async with elsewhere.delete(f"{IMPORTS}/{found['id']}?fixes=keep") as answer:
            assert answer.status == 204
        async with elsewhere.delete(f"{IMPORTS}/{found['id']}") as answer:
            assert answer.status == 404
    assert 200 <= len(fixes_of(one, "bo/walk")) < 2000
    assert kept(one) == []


async def test_an_import_is_begun_once(workers: tuple[Gateway, Gateway]) -> None:
    one, other = workers
    cy = one.user("cy")
    async with one.client(cy) as client, other.client(cy) as elsewhere:
        found = await created(client, {"walk.gpx": gpx(500)})
        await upload(client, found, [gpx(500)])
        store = ImportStore(one.folder / "users.db.imports", 0)
        known = store.find("cy", found["id"])
        assert known is not None
        lock = store.lock(known)
        assert lock.held()  # another worker is just about to begin
        async with client.post(f"{IMPORTS}/{found['id']}/run") as answer:
            assert "running already" in (await json_of(answer, 409))["error"]
        lock.close()

        async def begin(by: aiohttp.ClientSession) -> int:
            async with by.post(f"{IMPORTS}/{found['id']}/run") as answer:
                return answer.status

        statuses = await asyncio.gather(*(begin(each) for each in (client, elsewhere) * 5))
        assert sorted(statuses) == [202] + [409] * 9
        assert (await ended(client, found))["stored"] == 500


async def test_who_may_only_look_imports_nothing(workers: tuple[Gateway, Gateway]) -> None:
    one, _ = workers
    dee = one.user("dee")
    async with one.client(dee) as client:
        found = await created(client, {"walk.gpx": b"x"})
        one.users.rights.set_sending("dee", False)

        async def created_now() -> int:
            announced = {"files": [{"name": "a.gpx", "bytes": 1}]}
            async with client.post(IMPORTS, json=announced) as answer:
                return answer.status

        await answered(created_now, lambda status: status == 403)
        headers = {"Upload-Offset": "0"}
        path = f"{IMPORTS}/{found['id']}/files/0"
        async with client.patch(path, data=b"x", headers=headers) as answer:
            assert answer.status == 403
        assert (await shown(client, found))["state"] == "uploading"


def made(store: ImportStore, user: str = "ada", size: int = 10) -> Import:
    files = [ImportedFile(name="a.gpx", bytes=size)]
    return store.create(user, lambda taken: f"walk{len(taken)}", files, now_ms())


def age(store: ImportStore, found: Import, ms: int) -> None:
    moment = now_ms() / 1000 - ms / 1000
    for path in store.path(found).iterdir():
        os.utime(path, (moment, moment))
    found.created = round(moment * 1000)
    store.write(found)
    os.utime(store.path(found) / "import.json", (moment, moment))


def test_what_nobody_goes_on_with_is_removed(tmp_path: Path) -> None:
    store = ImportStore(tmp_path, 1000, 0)
    fresh, old, stored, running = (made(store) for _ in range(4))
    for each in (fresh, old, stored, running):
        store.append(each, 0, 0, [b"x" * 5])
    stored.has_begun_to_store, stored.state = True, "failed"
    running.state = "reading"
    for found in (stored, running, old):
        age(store, found, KEPT_MS + 60_000)
    lock = store.lock(running)
    assert lock.held()
    store.remove_abandoned(now_ms())
    lock.close()
    left = {each.id: sum(store.received(each)) for each in store.of_user("ada")}
    assert left == {fresh.id: 5, stored.id: 0, running.id: 5}


def test_whoever_gets_a_name_later_gets_no_imports_with_it(tmp_path: Path) -> None:
    store = ImportStore(tmp_path, 1000, 0)
    former, own = made(store), made(store)
    age(store, former, 60_000)
    store.forget("ada", own.created - 1000)
    assert [each.id for each in store.of_user("ada")] == [own.id]
    store.forget("ada", None)
    assert store.of_user("ada") == [] and list(tmp_path.iterdir()) == []


def test_a_full_disk_takes_nothing_and_says_so(tmp_path: Path) -> None:
    store = ImportStore(tmp_path, 1000, 0)
    found = made(store)
    store.append(found, 0, 0, [b"12345"])
    full = ImportStore(tmp_path, 1000, 1 << 62)
    with pytest.raises(ImportRefused, match="nearly full") as refused:
        full.append(found, 0, 5, [b"67890"])
    assert refused.value.status == 507
    with pytest.raises(ImportRefused, match="nearly full"):
        made(full)
    assert store.received(found) == [5]
    with pytest.raises(WrongOffset):
        store.append(found, 0, 4, [b"67890"])


def test_a_record_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    store = ImportStore(tmp_path, 1000, 0)
    broken, sound = made(store), made(store)
    (store.path(broken) / "import.json").write_bytes(b"{")
    assert [each.id for each in store.of_user("ada")] == [sound.id]
    assert store.find("ada", broken.id) is None
    assert store.users() == {"ada"}
