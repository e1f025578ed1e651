"""Tile servers that the operator of a gateway offers to the page as base maps.

`--map-url` and `--satellite-url` name them. Their origins get into the page's content security
policy, so nothing is taken that could say more there than one origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

#: The base maps, as the page names them.
Name = Literal["map", "satellite"]
Kind = Literal["raster", "vector", "tilejson"]

_BYTES_MAX: Final = 2000
_ATTRIBUTION_MAX: Final = 300
_PLACES: Final = ("{z}", "{x}", "{y}")
#: What RFC 3986 lets be in a URL, and the braces of a template. Of these, a policy takes `;` and
#: `,` for the end of a directive, and `'` for the begin of a keyword.
_SOUND: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&()*+=%{}]+")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_VECTOR: Final = (".pbf", ".mvt")


@dataclass(frozen=True)
class TileServer:
    """A base map."""

    name: Name
    #: With {z}, {x} and {y}, or the address of a TileJSON.
    url: str
    kind: Kind
    #: Plain text.
    attribution: str
    origin: str


def tile_server(name: Name, url: str, attribution: str | None = None) -> TileServer:
    """Read what an operator has written. Raises ValueError, whose message says what is wrong."""
    origin, host, path = _parts(url)
    braces = re.findall(r"\{[^{}]*\}", url)
    kind: Kind = "raster"
    if not braces and path.endswith(".json"):
        kind = "tilejson"
    else:
        missing = [place for place in _PLACES if place not in braces]
        if missing:
            raise ValueError(
                f"{url}: {' and '.join(missing)} is missing; a template such as "
                "https://tiles.example.org/{z}/{x}/{y}.png is expected, or the URL of a TileJSON "
                "that ends in .json"
            )
        if path.endswith(_VECTOR):
            kind = "vector"
    other = [brace for brace in braces if brace not in _PLACES]
    if other or re.search(r"[{}]", re.sub(r"\{[^{}]*\}", "", url)):
        raise ValueError(f"{url}: only {', '.join(_PLACES)} may be in braces")
    if name == "satellite" and kind == "vector":
        raise ValueError(f"{url}: vector tiles are no pictures; images (.png, .jpg, .webp) are")
    said = host if attribution is None else attribution.strip()
    if not said or len(said) > _ATTRIBUTION_MAX or not said.isprintable():
        raise ValueError(f"the attribution has 1 to {_ATTRIBUTION_MAX} characters on one line")
    return TileServer(name, url, kind, said, origin)


def _parts(url: str) -> tuple[str, str, str]:
    """Return origin, host and path; raises ValueError."""
    if len(url) > _BYTES_MAX:
        raise ValueError(f"a URL has at most {_BYTES_MAX} characters")
    if not _SOUND.fullmatch(url):
        bad = next((each for each in url if not _SOUND.fullmatch(each)), "")
        raise ValueError(f"{url}: {bad!r} cannot be in it; write it as %XX")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url}: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{url}: a URL begins with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError(
            "a URL with a user or a password in it would be told to every browser; a server's own "
            "key can be in the query"
        )
    if host is None or not _HOST.fullmatch(host):
        raise ValueError(f"{url}: the name of one server is expected, without braces")
    named = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{named}{'' if port is None else f':{port}'}", host, parts.path


def content_security_policy(servers: Iterable[TileServer] = ()) -> str:
    """Return the policy of the page: its own files, and the tiles of these servers."""
    origins = "".join(f" {origin}" for origin in sorted({each.origin for each in servers}))
    return (
        f"default-src 'self'; img-src 'self' data: blob:{origins}; worker-src 'self' blob:; "
        f"style-src 'self'; connect-src 'self'{origins}; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )
