"""The download of OpenStreetMap extracts from a mirror with the layout of Geofabrik's server.

A mirror has `index-v1-nogeom.json` (or `index-v1.json`), which lists the regions and their files,
the files (`europe/liechtenstein-latest.osm.pbf`), and the MD5 sum of each file (`....md5`). When a
download breaks off, the received part stays on disk. The next attempt requests the rest, and uses
it only if the server still has the same file.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from waylog.malformed import MALFORMED

_INDEXES: Final = ("index-v1-nogeom.json", "index-v1.json")
_INDEX_BYTES_MAX: Final = 64 * 1024 * 1024
_MD5_BYTES_MAX: Final = 1024
_CHUNK_BYTES: Final = 256 * 1024
_ATTEMPTS: Final = 5  # consecutive attempts without a received byte
_PAUSE_S: Final = 1.0
_SPARE_BYTES: Final = 64 * 1024 * 1024
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)

#: Called with the bytes received so far and the total size, which is None if it is unknown.
Progress = Callable[[int, int | None], None]


class DownloadFailed(Exception):
    """The file could not be downloaded; the message says why, and what helps."""


class _Properties(msgspec.Struct):
    id: str
    name: str = ""
    parent: str | None = None
    urls: dict[str, str] = {}
    countries: list[str] = msgspec.field(name="iso3166-1:alpha2", default_factory=list)


class _Feature(msgspec.Struct):
    properties: _Properties


class _Index(msgspec.Struct):
    features: list[_Feature]


@dataclass(frozen=True)
class Region:
    """One region of a mirror."""

    id: str
    name: str
    parent: str | None
    countries: tuple[str, ...]  # ISO 3166-1 codes
    path: str  # path of its extract, relative to the mirror's address


@dataclass(frozen=True)
class Downloaded:
    """The result of a download."""

    path: Path
    size_bytes: int
    md5: str
    received_bytes: int  # less than the size when an earlier download was resumed
    already_there: bool = False


class Mirror:
    """A server with extracts; use it as an asynchronous context manager."""

    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise DownloadFailed(f"a mirror is an http or https address, not {url!r}")
        self._url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Mirror:
        # Take proxies and certificates from the environment.
        self._session = aiohttp.ClientSession(
            timeout=_TIMEOUT, trust_env=True, auto_decompress=True, raise_for_status=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open_session.close()

    @property
    def _open_session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "use `async with`"
        return self._session

    async def regions(self) -> list[Region] | None:
        """Return the regions that have an extract, or None if the mirror has no list."""
        for name in _INDEXES:
            content = await self._get(f"{self._url}/{name}", _INDEX_BYTES_MAX)
            if content is None:
                continue
            try:
                index = msgspec.json.decode(content, type=_Index)
            except MALFORMED as error:
                raise DownloadFailed(f"{self._url}/{name} is no index: {error}") from None
            return [
                Region(
                    each.id,
                    each.name,
                    each.parent,
                    tuple(each.countries),
                    urlsplit(each.urls["pbf"]).path.lstrip("/"),
                )
                for feature in index.features
                if (each := feature.properties).urls.get("pbf", "").endswith(".osm.pbf")
            ]
        return None

    async def find(self, text: str) -> Region:
        """Return the region with this id, path, name or country code.

        Raises DownloadFailed, with suggestions if there are similar names.
        """
        regions = await self.regions()
        if regions is not None:
            return find_region(regions, text)
        if not re.fullmatch(r"[\w-]+(/[\w-]+)*", text):
            raise DownloadFailed(
                f"{self._url} has no {_INDEXES[0]}; name the region by its path, as "
                "europe/liechtenstein"
            )
        return Region(text, text, None, (), f"{text}-latest.osm.pbf")

    async def download(
        self,
        path: str,
        target: Path,
        progress: Progress = lambda _done, _total: None,
    ) -> Downloaded:
        """Download the file at a path relative to the mirror's address; raises DownloadFailed."""
        url = f"{self._url}/{path}"
        md5 = await self._md5(url)
        there = await asyncio.to_thread(_already_there, target, md5)
        if there is not None:
            return there
        partial = _Partial(target)
        await self._receive_all(url, partial, progress)
        if (found := await asyncio.to_thread(_md5_of, partial.path)) != md5:
            partial.remove()
            raise DownloadFailed(
                f"{url}: received a file with MD5 {found}, the mirror says {md5}; perhaps it is "
                "being replaced there: try again in some minutes"
            )
        size = partial.size
        partial.finish(target)
        return Downloaded(target, size, md5, partial.received)

    async def _receive_all(self, url: str, partial: _Partial, progress: Progress) -> None:
        failures = 0
        while True:
            before = partial.received
            problem = ""
            try:
                if await self._receive(url, partial, progress):
                    return
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
                problem = f": {type(error).__name__}"
            failures = failures + 1 if partial.received == before else 0
            if failures >= _ATTEMPTS:
                raise DownloadFailed(
                    f"{url} breaks off again and again{problem}; what was received stays in "
                    f"{partial.path}, and the same command goes on from there"
                )
            await asyncio.sleep(_PAUSE_S * failures)

    async def _receive(self, url: str, partial: _Partial, progress: Progress) -> bool:
        """Send one request; return whether the file is complete."""
        headers = {"Accept-Encoding": "identity"}
        if partial.size and partial.validator:
            # With If-Range, the server sends a changed file from its beginning.
            headers |= {"Range": f"bytes={partial.size}-", "If-Range": partial.validator}
        async with self._open_session.get(url, headers=headers) as response:
            if response.status == 416:
                # The server's file is not longer than the received part, so it is another file.
                partial.remove()
                return False
            if response.status not in (200, 206):
                raise DownloadFailed(f"{url}: the mirror answers {response.status}")
            begin = _begin_of(response) if response.status == 206 else 0
            if begin != partial.size:
                partial.remove()
                if begin:
                    return False
            length = response.content_length
            total = None if length is None else begin + length
            if length is not None:
                _check_space(partial.path, length)
            partial.note(_validator(response))
            progress(begin, total)
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                partial.append(chunk)
                progress(partial.size, total)
            return total is None or partial.size == total

    async def _md5(self, url: str) -> str:
        content = await self._get(f"{url}.md5", _MD5_BYTES_MAX)
        if content is None:
            raise DownloadFailed(f"there is no {url}.md5: without it nothing can be verified")
        match = re.match(rb"([0-9a-fA-F]{32})\b", content)
        if match is None:
            raise DownloadFailed(f"{url}.md5 is no MD5 sum")
        return match[1].decode().lower()

    async def _get(self, url: str, bytes_max: int) -> bytes | None:
        """Return the content of a small file, or None if it is missing; raises DownloadFailed."""
        try:
            async with self._open_session.get(url) as response:
                if response.status == 404:
                    return None
                if response.status != 200:
                    raise DownloadFailed(f"{url}: the mirror answers {response.status}")
                content = bytearray()
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    content += chunk
                    if len(content) > bytes_max:
                        raise DownloadFailed(f"{url} is longer than {bytes_max} bytes")
                return bytes(content)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DownloadFailed(f"{url} cannot be reached: {type(error).__name__}") from None


class _Partial:
    """An incomplete file, with the validator that identifies the file on the server."""

    def __init__(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self.received = 0
        self.path = target.with_name(f"{target.name}.part")
        self._note = target.with_name(f"{target.name}.part.etag")

    @property
    def size(self) -> int:
        """Number of bytes that have been received."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def validator(self) -> str | None:
        """The ETag or modification date of the server's file."""
        try:
            return self._note.read_text(encoding="latin-1").strip() or None
        except FileNotFoundError:
            return None

    def note(self, validator: str | None) -> None:
        """Store the validator of the file that is being received."""
        self._note.write_text(validator or "", encoding="latin-1")

    def append(self, chunk: bytes) -> None:
        """Append received bytes."""
        with self.path.open("ab") as file:
            file.write(chunk)
        self.received += len(chunk)

    def finish(self, target: Path) -> None:
        """Move the complete file to its place."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        self.remove()

    def remove(self) -> None:
        """Remove the received part, so that the download starts again."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def find_region(regions: Sequence[Region], text: str) -> Region:
    """Return the region with this id, path, name or country code; raises DownloadFailed."""
    wanted = text.strip().lower()
    tests: tuple[Callable[[Region], Any], ...] = (
        lambda region: region.id.lower() == wanted,
        lambda region: region.path.lower() == f"{wanted}-latest.osm.pbf",
        lambda region: region.name.lower() == wanted,
        lambda region: [code.lower() for code in region.countries] == [wanted],
    )
    for test in tests:
        found = [region for region in regions if test(region)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(region.id for region in found[:10])
            raise DownloadFailed(f"{text!r} may be one of {ids}")
    names = {region.id: region.id for region in regions}
    names |= {region.name.lower(): region.id for region in regions}
    close = dict.fromkeys(names[name] for name in difflib.get_close_matches(wanted, names, n=5))
    hint = f"; perhaps {', '.join(close)}" if close else ""
    raise DownloadFailed(f"the mirror has no region {text!r}{hint} (`--list` names all)")


def file_name(region: Region) -> str:
    """Return the file name of a region's extract."""
    return PurePosixPath(region.path).name


def _validator(response: aiohttp.ClientResponse) -> str | None:
    etag = response.headers.get("ETag")
    # A weak ETag does not guarantee identical bytes.
    if etag is not None and not etag.startswith("W/"):
        return etag
    return response.headers.get("Last-Modified")


def _begin_of(response: aiohttp.ClientResponse) -> int:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else 0


def _check_space(path: Path, length: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if length + _SPARE_BYTES > free:
        raise DownloadFailed(
            f"{path.parent}: {length:,} bytes are to come, and {free:,} bytes are free"
        )


def _already_there(target: Path, md5: str) -> Downloaded | None:
    if not target.exists() or _md5_of(target) != md5:
        return None
    return Downloaded(target, target.stat().st_size, md5, 0, already_there=True)


def _md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
