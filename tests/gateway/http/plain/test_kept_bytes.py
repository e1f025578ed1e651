"""Bytes that wait on a connection are charged to whoever has sent them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.http.plain.kept_bytes import KeptBytes
from gateway.http.plain.origin import Origin
from gateway.http.plain.shared_state import SharedState
from tests.gateway.parts import parts


async def test_bytes_are_charged_to_whoever_is_known_to_have_sent_them(tmp_path: Path) -> None:
    async with parts(tmp_path) as services:
        shared = SharedState(services, asyncio.Protocol)
        shares, origin = shared.partial, Origin(shared)
        assert origin.enter(asyncio.Transport({"peername": ("192.0.2.1", 1)})) is None
        assert origin.party == "192.0.2.1"
        kept = KeptBytes(shares, origin)
        assert kept.replace(b"abc")
        assert shares.held_by("192.0.2.1") == shares.used == 3
        assert kept.replace(b"abcd", "ada")
        assert shares.held_by("ada") == shares.used == 4
        assert kept.replace(b"ab")
        assert shares.held_by("ada") == shares.used == 2
        assert kept.replace(b"")
        assert not shares.used
        # What comes next is nobody's again.
        assert kept.replace(b"a")
        assert shares.held_by("192.0.2.1") == 1
        origin.leave()


async def test_nothing_is_kept_of_what_is_too_much(tmp_path: Path) -> None:
    async with parts(tmp_path) as services:
        shared = SharedState(services, asyncio.Protocol)
        kept = KeptBytes(shared.partial, Origin(shared))
        assert kept.replace(b"abc")
        assert not kept.replace(bytes(services.limits.partial_bytes_each_max + 1))
        assert (kept.data, shared.partial.used) == (b"", 0)
