"""Many who ask for places at once: they share a look at the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.views.places import Places


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
