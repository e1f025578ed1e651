"""Tells users' own servers of events, over HTTP, and their mailboxes.

What waits is in memory: after a kill nothing is told twice, and what was not sent yet is lost, as
it is with notifications of browsers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.alerts.alert_store import Channel
from gateway.alerts.channel_requests import APPRISE, EMAIL, WEBHOOK, mailbox_of
from gateway.limits.pools import Turns
from waylog.bounded_cache import BoundedCache
from waylog.network.outbound.name_lookups import NameLookups
from waylog.network.outbound.reachable_networks import ReachableNetworks
from waylog.network.outbound.webhook_signature import signature_headers, signing_key
from waylog.network.shares import Shares
from waylog.process.background import TaskSet
from waylog.process.log_throttle import LogThrottle, since_last_line

if TYPE_CHECKING:
    from gateway.alerts.email_sender import EmailSender

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
#: Pauses before a server is tried again that was away, or said that it is busy.
_PAUSES_S: Final = (2.0, 15.0, 60.0)
#: Notices that wait or are being sent, and those being sent; of all users and of one.
_WAITING_MAX: Final = 400
_WAITING_EACH_MAX: Final = 40
_SENT_AT_ONCE: Final = 20
_SENT_AT_ONCE_EACH: Final = 4
_KNOWN_MAX: Final = 10_000
#: What is said of a server whatever the reason: nobody learns which names the network has.
UNREACHABLE: Final = "it cannot be reached, or alerts may not go to its address"
UNCONFIRMED: Final = "the code that was sent there has not been entered yet"
NO_EMAIL: Final = "this platform no longer sends e-mail"

_user: ContextVar[str] = ContextVar("_user", default="")


class Told(NamedTuple):
    """A notice that a server is to be told."""

    id: str
    message: dict[str, Any]
    text: str


class Outcome(NamedTuple):
    """Why a notice was not taken, None if it was, and whether it would be refused again."""

    error: str | None
    is_final: bool


class State:
    """How the last attempt at a channel went."""

    __slots__ = ("error", "told")

    def __init__(self) -> None:
        self.told: int | None = None  # ms
        self.error: str | None = None


class _Names(AbstractResolver):
    """Looks names up in threads of their own, a bounded number for each user."""

    def __init__(self) -> None:
        self._lookups: Final = NameLookups()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return await self._lookups.look_up(_user.get(), host, port, family)

    async def close(self) -> None:
        """Do nothing: look-ups that still hang end with their threads."""


class AlertSender:
    """Sends on one event loop. `networks` decides about the addresses of connections."""

    def __init__(self, networks: ReachableNetworks, email: EmailSender | None = None) -> None:
        self._networks: Final = networks
        #: None: the platform sends no e-mail.
        self.email: Final = email
        self._session: aiohttp.ClientSession | None = None
        self._sending: Final = TaskSet("telling a user's server of an event")
        self._waiting: Final = Shares(2 * _WAITING_MAX, _WAITING_EACH_MAX)
        self._turns: Final = Turns(_SENT_AT_ONCE, _SENT_AT_ONCE_EACH)
        self._states: Final = BoundedCache[tuple[str, str], State](lambda _: State(), _KNOWN_MAX)
        self._left_out: Final = LogThrottle()

    def state(self, user: str, channel_id: str) -> State:
        """Return how the last attempt went."""
        return self._states.get((user, channel_id))

    def tell(self, user: str, channel_id: str, channel: Channel, told: Told) -> None:
        """Send a notice, and again if the server is away; never waits."""
        if not self._waiting.take(user):
            unsaid = self._left_out.count(time.monotonic())
            if unsaid is not None:
                logger.warning(
                    "servers are slow: alerts of user %r are left out%s",
                    *(user, since_last_line(unsaid)),
                )
            return
        self._sending.start(self._in_turn(user, channel_id, channel, told))

    async def _in_turn(self, user: str, channel_id: str, channel: Channel, told: Told) -> None:
        try:
            for pause_s in (*_PAUSES_S, None):
                async with self._turns.turn(user):
                    error, is_final = await self._sent(user, channel_id, channel, told)
                if error is None or is_final or pause_s is None:
                    return
                await asyncio.sleep(pause_s)
        finally:
            self._waiting.give_back(user)

    async def send(self, user: str, channel_id: str, channel: Channel, told: Told) -> str | None:
        """Send a notice once; return why that failed."""
        async with self._turns.turn(user):
            # A task has a context of its own.
            sending = asyncio.create_task(self._sent(user, channel_id, channel, told))
            error, _ = await sending
        return error

    async def _sent(self, user: str, channel_id: str, channel: Channel, told: Told) -> Outcome:
        _user.set(user)
        if channel.kind == EMAIL:
            outcome = await self._mail(user, channel, told)
        else:
            outcome = await self._post(channel, told)
        state = self.state(user, channel_id)
        state.error = outcome.error
        if outcome.error is None:
            state.told = time.time_ns() // 1_000_000
        return outcome

    async def _mail(self, user: str, channel: Channel, told: Told) -> Outcome:
        if self.email is None:
            return Outcome(NO_EMAIL, True)
        if channel.pending is not None:
            return Outcome(UNCONFIRMED, True)
        return await self.email.tell(user, mailbox_of(channel), told.text, told.id)

    async def send_code(
        self, user: str, channel_id: str, channel: Channel, texts: tuple[str, str]
    ) -> bool:
        """Send the message with the code of a mailbox; return whether a server has taken it.

        How that went is the channel's state.
        """
        async with self._turns.turn(user):
            if self.email is None:
                error: str | None = NO_EMAIL
            else:
                error, _ = await self.email.send_code(user, mailbox_of(channel), *texts)
        self.state(user, channel_id).error = error
        return error is None

    async def _post(self, channel: Channel, told: Told) -> Outcome:
        body, headers = request_of(channel, told, time.time_ns() // 1_000_000_000)
        try:
            async with self._opened().post(
                channel.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                if 200 <= answer.status < 300:
                    return Outcome(None, True)
                is_final = 300 <= answer.status < 500 and answer.status not in (408, 425, 429)
                return Outcome(f"it answered {answer.status}", is_final)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return Outcome(UNREACHABLE, False)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=_SENT_AT_ONCE,
                resolver=_Names(),
                # It is called for each connection, with the address that it is made to.
                socket_factory=self._networks.socket_for,
                # Each user's connections are its own: nobody gets a connection by another's name.
                force_close=True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """Cancel what is being sent."""
        await self._sending.close()
        if self._session is not None:
            await self._session.close()


def request_of(channel: Channel, told: Told, time_s: int) -> tuple[bytes, dict[str, str]]:
    """Return body and headers for a channel, at a time in seconds since 1970."""
    headers = {"User-Agent": "Waylog", "Content-Type": "application/json"}
    if channel.token is not None:
        headers["Authorization"] = f"Bearer {channel.token}"
    if channel.kind == WEBHOOK:
        body = msgspec.json.encode({"id": told.id, "text": told.text, **told.message})
        if channel.signing_secret is not None:
            key = signing_key(channel.signing_secret)
            headers |= signature_headers(key, told.id, time_s, body)
    elif channel.kind == APPRISE:
        said = {"title": "Waylog", "body": told.text, "type": "info", "format": "text"}
        body = msgspec.json.encode(said)
    else:
        headers |= {"Content-Type": "text/plain; charset=utf-8", "Title": "Waylog"}
        body = told.text.encode()
    return body, headers
