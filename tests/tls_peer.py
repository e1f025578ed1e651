"""A TLS client of which a test controls every byte."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final, Self

_TIMEOUT_S: Final = 60.0


class TlsPeer:
    """A connection before its handshake; it accepts any certificate."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> None:
        self.reader = reader
        self.writer = writer
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._coming, self._going)

    @classmethod
    async def connect(
        cls, host: str, port: int, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> Self:
        """Connect to a server."""
        return cls(*await asyncio.open_connection(host, port), version)

    def hello(self) -> bytes:
        """Return the client's first message, the ClientHello."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._going.read()

    async def shake_hands(self, first: bytes) -> None:
        """Finish the handshake after `hello`, and send `first` together with its end."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.writer.write(self._going.read())
                await self._take()
        self._tls.write(first)
        self.writer.write(self._going.read())

    async def read(self, size: int) -> bytes:
        """Read this many bytes; raises ConnectionResetError if the stream ends before."""
        received = b""
        while len(received) < size:
            try:
                received += self._tls.read(size - len(received))
            except ssl.SSLWantReadError:
                await self._take()
        return received

    async def _take(self) -> None:
        async with asyncio.timeout(_TIMEOUT_S):
            data = await self.reader.read(65536)
        if not data:
            raise ConnectionResetError
        self._coming.write(data)

    async def is_closed_by_peer(self) -> bool:
        """Wait until the other end closes the connection, whatever it sends before; return True."""
        async with asyncio.timeout(_TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass
        return True

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Abort the connection without a goodbye."""
        self.writer.transport.abort()
