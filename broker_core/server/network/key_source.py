"""Fetches the keys that access tokens are signed with: a JSON web key set at a URL."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from broker_core.security.access_tokens import TokenValidator
from waylog.process.background import spawn

logger = logging.getLogger(__name__)

_BYTES_MAX = 1024 * 1024
_TIMEOUT_S = 10.0


class KeySource:
    """Fetches the key set at the start, periodically, and when a token names an unknown key."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._settings = validator.settings
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        validator.on_unknown_key = self._wanted.set

    async def start(self) -> None:
        """Fetch the keys now and periodically. Without keys no client can log in yet."""
        await self._load()
        self._task = spawn(self._refresh(), f"reading {self._settings.keys_url}", endless=True)

    async def close(self) -> None:
        """Stop fetching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _refresh(self) -> None:
        retry_s = self._settings.retry_ms / 1000
        is_loaded = True
        while True:
            wait_s = self._settings.refresh_ms / 1000 if is_loaded else retry_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), wait_s)
            self._wanted.clear()
            is_loaded = await self._load()
            retry_s = (
                self._settings.retry_ms / 1000
                if is_loaded
                else min(2 * retry_s, self._settings.retry_ms_max / 1000)
            )
            # Tokens with unknown keys must not cause requests without a pause.
            await asyncio.sleep(retry_s)

    async def _load(self) -> bool:
        url = self._settings.keys_url
        try:
            document = await asyncio.to_thread(_read, url)
            count = self._validator.load_keys(document)
        except (URLError, OSError, ValueError) as error:
            logger.error("the keys of access tokens cannot be read from %s: %s", url, error)
            return False
        except Exception:
            logger.exception("the keys of access tokens cannot be read from %s", url)
            return False
        logger.info("%d keys of access tokens read from %s", count, url)
        return True


def _read(url: str) -> bytes:
    """Fetch the document; the configuration checked its scheme. Raises OSError, ValueError."""
    end = time.monotonic() + _TIMEOUT_S
    parts: list[bytes] = []
    size = 0
    try:
        opened = urlopen(url, timeout=_TIMEOUT_S)  # noqa: S310
    except HTTPError as error:
        error.close()  # the error is also the open response
        raise
    with opened as answer:
        while part := answer.read1(64 * 1024):
            parts.append(part)
            size += len(part)
            if size > _BYTES_MAX:
                raise ValueError(f"it is larger than {_BYTES_MAX} bytes")
            if time.monotonic() > end:
                raise ValueError("it takes too long")
    return b"".join(parts)
