"""Many who ask for places at once share a look at the file; nobody waits for one that hangs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from gateway.views import places as views
from gateway.views.places import Places, PlacesUnavailable
from gateway.views.places_file import FILE_NAME


async def test_all_who_wait_share_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(str(tmp_path))
    looks = 0
    to_thread = asyncio.to_thread

    async def counted(*arguments: object) -> object:
        nonlocal looks
        looks += 1
        return await to_thread(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "to_thread", counted)
    async with asyncio.timeout(60):
        await asyncio.gather(*(places.refresh() for _ in range(50)))
        assert 1 <= looks <= 2
        # Who asks later may know of a later change.
        before = looks
        await places.refresh()
    assert looks == before + 1


async def test_a_file_system_that_hangs_keeps_nobody_waiting_and_holds_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(str(tmp_path))
    answers = asyncio.Event()
    threads = 0
    to_thread = asyncio.to_thread

    async def hanging(*arguments: object) -> object:
        nonlocal threads
        threads += 1
        await answers.wait()
        return await to_thread(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "to_thread", hanging)
    monkeypatch.setattr(views, "_STAT_S", 0.01)
    async with asyncio.timeout(60):
        for _ in range(3):
            with pytest.raises(PlacesUnavailable, match="does not answer"):
                await places.refresh()
        assert threads == 1
        monkeypatch.setattr(views, "_STAT_S", 60)
        monkeypatch.setattr(views, "_ASKED_S", 0.01)
        with pytest.raises(PlacesUnavailable, match="takes too long"):
            await places.of_user("ada")
        answers.set()
        await places.refresh()
    assert places.looked_up


async def test_places_that_cannot_be_read_for_lack_of_processes_are_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"")
    places = Places(str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(PlacesUnavailable, match="No such file"):
        await places.refresh()
