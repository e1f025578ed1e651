"""Handing sessions over to the workers that their clients have connected to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.mqtt.packets.message import Message
    from gateway.mqtt.sessions.router import Router
    from gateway.mqtt.sessions.session import Session

#: The answer to a worker that claims a session which cannot be handed over yet.
ASK_AGAIN: Final = b""
#: Seconds to wait for the log before a hand-over; less than the claimer waits for an answer.
HAND_OVER_S: Final = 4.0


class Handover:
    """Hands over the sessions of one router."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def hand_over(
        self,
        key: tuple[str, str],
        came: tuple[int, str],
        answer: Callable[[bytes | None], object],
        now: float,
        announce: Callable[[bytes], object] | None = None,
    ) -> None:
        """Give up a session to the worker that its client has come to.

        `came` is the epoch of the client's connection there and that worker's name. `answer`
        receives the session's record, or None if the session is not here. It receives ASK_AGAIN
        while the session is on its way here, if its client has come here later than there, and
        while the log has not answered what the client has published here, which must neither be
        lost nor stored twice.

        With `announce`, a session with subscriptions is announced first. It stays here until the
        other worker receives what is published for its client; then `hand_over_now` follows.
        """
        _, claimer = came
        session = self._router.sessions.get(key)
        # While a session is claimed, none that is kept is here: it begins with the answer.
        on_its_way = key in self._router.claiming
        if on_its_way or self._came_later(session, came):
            answer(ASK_AGAIN)
            return
        if session is None or not session.expiry_interval_s:
            answer(self._handed_over(key, claimer))
            return
        if session.on_settled is not None:
            answer(ASK_AGAIN)
            return
        if session.connection is not None:
            self._router.take_over(session, now)

        def settled(then: float) -> None:
            back = session.connection is not None or session.ended
            late = then > now + HAND_OVER_S
            journal = self._router.journal
            if back or late:
                answer(ASK_AGAIN)
            elif announce is None or journal is None or not session.subscriptions:
                answer(self._handed_over(key, claimer))
            else:
                announce(journal.announcement(session))

        if session.receiving:
            session.on_settled = settled
        else:
            settled(now)

    def hand_over_now(
        self, key: tuple[str, str], came: tuple[int, str], keep: Callable[[Message], bool]
    ) -> bytes | None:
        """Give up a session that `hand_over` has announced, and return its record or ASK_AGAIN.

        `keep` tells which queued messages belong to the record; the other worker has received the
        rest itself.
        """
        session = self._router.sessions.get(key)
        if session is None and key in self._router.claiming:
            return ASK_AGAIN
        if session is not None:
            if session.connection is not None or self._came_later(session, came):
                return ASK_AGAIN
            session.keep_queued(keep)
        return self._handed_over(key, came[1])

    def _came_later(self, session: Session | None, came: tuple[int, str]) -> bool:
        journal = self._router.journal
        if session is None or journal is None:
            return False
        return (session.epoch, journal.worker) > came

    def take_back(self, key: tuple[str, str], record: bytes) -> None:
        """Keep a session that was handed over to a worker that has gone."""
        if self._router.journal is not None and key not in self._router.sessions:
            self._router.journal.claimed(key, record)

    def _handed_over(self, key: tuple[str, str], claimer: str) -> bytes | None:
        if self._router.journal is None:
            return None
        record = self._router.journal.hand_over(key, self._router.sessions.get(key), claimer)
        self._router.give_up(key)
        return record
