"""Closes a listening server without losing a connection that it has just accepted."""

from __future__ import annotations

import asyncio


async def stop_accepting(server: asyncio.Server) -> None:
    """Close a server; the protocols of all connections that it has accepted have been told.

    asyncio accepts a connection, makes its transport and calls `connection_made` in three
    iterations of the loop. If the server is closed after the first, its socket stays open with
    nobody who reads it (CPython's issue 109564). If an owner closes its connections before the
    last, it misses one.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    server.close()
