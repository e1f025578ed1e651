"""A client comes to a worker: its session is fetched from the worker that has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gateway.mqtt.handover import ASK_AGAIN
from gateway.mqtt.journal import Journal
from gateway.mqtt.requests import AnswerLate, RelayUnavailable
from gateway.mqtt.router import Router
from gateway.mqtt.stored import SessionKey


class SessionBusy(Exception):
    """Another worker cannot hand over a session yet: its client has to come again."""


class SessionClaims:
    """Of one worker; `request(kind, ...)` asks the others, and raises RelayUnavailable."""

    def __init__(
        self, router: Router, journal: Journal, request: Callable[..., Awaitable[Any]]
    ) -> None:
        self._router = router
        self._journal = journal
        self._request = request

    async def claim(self, key: SessionKey, clean_start: bool) -> None:
        """Have the session of a client here before it is connected. Raises SessionBusy."""
        router, journal = self._router, self._journal
        # Of what nobody has to keep, it is enough to tell the others (Neighbours.connected).
        if key in router.sessions or (clean_start and not journal.knows(key)):
            return
        if key in router.claiming:
            raise SessionBusy
        router.claiming.add(key)
        late = partial(self._take, key)
        try:
            stored = await self._request("claim", journal.owner_of(key), *key, late=late)
        except AnswerLate as error:
            raise SessionBusy from error
        except RelayUnavailable:
            router.claiming.discard(key)
            return
        self._take(key, stored)
        if stored == ASK_AGAIN:
            raise SessionBusy

    def _take(self, key: SessionKey, stored: Any) -> None:
        """A claim is settled: what was handed over is nowhere else, whoever still waits for it."""
        self._router.claiming.discard(key)
        if stored is not None and stored != ASK_AGAIN:
            self._journal.claimed(key, stored)
