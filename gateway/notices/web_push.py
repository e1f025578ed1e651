"""Web Push: arrivals and events as notifications of a browser whose page is closed.

RFC 8030 (the request), RFC 8291 (its encryption) and RFC 8292 (VAPID: the sender's identity). Push
services are on the internet, so all of it is off unless the operator configures a contact address.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import logging
import math
import socket
from contextvars import ContextVar
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from gateway.limits.pools import Turns
from gateway.notices.arrivals import Arrival
from gateway.notices.owntracks_downlink import name_of
from gateway.users.database import UserStore
from waylog.network.outbound.name_lookups import NameLookups
from waylog.network.shares import Shares
from waylog.process.background import TaskSet

logger = logging.getLogger(__name__)

SUBSCRIPTIONS_PER_USER_MAX: Final = 10
_ENDPOINT_CHARACTERS_MAX: Final = 1_000
#: Seconds that a push service keeps an undelivered notification; later it is no longer news.
_TTL_S: Final = 30 * 60
_TIMEOUT_S: Final = 10.0
#: Notifications that wait or are being sent, and those being sent; of all users and of one.
_WAITING_MAX: Final = 200
_WAITING_EACH_MAX: Final = 20
_SENT_AT_ONCE: Final = 20
_SENT_AT_ONCE_EACH: Final = 4
_SAY_AGAIN_S: Final = 10.0
_CLAIM_S: Final = 12 * 60 * 60
_SECRET: Final = "vapid"  # noqa: S105 the secret's name


class Keys(msgspec.Struct):
    """Keys made by a browser: its public key and a shared secret, both base64url."""

    p256dh: str
    auth: str


class Subscription(msgspec.Struct):
    """The result of PushSubscription.toJSON() of the Push API."""

    endpoint: str
    keys: Keys


class BadSubscription(ValueError):
    """The subscription is not from a browser's PushManager."""


#: The user for whom an endpoint is looked up, in the context of the request to it.
_user: ContextVar[str] = ContextVar("_user", default="")


class _GlobalResolver(AbstractResolver):
    """Leaves out private addresses: the endpoint of a subscription is untrusted input."""

    def __init__(self) -> None:
        self._lookups = NameLookups()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._lookups.look_up(_user.get(), host, port, family)
        outside = [each for each in found if ipaddress.ip_address(each["host"]).is_global]
        if not outside:
            raise OSError(f"{host} has no address in the internet")
        return outside

    async def close(self) -> None:
        """Do nothing: look-ups that still hang end with their threads."""


class WebPush:
    """Stores subscriptions and sends notifications.

    `contact` is a mailto: or https: address of the operator. `anywhere` allows endpoints outside of
    the internet, for tests.
    """

    def __init__(self, store: UserStore, contact: str | None, *, anywhere: bool = False) -> None:
        self._store = store
        self._contact = contact
        self._anywhere = anywhere
        self._session: aiohttp.ClientSession | None = None
        self._sending = TaskSet("sending a notification")
        self._waiting = Shares(2 * _WAITING_MAX, _WAITING_EACH_MAX)
        self._turns = Turns(_SENT_AT_ONCE, _SENT_AT_ONCE_EACH)
        self._said = -math.inf
        self._vapid: Any = None

    @property
    def enabled(self) -> bool:
        """Tell whether the operator has configured a contact."""
        return self._contact is not None

    def public_key(self) -> str:
        """Return the gateway's public key for a page's PushManager (base64url)."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        point = self._signer().public_key.public_bytes(
            Encoding.X962, PublicFormat.UncompressedPoint
        )
        return base64.urlsafe_b64encode(point).rstrip(b"=").decode()

    def subscribe(self, user: str, subscription: Subscription) -> None:
        """Send a user's arrivals and events to this subscription. Raises BadSubscription."""
        self._check(subscription)
        self._store.rights.add_push_subscription(
            user,
            subscription.endpoint,
            subscription.keys.p256dh,
            subscription.keys.auth,
            SUBSCRIPTIONS_PER_USER_MAX,
        )

    def unsubscribe(self, user: str, endpoint: str) -> None:
        """Remove a subscription, if this user has it."""
        self._store.rights.remove_push_subscription(endpoint, user)

    def arrived(self, arrival: Arrival) -> None:
        """Notify the browsers of a user; the callback of Notices.tell_once."""
        message = {
            "type": "arrival",
            "device": arrival.device,
            "place": name_of(arrival.place),
            "time": arrival.time,
            "lat": arrival.lat,
            "lon": arrival.lon,
        }
        self.notify(arrival.device.partition("/")[0], message, arrival.device)

    def notify(self, user: str, what: dict[str, Any], replaces: str) -> None:
        """Send a message to the browsers of a user.

        It takes the place of one that is not delivered yet and `replaces` the same.
        """
        if not self.enabled:
            return
        message = msgspec.json.encode(what)
        topic = base64.urlsafe_b64encode(hashlib.blake2b(replaces.encode()).digest()[:24])
        for endpoint, p256dh, auth in self._store.rights.push_subscriptions(user):
            if not self._waiting.take(user):
                self._say_left_out(user)
                return
            subscription = Subscription(endpoint, Keys(p256dh, auth))
            self._sending.start(self._send_in_turn(user, subscription, message, topic.decode()))

    async def close(self) -> None:
        """Cancel the notifications being sent."""
        await self._sending.close()
        if self._session is not None:
            await self._session.close()

    def _say_left_out(self, user: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said >= _SAY_AGAIN_S:
            self._said = now
            logger.warning("push services are slow: notifications of user %r are left out", user)

    async def _send_in_turn(
        self, user: str, subscription: Subscription, message: bytes, topic: str
    ) -> None:
        _user.set(user)  # this task has a context of its own
        try:
            async with self._turns.turn(user):
                await self._send(subscription, message, topic)
        finally:
            self._waiting.give_back(user)

    async def _send(self, subscription: Subscription, message: bytes, topic: str) -> None:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=_SENT_AT_ONCE, resolver=None if self._anywhere else _GlobalResolver()
            )
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)
            )
        headers = {
            **self._authorization(subscription.endpoint),
            "TTL": str(_TTL_S),
            "Urgency": "normal",
            "Topic": topic,
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
        }
        try:
            async with self._session.post(
                subscription.endpoint,
                data=encrypt(message, subscription.keys),
                headers=headers,
                allow_redirects=False,
            ) as answer:
                if answer.status in (404, 410):
                    self._store.rights.remove_push_subscription(subscription.endpoint)
                elif answer.status >= 400:
                    logger.warning("a push service answered %d", answer.status)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            logger.warning("a push service cannot be reached: %s", type(error).__name__)

    def _signer(self) -> Any:
        if self._vapid is None:
            from py_vapid import Vapid02

            raw = self._store.rights.secret(_SECRET)
            self._vapid = Vapid02.from_raw(base64.urlsafe_b64encode(raw))
        return self._vapid

    def _authorization(self, endpoint: str) -> dict[str, str]:
        import time

        claims = {
            "aud": str(URL(endpoint).origin()),
            "exp": int(time.time()) + _CLAIM_S,
            "sub": self._contact,
        }
        signed: dict[str, str] = self._signer().sign(claims)
        return signed

    def _check(self, subscription: Subscription) -> None:
        endpoint = subscription.endpoint
        try:
            url = URL(endpoint)
            host = url.host or ""
        except ValueError as error:
            raise BadSubscription("endpoint is not a URL") from error
        if len(endpoint) > _ENDPOINT_CHARACTERS_MAX or not host:
            raise BadSubscription("endpoint is not a URL of a push service")
        if not self._anywhere:
            if url.scheme != "https" or url.explicit_port not in (None, 443):
                raise BadSubscription("endpoint is not an https URL")
            if url.user is not None or url.password is not None:
                raise BadSubscription("endpoint has a user, which no push service has")
            if host == "localhost" or ":" in host or host.replace(".", "").isdigit():
                raise BadSubscription("endpoint is not a name in the internet")
        try:
            encrypt(b"", subscription.keys)
        except ValueError as error:
            raise BadSubscription("keys are not those of a browser") from error


def encrypt(message: bytes, keys: Keys) -> bytes:
    """Return the body of a push message (RFC 8291). Raises ValueError for invalid keys."""
    import http_ece
    from cryptography.hazmat.primitives.asymmetric import ec

    encrypted: bytes = http_ece.encrypt(
        message,
        private_key=ec.generate_private_key(ec.SECP256R1()),
        dh=_decoded(keys.p256dh, 65),
        auth_secret=_decoded(keys.auth, 16),
        version="aes128gcm",
    )
    return encrypted


def _decoded(text: str, length: int) -> bytes:
    decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(decoded) != length:
        raise ValueError(f"{length} bytes are expected")
    return decoded
