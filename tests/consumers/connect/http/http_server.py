"""An aiohttp server in a thread, which notes what it gets and answers as it is told."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from tests.ports import reserved_ports


class Seen(NamedTuple):
    """A request that has come."""

    method: str
    path: str  # with the query
    headers: dict[str, str]
    body: bytes
    connection: int  # the port of the client


Answer = tuple[int, str] | tuple[int, str, dict[str, str]]


class HttpServer:
    """Answers 200 unless `answer` says something else."""

    def __init__(self, certificate: Path | None = None) -> None:
        """With a certificate (PEM, with its key) it serves HTTPS."""
        (self.port,) = reserved_ports(1)
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(certificate)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        self.seen: list[Seen] = []
        self.answer: Callable[[Seen], Answer | None] = lambda _: None
        #: Returns "drop" or "hang" for a request that gets no answer, "cut" or "endless" for one
        #: whose answer breaks off or does not end.
        self.ignores: Callable[[Seen], str | None] = lambda _: None
        #: Whether a connection ends with its first answer, which says nothing of it.
        self.closes_connections = False
        self.delay_s = 0.0
        self.at_once = self.at_once_max = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def bodies(self) -> list[str]:
        return [each.body.decode() for each in self.seen]

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,))
        self._thread.start()
        assert ready.wait(30)

    def stop(self) -> None:
        """Stop, cutting connections."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        assert self._thread is not None
        self._thread.join()

    @contextmanager
    def running(self) -> Iterator[HttpServer]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def _run(self, ready: threading.Event) -> None:
        loop = self._loop = asyncio.new_event_loop()
        runner = loop.run_until_complete(self._begin())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(_end(runner))
        loop.close()

    async def _begin(self) -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(
            runner, "127.0.0.1", self.port, reuse_address=True, ssl_context=self._tls
        ).start()
        return runner

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        peer: Any = request.transport and request.transport.get_extra_info("peername")
        seen = Seen(
            *(request.method, request.path_qs, dict(request.headers), await request.read()),
            peer[1] if peer else 0,
        )
        self.seen.append(seen)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.at_once -= 1
        ignored = self.ignores(seen)
        if ignored == "hang":
            await asyncio.Event().wait()
        elif ignored == "drop" and request.transport is not None:
            request.transport.abort()
        status, text, *headers = self.answer(seen) or (200, "ok")
        if ignored in ("cut", "endless"):
            begun = web.StreamResponse(status=status)
            await begun.prepare(request)
            await begun.write(text.encode())
            if ignored == "endless":
                await asyncio.Event().wait()
            elif request.transport is not None:
                request.transport.close()
            return begun
        make = _LastResponse if self.closes_connections else web.Response
        return make(status=status, text=text, headers=headers[0] if headers else None)


class _LastResponse(web.Response):
    """Closes its connection, without having said so."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        self._transport = request.transport
        return await super().prepare(request)

    async def write_eof(self, data: bytes = b"") -> None:
        await super().write_eof(data)
        if self._transport is not None:
            self._transport.close()


async def _end(runner: web.ServerRunner) -> None:
    await runner.cleanup()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
