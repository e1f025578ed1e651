"""Claims: fetch a client's session from the worker that has it, before the client is connected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.stored import SessionKey
from gateway.mqtt.requests import AnswerLate, RelayUnavailable, ShareUsed
from gateway.mqtt.sessions.handover import ASK_AGAIN
from gateway.mqtt.sessions.router import Router


class SessionBusy(Exception):
    """Another worker cannot hand over a session yet; the client has to connect again later."""


class SessionClaims:
    """The session claims of one worker.

    `request(kind, ...)` asks the other workers and raises RelayUnavailable; `clock` is the router's
    monotonic time (s).
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
        """Fetch the session of a client before it is connected; raises SessionBusy."""
        router, journal = self._router, self._journal
        # Other workers need not be asked about a session that nobody has to keep: it is enough to
        # tell them (WorkerPeers.connected). A session that is kept from now on is known to them
        # before its client receives CONNACK.
        live = router.live(key)
        is_kept = live is not None and bool(live.expiry_interval_s)
        if is_kept or (clean_start and not journal.knows(key)):
            return
        if key in router.claiming:
            raise SessionBusy
        router.claiming[key] = 0
        epoch = journal.next_epoch(key)
        late = partial(self._take_late, key, epoch)
        try:
            stored = await self._request(
                "claim", journal.owner_of(key), *key, epoch, user=key[0], late=late
            )
        except AnswerLate as error:
            self._forget(key)
            raise SessionBusy from error
        except ShareUsed as error:
            # The others can be reached, and one of them may have the session.
            del router.claiming[key]
            raise SessionBusy from error
        except RelayUnavailable:
            del router.claiming[key]
            if router.neighbours is not None:
                router.neighbours.keep_unsent(key)
            return
        self._take(key, epoch, stored)
        if stored == ASK_AGAIN:
            self._forget(key)
            raise SessionBusy

    def _take_late(self, key: SessionKey, epoch: int, stored: Any) -> None:
        """Keep the session of an answer that came too late: its client counts as away."""
        self._take(key, epoch, stored)
        self._router.keep_arrived(key, self._clock())

    def _forget(self, key: SessionKey) -> None:
        if self._router.neighbours is not None:
            self._router.neighbours.arriving.forget(key)

    def _take(self, key: SessionKey, epoch: int, stored: Any) -> None:
        """Settle a claim: the session handed over exists nowhere else, so it is always kept."""
        served = self._router.claiming.pop(key)
        if stored is not None and stored != ASK_AGAIN:
            self._journal.claimed(key, stored, epoch, served)
