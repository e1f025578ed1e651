"""Sends the tasks that a connector has made to the leader of the workers, signed (KIP-507)."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.group.session_keys import signature_headers
from consumers.connect.storage.config_records import SessionKey
from consumers.connect.storage.configurations import Properties

_TIMEOUT: Final = aiohttp.ClientTimeout(total=30.0)


class LeaderClient:
    """Requests of one worker to others."""

    def __init__(self, algorithm: str, tls: ssl.SSLContext | None = None) -> None:
        """`algorithm` is `inter.worker.signature.algorithm`, `tls` for leaders over HTTPS."""
        self._algorithm: Final = algorithm
        self._tls: Final = tls
        self._session: aiohttp.ClientSession | None = None

    async def put_tasks(
        self, url: str, connector: str, tasks: Sequence[Properties], key: SessionKey | None
    ) -> None:
        """Have the leader store a connector's tasks; raises ConnectException."""
        body = msgspec.json.encode([dict(each) for each in tasks])
        await self._send("POST", f"{_connector_url(url, connector)}/tasks", body, key)

    async def fence(self, url: str, connector: str, key: SessionKey | None) -> None:
        """Have the leader fence the former tasks of a source; raises ConnectException."""
        await self._send("PUT", f"{_connector_url(url, connector)}/fence", b"", key)

    async def _send(self, method: str, url: str, body: bytes, key: SessionKey | None) -> None:
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers |= signature_headers(key, self._algorithm, body)
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector)
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                text = await response.text(errors="replace")
                status = response.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ConnectException(
                f"IO Error trying to forward REST request: {error or 'no answer in time'}"
            ) from error
        if status >= 300:
            raise ConnectException(f"the leader at {url} answers {status}: {text[:500]}")

    async def close(self) -> None:
        """End connections."""
        if self._session is not None:
            await self._session.close()


def _connector_url(url: str, connector: str) -> str:
    return f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}"
