"""A client comes to a worker: its session is fetched from the worker that has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.stored import SessionKey
from gateway.mqtt.requests import AnswerLate, RelayUnavailable
from gateway.mqtt.sessions.handover import ASK_AGAIN
from gateway.mqtt.sessions.router import Router


class SessionBusy(Exception):
    """Another worker cannot hand over a session yet: its client has to come again."""


class SessionClaims:
    """Of one worker; `request(kind, ...)` asks the others, and raises RelayUnavailable; `clock` is
    the router's.
    """

    def __init__(
        self,
        router: Router,
        journal: Journal,
        request: Callable[..., Awaitable[Any]],
        clock: Callable[[], float],
    ) -> None:
        self._router = router
        self._journal = journal
        self._request = request
        self._clock = clock

    async def claim(self, key: SessionKey, clean_start: bool) -> None:
        """Have the session of a client here before it is connected. Raises SessionBusy."""
        router, journal = self._router, self._journal
        # Of what nobody has to keep, it is enough to tell the others (Neighbours.connected); a
        # session that is to be kept from now on is known to them before its client hears of it.
        live = router.live(key)
        is_kept = live is not None and bool(live.expiry_interval_s)
        if is_kept or (clean_start and not journal.knows(key)):
            return
        if key in router.claiming:
            raise SessionBusy
        router.claiming.add(key)
        epoch = journal.next_epoch(key)
        late = partial(self._take_late, key, epoch)
        try:
            stored = await self._request("claim", journal.owner_of(key), *key, epoch, late=late)
        except AnswerLate as error:
            self._forget(key)
            raise SessionBusy from error
        except RelayUnavailable:
            router.claiming.discard(key)
            return
        self._take(key, epoch, stored)
        if stored == ASK_AGAIN:
            self._forget(key)
            raise SessionBusy

    def _take_late(self, key: SessionKey, epoch: int, stored: Any) -> None:
        """Nobody waits for a session any more: it is kept for a client that is away."""
        self._take(key, epoch, stored)
        self._router.keep_arrived(key, self._clock())

    def _forget(self, key: SessionKey) -> None:
        if self._router.neighbours is not None:
            self._router.neighbours.arriving.forget(key)

    def _take(self, key: SessionKey, epoch: int, stored: Any) -> None:
        """A claim is settled: what was handed over is nowhere else, whoever still waits for it."""
        self._router.claiming.discard(key)
        if stored is not None and stored != ASK_AGAIN:
            self._journal.claimed(key, stored, epoch)
