"""A TLS client whose every byte is in a test's hands."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final, Self

_TIMEOUT_S: Final = 30.0


class TlsPeer:
    """One connection, on which nothing has been said yet; whatever certificate the other shows."""

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
        """What a client says first."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._going.read()

    async def shake_hands(self, first: bytes) -> None:
        """Go on after `hello` to the end, and send `first` together with that."""
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
        """So many bytes; raises ConnectionResetError where there are no more."""
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
        """Wait until the other end closes the connection, whatever it says before."""
        async with asyncio.timeout(_TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass
        return True

    async def close(self) -> None:
        """Close."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Close without a goodbye."""
        self.writer.transport.abort()
