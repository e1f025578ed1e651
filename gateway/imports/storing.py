"""Stores the fixes of an import as if its user had sent them: within the quota, acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.fixes.submit import Submitter
from gateway.formats import Parsed
from gateway.imports.import_store import ImportRefused
from gateway.users.admission import Admission, QuotaExceeded, SendingNotAllowed
from gateway.users.auth import Identity
from waylog.kafka.clients import AppendError
from waylog.messages import Fix

_SUBMITTED_AT_ONCE: Final = 25
_STORED_AT_ONCE: Final = 800
_STEPS_A_MINUTE: Final = 4
_APPEND_S: Final = 10.0
_BACKOFF_MIN_S: Final = 0.5
_BACKOFF_MAX_S: Final = 15.0
_QUOTA_WAIT_MAX_S: Final = 30.0


class Storing:
    """Appends fixes to the log, and waits while it, or the user's quota, takes none."""

    def __init__(self, submitter: Submitter, admission: Admission) -> None:
        self._submitter: Final = submitter
        self._admission: Final = admission

    def is_erased(self, device: str) -> bool:
        """Tell whether a device has been erased, so that what it was before is not stored again."""
        return self._submitter.is_erased(device)

    async def store(
        self,
        fixes: Sequence[Fix],
        sender: Callable[[], Identity | None],
        waits: Callable[[str], object],
        stored: Callable[[int], object],
    ) -> None:
        """Return when the log has all of them. Raises ImportRefused if it never will.

        `sender` returns the user with the rights of now, None once revoked. `waits` is told what is
        waited for, `stored` how many more the log has.
        """
        begin = 0
        while begin < len(fixes):
            user = sender()
            if user is None:
                raise ImportRefused(403, "the user has been revoked")
            part = fixes[begin : begin + _step(user)]
            if await self._is_admitted(part, user, waits):
                await self._stored(part, waits)
                stored(len(part))
                begin += len(part)

    async def _stored(self, fixes: Sequence[Fix], waits: Callable[[str], object]) -> None:
        backoff_s = _BACKOFF_MIN_S
        while True:
            try:
                await self._append(fixes)
                return
            except (AppendError, TimeoutError) as error:
                waits(f"the log does not answer: {error}" if str(error) else "the log is away")
            await asyncio.sleep(backoff_s)
            backoff_s = min(_BACKOFF_MAX_S, backoff_s * 2)

    async def _is_admitted(
        self, fixes: Sequence[Fix], user: Identity, waits: Callable[[str], object]
    ) -> bool:
        """Tell whether the quota has room; wait if it has none. Raises ImportRefused."""
        parsed = Parsed(fixes=list(fixes))
        try:
            for _ in self._admission.admit_in_steps(user, parsed):
                await asyncio.sleep(0)
        except SendingNotAllowed as error:
            raise ImportRefused(403, str(error)) from error
        except QuotaExceeded as error:
            waits(str(error))
            await asyncio.sleep(min(_QUOTA_WAIT_MAX_S, error.retry_after_s))
            return False
        if parsed.rejected:
            raise ImportRefused(403, parsed.rejected[0].reason)
        return True

    async def _append(self, fixes: Sequence[Fix]) -> None:
        futures = []
        for begin in range(0, len(fixes), _SUBMITTED_AT_ONCE):
            part = fixes[begin : begin + _SUBMITTED_AT_ONCE]
            futures.append(
                self._submitter.all_stored([self._submitter.submit_location(fix) for fix in part])
            )
            await asyncio.sleep(0)
        done, pending = await asyncio.wait(futures, timeout=_APPEND_S)
        for future in pending:
            # Its error is that of an attempt that nobody waits for any more.
            future.add_done_callback(_seen)
        for future in done:
            if not future.cancelled() and (error := future.exception()) is not None:
                raise AppendError(*error.args)
        if pending or any(future.cancelled() for future in done):
            raise TimeoutError


def _step(user: Identity) -> int:
    """Return how many fixes are admitted at once: of a quota a part, since phones send, too."""
    per_minute = user.rights.fixes_per_minute
    return _STORED_AT_ONCE if per_minute is None else max(1, per_minute // _STEPS_A_MINUTE)


def _seen(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
