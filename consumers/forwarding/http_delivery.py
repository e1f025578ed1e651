"""Sends records by the templates of the connector HttpSink, over connections that all share."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.records import SinkRecord
from consumers.connect.http import properties, request_headers
from consumers.connect.http.delivery import Delivered, deliver
from consumers.connect.http.properties import Settings
from consumers.connect.http.sender import Connectors, Sender
from consumers.forwarding.delivery import Result
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import QUICK, SLOW, Failure
from consumers.forwarding.ways_out import WaysOut
from waylog.forwarding.definition import WEBHOOK, Forwarding

#: No request of a turn is begun later than this, so that the others have theirs.
_TURN_S: Final = 5.0
_NAMES_S: Final = 10


class _Names(AbstractResolver):
    """Looks names up in threads of their own, a bounded number for each user."""

    def __init__(self, ways: WaysOut) -> None:
        self._ways: Final = ways

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return await self._ways.look_up(host, port, family)

    async def close(self) -> None:
        """Do nothing: look-ups that still hang end with their threads."""


class HttpDelivery:
    """The connections to all servers; used on one event loop."""

    def __init__(self, ways: WaysOut, trusted: ssl.SSLContext, timeout_s: float) -> None:
        """A request may take `timeout_s` seconds; `trusted` checks certificates."""
        self._ways: Final = ways
        self._timeout_ms: Final = round(timeout_s * 1000)
        self._connectors: Final = Connectors.of(
            QUICK + SLOW,
            resolver=_Names(ways),
            ttl_dns_cache=_NAMES_S,
            dns_cache_max_size=1000,
            # It is called for each connection, with the address that the connection is made to.
            socket_factory=ways.socket_for,
            ssl=trusted,
        )

    async def deliver(self, route: Route, records: Sequence[SinkRecord]) -> Result:
        """See Delivery."""
        try:
            settings = settings_of(route.user, route.forwarding, self._timeout_ms)
        except ConfigException as error:
            # The gateway has checked it; an older or newer one may have checked otherwise.
            return Result(failure=Failure(f"it cannot be used: {error}", is_set_up=True))
        # A task has a context of its own.
        return await asyncio.create_task(self._deliver(route.user, settings, records))

    async def _deliver(
        self, user: str, settings: Settings, records: Sequence[SinkRecord]
    ) -> Result:
        self._ways.begin(user, urlsplit(settings.url).hostname or "")
        sender = Sender(settings, self._connectors)
        await sender.open()
        try:
            found = await deliver(records, settings, sender, until=time.monotonic() + _TURN_S)
        finally:
            await sender.close()
        return Result(found.done, found.refused, _failure(found))

    async def close(self) -> None:
        """See Delivery."""
        await self._connectors.close()


def settings_of(user: str, forwarding: Forwarding, timeout_ms: int) -> Settings:
    """Return the properties of HttpSink that a forwarding stands for; raises ConfigException."""
    named: dict[str, str] = {
        properties.URL: forwarding.url,
        properties.CONNECTIONS: "1",
        properties.TIMEOUT: str(timeout_ms),
        properties.NAMES: ",".join(
            f"{user}/{device}={name}" for device, name in forwarding.device_names.items()
        ),
    }
    if forwarding.kind != WEBHOOK:
        named[properties.TEMPLATE] = forwarding.kind
    if forwarding.token is not None:
        named |= {request_headers.AUTHORIZATION: "bearer", request_headers.BEARER: forwarding.token}
    elif forwarding.username is not None:
        named |= {request_headers.AUTHORIZATION: "basic", request_headers.USER: forwarding.username}
        if forwarding.password is not None:
            named[request_headers.PASSWORD] = forwarding.password
    if forwarding.signing_secret is not None:
        named[properties.SIGNATURE] = forwarding.signing_secret
    return Settings.of(named)


def _failure(found: Delivered) -> Failure | None:
    outcome = found.set_up or found.later
    if outcome is None:
        return None
    return Failure(
        outcome.reason,
        is_reached=outcome.is_reached,
        is_set_up=found.set_up is not None,
        retry_after_s=outcome.retry_after_s,
    )
