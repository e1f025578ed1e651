"""Uploads files as the page does, and waits for what becomes of them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.gateway.running import Gateway, answered, json_of
from waylog.messages import Fix, decode_fix

IMPORTS = "/v1/imports"
#: Of the tracks: 2025-05-30T00:00:00Z.
BEGIN_S = 1_748_563_200


def gpx(count: int, *, begin_s: int = BEGIN_S, lat: float = 47.1) -> bytes:
    """Return a track with a point each second."""
    points = "".join(
        f'<trkpt lat="{lat + index / 100_000:.5f}" lon="9.5"><time>{_iso(begin_s + index)}</time>'
        "</trkpt>"
        for index in range(count)
    )
    return (
        '<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1">'
        f"<trk><trkseg>{points}</trkseg></trk></gpx>"
    ).encode()


def _iso(seconds: int) -> str:
    from waylog.replay.readers.times import format_time

    return format_time(seconds * 1000)


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as written:
        for name, each in members.items():
            written.writestr(name, each)
    return content.getvalue()


async def created(
    client: aiohttp.ClientSession, files: Mapping[str, bytes], **members: Any
) -> dict[str, Any]:
    """Announce files."""
    announced = [{"name": name, "bytes": len(content)} for name, content in files.items()]
    async with client.post(IMPORTS, json={"files": announced, **members}) as answer:
        found: dict[str, Any] = await json_of(answer, 201)
        return found


async def upload(
    client: aiohttp.ClientSession, found: dict[str, Any], contents: Iterable[bytes]
) -> None:
    """Send the files in parts."""
    for number, content in enumerate(contents):
        for begin in range(0, len(content), 1_000_000):
            part = content[begin : begin + 1_000_000]
            async with client.patch(
                f"{IMPORTS}/{found['id']}/files/{number}",
                data=part,
                headers={"Upload-Offset": str(begin)},
            ) as answer:
                assert (await json_of(answer))["received"] == begin + len(part)


async def shown(client: aiohttp.ClientSession, found: dict[str, Any]) -> dict[str, Any]:
    """Return the import as it is now."""
    async with client.get(f"{IMPORTS}/{found['id']}") as answer:
        now: dict[str, Any] = await json_of(answer)
        return now


async def run(client: aiohttp.ClientSession, found: dict[str, Any]) -> None:
    """Let it be read."""
    async with client.post(f"{IMPORTS}/{found['id']}/run") as answer:
        await json_of(answer, 202)


async def ended(client: aiohttp.ClientSession, found: dict[str, Any]) -> dict[str, Any]:
    """Wait until it has ended."""
    return await answered(
        lambda: shown(client, found),
        lambda now: now["state"] not in {"waiting", "reading", "storing"},
    )


async def imported(
    client: aiohttp.ClientSession, files: Mapping[str, bytes], **members: Any
) -> dict[str, Any]:
    """Upload files, let them be read, and return what has become of them."""
    found = await created(client, files, **members)
    await upload(client, found, files.values())
    await run(client, found)
    return await ended(client, found)


def fixes_of(gateway: Gateway, device: str) -> list[Fix]:
    """Return the fixes of a device that the log has."""
    return [
        decode_fix(value) for key, value in gateway.records("location") if key == device.encode()
    ]


def kept(gateway: Gateway) -> list[Path]:
    """Return the uploaded files that the platform still has."""
    folder = gateway.folder / "users.db.imports"
    return [path for path in folder.glob("*/*/*") if path.name.isdecimal()]
