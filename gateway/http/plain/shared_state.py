"""What all connections of the HTTP listener have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate

from gateway.http.requests.services import Services
from waylog.network.shares import Shares
from waylog.process.background import TaskSet

#: Makes aiohttp's protocol of a connection.
Accept = Callable[[], asyncio.Protocol]


class SharedState:
    """The services, pools and shares of a listener, and whether it closes."""

    def __init__(self, services: Services, accept: Accept) -> None:
        self.services = services
        self.addresses = services.addresses
        #: Whether one connection may carry requests of many clients.
        self.has_proxies = bool(services.proxies)
        self.accept = accept
        self.pool = services.connections.part(services.limits.connections_max, "HTTP")
        #: Bytes of incomplete requests. They count for the address; on loopback they count for the
        #: connection or, when the pool is half full, for the account.
        limits = services.limits
        #: Seconds before which no incomplete request is too late.
        self.shortest_timeout_s = min(limits.body_timeout_s, limits.header_timeout_s)
        self.partial = Shares(limits.partial_bytes_max, limits.partial_bytes_each_max)
        self.authentications = TaskSet("an authentication over HTTP")
        self.closing = False
        #: The loop's clock.
        self.time = asyncio.get_running_loop().time
        #: The time as in a Date header. Connections that a server takes over are answered at once.
        self.date = b""
        self.renew_date()

    def renew_date(self) -> None:
        """Set the Date of answers to now."""
        self.date = formatdate(usegmt=True).encode()
