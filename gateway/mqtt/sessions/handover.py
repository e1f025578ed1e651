"""Sessions that go to the worker to which their client has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.mqtt.sessions.router import Router
    from gateway.mqtt.sessions.session import Message, Session

#: What another worker is told that cannot have a session yet, and how long it is worth waiting for
#: the log: less than the other worker waits for an answer.
ASK_AGAIN: Final = b""
HAND_OVER_S: Final = 4.0


class Handover:
    """Of one router."""

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
        """Give up a session to the worker that its client has come to: its epoch and name.

        `answer` gets its record; None if it is not here; ASK_AGAIN while it is on its way here or
        its client has come here later than there, and while the log has not answered what the
        client has published here, which must neither be lost nor stored twice.

        With `announce` a session with subscriptions is told first what it is, and stays here until
        the other worker takes what is published for its client: `hand_over_now` follows.
        """
        _, claimer = came
        session = self._router.sessions.get(key)
        # Whatever is here is not kept then: a session that is begins with the answer.
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
        """Give up a session that was announced, as `hand_over` does.

        Of what waits that is not to be kept, the other worker has got all itself.
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
        """Keep a session that was handed over to a worker which is gone."""
        if self._router.journal is not None and key not in self._router.sessions:
            self._router.journal.claimed(key, record)

    def _handed_over(self, key: tuple[str, str], claimer: str) -> bytes | None:
        if self._router.journal is None:
            return None
        record = self._router.journal.hand_over(key, self._router.sessions.get(key), claimer)
        self._router.give_up(key)
        return record
