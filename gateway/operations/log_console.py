"""Questions to the log that block, asked in a few threads and in turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from confluent_kafka.admin import AdminClient

from gateway.limits.pools import Turns
from waylog.administration.log_access import LogAccess
from waylog.kafka.clients import client_config

T = TypeVar("T")

#: Questions at the same time: in total and of one administrator; more wait, up to so many of each.
_QUESTIONS: Final = (3, 2)
_READINGS: Final = (2, 1)
_WAITING_EACH_MAX: Final = 8
#: The sampling of the overview has a thread of its own.
_THREADS: Final = _QUESTIONS[0] + _READINGS[0] + 1


class LogConsole:
    """A way to the log for administrators.

    Those who read records do not keep others from asking; nobody keeps the event loop.
    """

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self.access: Final = LogAccess(bootstrap_servers, {}, f"{client_id}-operations")
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="operations")
        self._questions = Turns(*_QUESTIONS, _WAITING_EACH_MAX)
        self._readings = Turns(*_READINGS, _WAITING_EACH_MAX)
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None

    def admin(self) -> AdminClient:
        """Return the admin client, which threads share."""
        with self._lock:
            if self._admin is None:
                access = self.access
                self._admin = AdminClient(
                    client_config(access.bootstrap_servers, access.client_id)
                    | dict(access.properties)
                )
            return self._admin

    async def ask(self, party: str, question: Callable[[], T]) -> T:
        """Return what a question answers, in turn; raises ShareExceeded if too many wait."""
        async with self._questions.turn(party):
            return await self.beside(question)

    async def read(self, party: str, reading: Callable[[], T]) -> T:
        """Do the same for what reads records."""
        async with self._readings.turn(party):
            return await self.beside(reading)

    async def beside(self, work: Callable[[], T]) -> T:
        """Run work in a thread at once, for callers that limit themselves."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        """Begin nothing more; what is being asked has limits of its own."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._admin = None
