"""A queue of passwords to verify, one at a time, that no single client can block.

A verification takes tens of milliseconds and 19 MiB, so only few may wait. Addresses and users take
turns. When the queue is full, the newest entry of the address or user with the most entries is
dropped.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from waylog.process.background import spawn

#: Waiting passwords in total, and of one address.
WAITING_MAX: Final = 64
SHARE_MAX: Final = 16
_PARTIES_MAX: Final = 1024


class QueueFull(Exception):
    """Too many passwords are waiting."""


@dataclass(eq=False, slots=True)
class _Waiting:
    address: str
    user: str
    hashed: str
    password: str
    answer: asyncio.Future[bool]


class PasswordQueue:
    """The queue; used on one event loop. `fits(hashed, password)` runs in a thread."""

    def __init__(self, fits: Callable[[str, str], bool]) -> None:
        self._fits = fits
        self._waiting: list[_Waiting] = []
        self._running: asyncio.Task[None] | None = None
        # The number of the last turn of each address and user.
        self._turn = 0
        self._turns: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="argon2")

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Stop verifying."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._running is not None:
            self._running.cancel()

    async def verify(self, address: str, user: str, hashed: str, password: str) -> bool:
        """Tell whether a password fits. Raises QueueFull.

        `user` is empty for all names that do not exist, so inventing names yields only one share.
        """
        news = _Waiting(address, user, hashed, password, asyncio.get_running_loop().create_future())
        of_address = [each for each in self._waiting if each.address == address]
        if len(of_address) >= SHARE_MAX:
            self._make_room(of_address, news)
        elif len(self._waiting) >= WAITING_MAX:
            self._make_room(self._waiting, news)
        self._waiting.append(news)
        if self._running is None or self._running.done():
            self._running = spawn(self._run(), "verifying passwords")
        return await news.answer

    def _make_room(self, among: list[_Waiting], news: _Waiting) -> None:
        """Drop the newest entry of the address, or else of the user, that has the most in `among`.

        Raises QueueFull if that would be no fairer.
        """
        for name in ("address", "user"):
            counts = Counter(getattr(each, name) for each in among)
            most, count = counts.most_common(1)[0]
            if count > counts[getattr(news, name)] + 1:
                newest = next(each for each in reversed(among) if getattr(each, name) == most)
                self._waiting.remove(newest)
                if not newest.answer.done():
                    newest.answer.set_exception(QueueFull("others have waited for less"))
                return
        raise QueueFull("too many passwords wait to be verified")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            chosen = min(self._waiting, key=self._last_turn)
            self._waiting.remove(chosen)
            if chosen.answer.done():  # the caller no longer waits
                continue
            self._turn += 1
            for party in (("address", chosen.address), ("user", chosen.user)):
                self._turns[party] = self._turn
                self._turns.move_to_end(party)
            while len(self._turns) > _PARTIES_MAX:
                self._turns.popitem(last=False)
            try:
                fits = await loop.run_in_executor(
                    self._threads, self._fits, chosen.hashed, chosen.password
                )
            except Exception as error:
                if not chosen.answer.done():
                    chosen.answer.set_exception(error)
            else:
                if not chosen.answer.done():
                    chosen.answer.set_result(fits)

    def _last_turn(self, waiting: _Waiting) -> tuple[int, int]:
        return (
            self._turns.get(("address", waiting.address), 0),
            self._turns.get(("user", waiting.user), 0),
        )
