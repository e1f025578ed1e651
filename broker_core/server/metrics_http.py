"""HTTP server of the broker: /metrics, /healthz and /readyz for probes, / for people.

The pages contain counts by topic and group, but neither records nor names of users. Readers have to
send the metrics token, if there is one: as a Bearer token, or as a Basic password with any name,
for which a browser asks. Probes need no token. The Host header must be an address, the machine's
own name, or a configured name.

There are a few paths, no request bodies and no keep-alive. aiohttp would do the same, but it takes
a third of the memory of an idle broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Final, Generic, TypeVar

from waylog.config import Endpoint
from waylog.network.acceptor import Acceptor
from waylog.network.connection_pool import ConnectionPool
from waylog.network.served_hosts import ServedHosts
from waylog.observability.metrics_token import is_metrics_token, shown_secret
from waylog.supervision.reserved_ports import is_held

logger = logging.getLogger(__name__)

_REQUEST_BYTES_MAX: Final = 8192
_REQUEST_TIMEOUT_S: Final = 5.0
_CLIENTS_MAX: Final = 64
_PLAIN: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"


_Result = TypeVar("_Result")
_Compute = Callable[[], Coroutine[None, None, _Result]]


class _Shared(Generic[_Result]):
    """Computes something once for all who ask for it meanwhile."""

    def __init__(self, compute: _Compute[_Result]) -> None:
        self._compute = compute
        self._running: asyncio.Task[_Result] | None = None

    async def get(self) -> _Result:
        """Return the result of what is under way, or of a new computation."""
        if self._running is None:
            self._running = asyncio.create_task(self._compute())
            self._running.add_done_callback(self._ended)
        # Whoever stops waiting does not take the result from the others.
        return await asyncio.shield(self._running)

    def close(self) -> None:
        """End what is under way; those who wait are cancelled."""
        if self._running is not None:
            self._running.cancel()

    def _ended(self, _task: asyncio.Task[_Result]) -> None:
        self._running = None


class MetricsServer:
    """Serves the result of `render`: (content type, body), and of `page`, if given: HTML.

    Each is computed once at a time; who asks meanwhile gets the same answer.
    `problems` returns what keeps the broker from serving, by part. Clients may use an address, the
    machine's name, or one of `hosts`. `token` is required except by probes; None requires none.
    `connections` bounds all connections of the process.
    """

    def __init__(
        self,
        render: _Compute[tuple[str, bytes]],
        problems: Callable[[], Mapping[str, str]],
        page: _Compute[bytes] | None = None,
        hosts: tuple[str, ...] = (),
        token: str | None = None,
        *,
        connections: ConnectionPool | None = None,
    ) -> None:
        self._token = token
        self._pool = (connections or ConnectionPool(_CLIENTS_MAX)).part(_CLIENTS_MAX, "metrics")
        self._metrics = _Shared(render)
        self._problems = problems
        self._page = None if page is None else _Shared(page)
        self._names = hosts
        self._hosts = ServedHosts()
        self._acceptor: Acceptor | None = None
        self._clients: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    def start(self, endpoint: Endpoint) -> Endpoint:
        """Listen; return the address with the actual port. Raises OSError."""
        self._hosts = ServedHosts(endpoint.host, self._names)
        self._acceptor = Acceptor(self._protocol)
        self._acceptor.bind(endpoint, reuse_port=is_held(endpoint))
        self._acceptor.listen()
        return endpoint.bound_to(self._acceptor.address)

    async def close(self) -> None:
        """Stop listening, and abort open connections."""
        if self._acceptor is not None:
            acceptor, self._acceptor = self._acceptor, None
            await acceptor.close()
        for writer in list(self._clients):
            writer.transport.abort()
        self._metrics.close()
        if self._page is not None:
            self._page.close()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=_REQUEST_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, self._accept)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        party = self._pool.enter(writer.transport)
        if party is None:
            writer.transport.abort()
            return
        self._clients[writer] = asyncio.create_task(self._serve(reader, writer, party))

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, party: str
    ) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
            writer.close()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        except Exception:
            logger.exception("a request for metrics could not be answered")
            writer.transport.abort()
        finally:
            del self._clients[writer]
            self._pool.leave(party)

    def _may_read(self, fields: list[bytes]) -> bool:
        return self._token is None or any(
            is_metrics_token(shown_secret(value), self._token)
            for value in _values_of(b"authorization", fields)
        )

    async def _answer(self, head: bytes) -> bytes:
        first, *fields = head.split(b"\r\n")
        words = first.split(b" ")
        more = ""
        method, path = (words[0], words[1].split(b"?")[0]) if len(words) == 3 else (b"", b"")
        if not all(self._hosts.serves(host) for host in _values_of(b"host", fields)):
            # DNS rebinding: a page whose name resolves to this address must not read the answer.
            status, kind, body = "421 Misdirected Request", _PLAIN, b"that name is not ours\n"
        elif method not in {b"GET", b"HEAD"}:
            status, kind, body = "405 Method Not Allowed", _PLAIN, b"GET is expected\n"
        elif path in {b"/healthz", b"/readyz"}:
            problems = self._problems()
            lines = [f"{part}: {reason}\n" for part, reason in problems.items()] or ["ok\n"]
            status = "503 Service Unavailable" if problems else "200 OK"
            kind, body = _PLAIN, "".join(lines).encode()
        elif not self._may_read(fields):
            more = 'WWW-Authenticate: Basic realm="waylog metrics"\r\n'
            status, kind = "401 Unauthorized", _PLAIN
            body = b"the token of the metrics is needed (metrics.token.file)\n"
        elif path == b"/metrics":
            kind, body = await self._metrics.get()
            status = "200 OK"
        elif path == b"/" and self._page is not None:
            status, kind, body = "200 OK", _HTML, await self._page.get()
        else:
            status, kind, body = "404 Not Found", _PLAIN, b"/metrics and /healthz are here\n"
        header = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"{more}Connection: close\r\n\r\n"
        )
        return header.encode() + (b"" if method == b"HEAD" else body)


def _values_of(wanted: bytes, lines: list[bytes]) -> list[str]:
    """Return the values of the headers with this name (in lower case)."""
    pairs = (line.partition(b":") for line in lines)
    return [value.strip().decode("latin-1") for name, _, value in pairs if name.lower() == wanted]
