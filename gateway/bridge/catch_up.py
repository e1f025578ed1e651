"""Holds back fixes that may be in a part of the log that a bridge has not read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

from gateway.fixes.known_fixes import fix_key
from gateway.fixes.receipts import Receipt
from gateway.fixes.submit import Submitter
from waylog.messages import Fix


class CatchUpSubmitter(Submitter):
    """Holds back fixes from before `before_ms` (Unix time) until `all_known` is set.

    Newer fixes cannot be in the log from before the start. At most `waiting_max` fixes wait: beyond
    that the oldest is appended, and so stored again if the log has it.
    """

    def __init__(
        self,
        *arguments: Any,
        all_known: asyncio.Event,
        before_ms: int,
        waiting_max: int,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._all_known = all_known
        self._before_ms = before_ms
        self._waiting_max = waiting_max
        self._waiting: deque[tuple[Fix, bytes | None, Receipt]] = deque()
        self.unchecked = 0

    def submit_location(self, fix: Fix, traceparent: bytes | None = None) -> Receipt:
        """Append a fix, now or when it is known whether the log has it."""
        if (
            self._all_known.is_set()
            or fix.time > self._before_ms
            or self.receipt_of(fix_key(fix.device, fix.id)) is not None
        ):
            return super().submit_location(fix, traceparent)
        receipt = Receipt()
        self._waiting.append((fix, traceparent, receipt))
        if len(self._waiting) > self._waiting_max:
            self.unchecked += 1
            self._go_on()
        return receipt

    async def submit_waiting(self) -> None:
        """Append the waiting fixes once all keys are known, one in each turn of the loop."""
        await self._all_known.wait()
        while self._waiting:
            self._go_on()
            await asyncio.sleep(0)

    def _go_on(self) -> None:
        fix, traceparent, receipt = self._waiting.popleft()
        appended = super().submit_location(fix, traceparent)
        appended.add_done_callback(partial(_finish, receipt))


def _finish(receipt: Receipt, appended: Receipt) -> None:
    receipt.finish(appended.exception())
