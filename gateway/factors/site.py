"""The site that a passkey belongs to."""

from __future__ import annotations

from typing import NamedTuple


class Site(NamedTuple):
    """The page that asks: its origin as the browser sent it, and the host that passkeys are of."""

    origin: str
    rp_id: str
