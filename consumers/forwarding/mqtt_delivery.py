"""Publishes records to MQTT servers: a connection for each turn, so that no user keeps one.

The topic is the URL's path, then user and device; the payload is the fix as the log has it, whose
`id` tells a repetition. Quality of service 1.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from consumers.connect.data.records import SinkRecord
from consumers.forwarding.delivery import Result
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import QUICK, SLOW, Failure
from consumers.forwarding.ways_out import NOT_ALLOWED, UNREACHABLE, WaysOut
from waylog.config import is_address
from waylog.extras import install_command, is_installed

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}


class MqttDelivery:
    """Used on one event loop; connections run in threads."""

    def __init__(self, ways: WaysOut, trusted: ssl.SSLContext, timeout_s: float) -> None:
        """A look-up may take `timeout_s` seconds, and so may a turn behind it.

        `trusted` checks certificates.
        """
        self._ways: Final = ways
        self._trusted: Final = trusted
        self._timeout_s: Final = timeout_s
        self._threads: Final = ThreadPoolExecutor(
            QUICK + SLOW, thread_name_prefix="forwarding-mqtt"
        )

    async def deliver(self, route: Route, records: Sequence[SinkRecord]) -> Result:
        """See Delivery."""
        # Without it `_turn` could not be imported.
        if not is_installed("bridge"):
            text = f"MQTT needs a library on the platform: {install_command('bridge')}"
            return Result(failure=Failure(text, is_set_up=True))
        parts = urlsplit(route.forwarding.url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        try:
            # A task has a context of its own.
            address = await asyncio.create_task(self._address(route.user, host, port))
        except (OSError, TimeoutError):
            reason = f"{route.origin}: {NOT_ALLOWED if is_address(host) else UNREACHABLE}"
            return Result(failure=Failure(reason, is_reached=False))
        tls = self._trusted if parts.scheme == "mqtts" else None
        work = partial(_turn, route, address, port, tls, self._timeout_s, records)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _address(self, user: str, host: str, port: int) -> str:
        """Return an address of a name that may be reached; raises OSError, TimeoutError."""
        self._ways.begin(user, host)
        async with asyncio.timeout(self._timeout_s):
            found = await self._ways.look_up(host, port, socket.AF_UNSPEC)
        # The connection is made to this address; the name is not looked up again.
        return self._ways.reachable(host, found, port)

    async def close(self) -> None:
        """See Delivery."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _turn(
    route: Route,
    address: str,
    port: int,
    tls: ssl.SSLContext | None,
    timeout_s: float,
    records: Sequence[SinkRecord],
) -> Result:
    from consumers.forwarding.mqtt_turn import Turn

    return Turn(route, address, port, tls, timeout_s).run(records)
