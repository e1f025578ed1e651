"""Sends requests over connections that are kept, and says what became of them."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from consumers.connect.http.answers.answer import Answer, Objection
from consumers.connect.http.answers.status import Meaning, meaning_of, retry_after_s, status_text
from consumers.connect.http.properties import Settings
from consumers.connect.http.templates.request import Request
from waylog.network.outbound.webhook_signature import signature_headers

_CONNECT_S: Final = 10.0
KEEP_ALIVE_S: Final = 30.0
#: Of an answer so much is read, and so much of it is in a message. The Recorder's has pictures of
#: friends.
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_SHOWN_CHARACTERS: Final = 200
_AWAY_BEHIND_A_PROXY: Final = (502, 503, 504)
_IDEMPOTENCY_KEY: Final = "Idempotency-Key"


class Outcome(NamedTuple):
    """What became of a request."""

    meaning: Meaning
    reason: str = ""
    retry_after_s: float | None = None
    is_answered: bool = True
    is_reached: bool = True  # False: there was no connection to the server
    is_from_server: bool = True  # False: something else has answered in its place


DELIVERED: Final = Outcome(Meaning.DELIVERED)


class Connectors(NamedTuple):
    """What connections are made with, to one server or to many. It is made on an event loop."""

    kept: aiohttp.TCPConnector  # its connections are used again
    single: aiohttp.TCPConnector  # each of its connections ends with the first answer

    @classmethod
    def of(cls, limit: int, **more: Any) -> Connectors:
        """Make both, for so many connections each; `more` is for `aiohttp.TCPConnector`."""
        return cls(
            aiohttp.TCPConnector(limit=limit, keepalive_timeout=KEEP_ALIVE_S, **more),
            aiohttp.TCPConnector(limit=limit, force_close=True, **more),
        )

    async def close(self) -> None:
        """Close all connections."""
        for each in self:
            await each.close()


class Sender:
    """The connections of one task. It is used on one event loop."""

    def __init__(self, settings: Settings, connectors: Connectors | None = None) -> None:
        """`connectors` have connections that others share, and are not closed with this one."""
        self._settings: Final = settings
        self._shared: Final = connectors
        self._connectors: Connectors | None = None
        self._session: aiohttp.ClientSession | None = None
        self._single: aiohttp.ClientSession | None = None
        parts = urlsplit(settings.url)
        #: The server, for messages; path and query may have tokens in them.
        self.server: Final = f"{parts.scheme}://{parts.netloc}"

    async def open(self) -> None:
        """Make what connections are made with."""
        self._connectors = self._shared or Connectors.of(self._settings.connections)
        self._session = self._session_with(self._connectors.kept)
        self._single = self._session_with(self._connectors.single)

    def _session_with(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        settings = self._settings
        return aiohttp.ClientSession(
            connector=connector,
            connector_owner=False,
            timeout=aiohttp.ClientTimeout(
                total=settings.timeout_s, sock_connect=min(_CONNECT_S, settings.timeout_s / 2)
            ),
            headers={"User-Agent": "waylog-connect", **settings.headers},
            # What one server sets must not be sent with the next record.
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        )

    async def close(self) -> None:
        """Close all connections that are not shared."""
        for session in (self._session, self._single):
            if session is not None:
                await session.close()
        if self._shared is None and self._connectors is not None:
            await self._connectors.close()
        self._session = self._single = self._connectors = None

    async def send(self, request: Request, key: str) -> Outcome:
        """Send a request with its idempotency key; what goes wrong is in the outcome."""
        try:
            return await self._send_again_if_cut(request, key)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return self._unanswered(text_of(error), is_reached=False)
        except TimeoutError:
            return self._unanswered(f"no answer within {self._settings.timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            return self._unanswered(text_of(error))

    async def _send_again_if_cut(self, request: Request, key: str) -> Outcome:
        assert self._session is not None and self._single is not None
        try:
            return await self._send(self._session, request, key)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError):
            # The server has closed an idle connection, and may have closed the others as well. The
            # key tells it of a repetition.
            return await self._send(self._single, request, key)

    async def answers(self) -> bool:
        """Tell whether the server answers a request without a record, whatever it says.

        Errors of a proxy (502 to 504) say that the server itself does not.
        """
        assert self._session is not None
        try:
            async with self._session.head(self.server, allow_redirects=False) as response:
                return response.status not in _AWAY_BEHIND_A_PROXY
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def _send(self, session: aiohttp.ClientSession, request: Request, key: str) -> Outcome:
        settings = self._settings
        headers = {**request.headers, _IDEMPOTENCY_KEY: key}
        if settings.signing_key is not None:
            headers |= signature_headers(settings.signing_key, key, int(time.time()), request.body)
        async with session.request(
            request.method,
            URL(request.url, encoded=True),
            data=request.body or None,
            headers=headers,
            allow_redirects=False,
        ) as response:
            body = bytearray()
            broken = await self._read(response, body)
            is_whole = response.content.at_eof() and broken is None
            if not is_whole:
                response.close()
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            answer = Answer(response.status, kind, bytes(body), is_whole)
            if broken is not None and answer.is_success:
                # Nobody knows whether the rest would have been written by a server that is well.
                return self._unanswered(broken)
            return self._outcome(response, answer)

    async def _read(self, response: aiohttp.ClientResponse, body: bytearray) -> str | None:
        """Read the body as far as it is of interest; return what is wrong if it does not end."""
        try:
            while len(body) < _ANSWER_BYTES_MAX:
                chunk = await response.content.read(_ANSWER_BYTES_MAX - len(body))
                if not chunk:
                    break
                body += chunk
        except TimeoutError:
            return f"the answer has not ended within {self._settings.timeout_s:g} s"
        except (aiohttp.ClientError, OSError):
            return "the answer has broken off"
        return None

    def _outcome(self, response: aiohttp.ClientResponse, answer: Answer) -> Outcome:
        meaning = meaning_of(answer.status)
        objection = None
        if meaning in (Meaning.DELIVERED, Meaning.REFUSED):
            objection = self._settings.template.objection(answer)
        if objection is None and meaning is Meaning.DELIVERED:
            return DELIVERED
        reason = self._reason(answer, objection)
        if objection is not None:
            is_ours = objection.is_from_server
            return Outcome(objection.meaning, reason, is_answered=is_ours, is_from_server=is_ours)
        after_s = None
        if meaning is Meaning.LATER:
            after_s = retry_after_s(response.headers.get("Retry-After"), datetime.now(UTC))
        return Outcome(meaning, reason, after_s)

    def _reason(self, answer: Answer, objection: Objection | None) -> str:
        reason = f"{self.server} answered {status_text(answer.status)}"
        if objection is not None and answer.is_success:
            # Users read it, and not what servers in the operator's network have for others.
            if not objection.is_from_server:
                kind = self._shown(answer.content_type) or "a body of no type"
                reason += f" with {kind if answer.body else 'nothing'}"
            return f"{reason}, {objection.reason}"
        text = self._shown(answer.body.decode("utf-8", "replace"))
        if text:
            reason += f": {text}"
        return reason if objection is None else f"{reason}, {objection.reason}"

    def _unanswered(self, text: str, *, is_reached: bool = True) -> Outcome:
        # A line that is none of HTTP's is in its error as it came: it may be anything.
        reason = f"{self.server}: {self._shown(text)}"
        return Outcome(Meaning.LATER, reason, is_answered=False, is_reached=is_reached)

    def _shown(self, text: str) -> str:
        text = self._without_secrets(text)
        printable = "".join(each if each.isprintable() else " " for each in text)
        return " ".join(printable.split())[:_SHOWN_CHARACTERS]

    def _without_secrets(self, text: str) -> str:
        for secret in self._settings.secrets:
            text = text.replace(secret, "[hidden]")
        return text


def text_of(error: Exception) -> str:
    """Return what an error of a connection says; the message names the server before it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        return f"its certificate is not accepted: {getattr(cause, 'verify_message', '') or cause}"
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.strerror or type(error.os_error).__name__
        if error.errno and reason.startswith("Connect call failed"):
            # asyncio's, with the address for the reason.
            reason = os.strerror(error.errno)
        return f"cannot connect: {reason}"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "cannot connect: no answer in time"
    if isinstance(error, OSError) and error.errno is None and error.strerror:
        # aiohttp's, for a connection that ended while a request was written to it.
        return "the connection ended before the request was sent"
    return str(error) or type(error).__name__


async def notice_closed_connections() -> None:
    """Let the event loop, which stood still, see which connections have ended meanwhile."""
    for _ in range(3):
        await asyncio.sleep(0)
