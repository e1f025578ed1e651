"""Look-ups of names that users choose, in threads of their own.

A look-up cannot be ended: where no nameserver answers it holds its thread for a minute and more. In
the event loop's pool a few of them would keep everybody from looking up anything, also the brokers.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

from aiohttp.abc import ResolveResult

from waylog.network.shares import Shares
from waylog.process.threads import start_thread

#: Look-ups that hold a thread, also after nobody waits for them any more; of all and of one user.
_THREADS_MAX: Final = 32
_THREADS_EACH_MAX: Final = 4


class NameLookups:
    """Looks up names for users, a bounded number at a time."""

    def __init__(self) -> None:
        self._threads = Shares(_THREADS_MAX, _THREADS_EACH_MAX)

    async def look_up(
        self, user: str, host: str, port: int, family: socket.AddressFamily
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raises OSError, at once if too many of a user's wait."""
        if not self._threads.take(user):
            raise OSError(f"too many names of user {user!r} are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def end(addresses: list[ResolveResult], error: Exception | None) -> None:
            self._threads.give_back(user)
            if found.done():
                return  # cancelled meanwhile
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(OSError(f"{host!r} cannot be looked up: {error}"))

        def work() -> None:
            addresses: list[ResolveResult] = []
            failure = None
            try:
                addresses = _addresses(host, port, family)
            except Exception as error:  # the codec of names raises UnicodeError
                failure = error
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(end, addresses, failure)

        try:
            start_thread(work, f"looking up {host}", may_end=lambda: True)
        except RuntimeError as error:
            self._threads.give_back(user)
            raise OSError(f"no thread for looking up a name: {error}") from error
        return await found


def _addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found: list[Any] = socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [
        ResolveResult(
            hostname=host,
            host=address[0],
            port=address[1],
            family=kind,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, protocol, _, address in found
        if kind in (socket.AF_INET, socket.AF_INET6)
    ]
