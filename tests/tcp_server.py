"""A TCP server for tests that closes all its connections at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from waylog.network.stop_accepting import stop_accepting

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def tcp_server(serve: Serve, port: int = 0) -> AsyncIterator[int]:
    """Run a server on the loopback address; yield its port.

    A connection is closed when `serve` returns, and at the end. Up to Python 3.11 asyncio leaves
    one open whose handler was cancelled before it began, until the garbage collector warns about
    it during another test.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            return

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def end(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            writer.close()

        task = asyncio.create_task(connection(reader, writer))
        tasks.add(task)
        task.add_done_callback(end)

    server = await asyncio.start_server(accept, "127.0.0.1", port, backlog=4096)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_accepting(server)
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next iteration of the loop
        await server.wait_closed()
