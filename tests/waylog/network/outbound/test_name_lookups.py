"""Look-ups of names that users choose: in threads of their own, and only so many."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from waylog.network.outbound.name_lookups import NameLookups


async def test_a_name_has_its_addresses() -> None:
    found = await NameLookups().look_up("ada", "localhost", 443, socket.AF_INET)
    assert {(each["hostname"], each["host"], each["port"]) for each in found} == {
        ("localhost", "127.0.0.1", 443)
    }


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example", "name.invalid"])
async def test_a_name_that_is_none_has_no_address(host: str) -> None:
    with pytest.raises(OSError, match="cannot be looked up"):
        await NameLookups().look_up("ada", host, 443, socket.AF_UNSPEC)


async def test_who_has_many_look_ups_that_hang_gets_no_more_and_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    look_up = socket.getaddrinfo

    def silent(host: Any, *more: Any, **options: Any) -> Any:
        if host.endswith(".silent"):
            answered.wait(60)
        return look_up("127.0.0.1", *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    lookups = NameLookups()

    async def asked(user: str, name: str) -> bool:
        try:
            return bool(await lookups.look_up(user, name, 443, socket.AF_INET))
        except OSError:
            return False

    try:
        async with asyncio.timeout(60):
            hanging = [asyncio.create_task(asked("ada", f"{each}.silent")) for each in range(4)]
            await asyncio.sleep(0)
            assert not await asked("ada", "good")
            assert await asked("bob", "good")
            # Who waits for them no longer does not have their threads back.
            for each in hanging[:2]:
                each.cancel()
            await asyncio.sleep(0)
            assert not await asked("ada", "good")
            answered.set()
            assert await asyncio.gather(*hanging[2:]) == [True, True]
            while not await asked("ada", "good"):
                await asyncio.sleep(0.01)
    finally:
        answered.set()
