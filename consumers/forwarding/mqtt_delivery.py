"""Publishes records to MQTT servers: a connection for each turn, so that no user keeps one.

The topic is the URL's path, then user and device; the payload is the fix as the log has it, whose
`id` tells a repetition. Quality of service 1.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from consumers.connect.data.records import SinkRecord
from consumers.forwarding.delivery import Result
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import QUICK, SLOW, Failure
from consumers.forwarding.ways_out import UNREACHABLE, WaysOut
from waylog.extras import install_command, is_installed

if TYPE_CHECKING:
    from paho.mqtt.client import Client

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_TOPIC: Final = "devices"
_LOOP_S: Final = 0.1
#: Reason codes with which a server says that it will not have us (paho's, of all versions).
_REFUSED: Final = frozenset({0x84, 0x85, 0x86, 0x87, 0x8C})


class _NamedContext:
    """Has certificates checked for the name that was looked up, not for the address.

    It is what paho-mqtt uses of an SSLContext, of which there is one for all connections: to load
    the authorities takes longer than a turn.
    """

    check_hostname: Final = True

    def __init__(self, trusted: ssl.SSLContext, name: str) -> None:
        self._trusted: Final = trusted
        self._name: Final = name

    def wrap_socket(self, sock: socket.socket, **options: Any) -> ssl.SSLSocket:
        return self._trusted.wrap_socket(sock, **options | {"server_hostname": self._name})


class MqttDelivery:
    """Used on one event loop; clients run in threads."""

    def __init__(self, ways: WaysOut, trusted: ssl.SSLContext, timeout_s: float) -> None:
        """A turn may take `timeout_s` seconds after its connection was made.

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
        if not is_installed("bridge"):
            text = f"MQTT needs a library on the platform: {install_command('bridge')}"
            return Result(failure=Failure(text, is_set_up=True))
        parts = urlsplit(route.forwarding.url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        try:
            # A task has a context of its own.
            address = await asyncio.create_task(self._address(route.user, host, port))
        except (OSError, TimeoutError):
            reason = f"{route.origin}: {UNREACHABLE}"
            return Result(failure=Failure(reason, is_reached=False))
        trusted = self._trusted if parts.scheme == "mqtts" else None
        work = partial(_Turn(route, address, port, trusted, self._timeout_s).run, records)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _address(self, user: str, host: str, port: int) -> str:
        """Return an address of a name that may be reached; raises OSError, TimeoutError."""
        self._ways.user.set(user)
        async with asyncio.timeout(self._timeout_s):
            found = await self._ways.look_up(host, port, socket.AF_UNSPEC)
        # The connection is made to this address; the name is not looked up again.
        return self._ways.reachable(host, found, port)

    async def close(self) -> None:
        """See Delivery."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Turn:
    """One connection, in a thread of its own."""

    def __init__(
        self,
        route: Route,
        address: str,
        port: int,
        trusted: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        self._forwarding: Final = route.forwarding
        self._server: Final = route.origin
        self._address: Final = address
        self._port: Final = port
        self._timeout_s: Final = timeout_s
        parts = urlsplit(route.forwarding.url)
        self._trusted: Final = trusted
        self._name: Final = parts.hostname or ""
        self._prefix: Final = unquote(parts.path).strip("/") or _TOPIC
        self._is_connected = False
        self._refusal: Failure | None = None
        self._acknowledged: Final[set[int]] = set()

    def run(self, records: Sequence[SinkRecord]) -> Result:
        client = self._client()
        deadline = time.monotonic() + self._timeout_s
        is_reached = False
        try:
            client.connect(self._address, self._port)
            is_reached = True
            self._loop(client, deadline, lambda: self._is_connected)
            if self._refusal is not None:
                return Result(failure=self._refusal)
            sent = {
                client.publish(f"{self._prefix}/{record.key}", record.value, qos=1).mid: record
                for record in records
            }
            self._loop(client, deadline, lambda: self._acknowledged >= sent.keys())
        except ssl.SSLCertVerificationError as error:
            reason = f"{self._server}: its certificate is not accepted: {error.verify_message}"
            return Result(failure=Failure(reason, is_reached=False))
        except (OSError, ValueError) as error:
            reason = f"{self._server}: {str(error) or type(error).__name__}"
            return Result(failure=Failure(reason, is_reached=is_reached))
        finally:
            client.disconnect()
        done = [record for mid, record in sent.items() if mid in self._acknowledged]
        if len(done) == len(records):
            return Result(done)
        text = f"{self._server} has not acknowledged all within {self._timeout_s:g} s"
        return Result(done, failure=Failure(text))

    def _client(self) -> Client:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        client = paho.Client(CallbackAPIVersion.VERSION2, clean_session=True)
        client.connect_timeout = self._timeout_s
        client.max_inflight_messages_set(0)
        forwarding = self._forwarding
        if forwarding.username is not None:
            client.username_pw_set(forwarding.username, forwarding.password)
        if self._trusted is not None:
            client.tls_set_context(_NamedContext(self._trusted, self._name))  # type: ignore[arg-type]
        client.on_connect = self._connected
        client.on_publish = self._published
        return client

    def _loop(self, client: Client, deadline: float, is_done: Any) -> None:
        """Run the client until something is done or the time is over; raises OSError."""
        while not is_done() and self._refusal is None:
            if time.monotonic() > deadline:
                if not self._is_connected:
                    raise OSError("no answer in time")
                return
            code = client.loop(_LOOP_S)
            if code and self._refusal is None:
                raise OSError(f"the connection is lost ({code.name})")

    def _connected(
        self, _client: Client, _data: Any, _flags: Any, code: Any, _properties: Any
    ) -> None:
        if not code.is_failure:
            self._is_connected = True
            return
        reason = f"{self._server} refuses the connection: {code}"
        self._refusal = Failure(reason, is_set_up=code.value in _REFUSED)

    def _published(
        self, _client: Client, _data: Any, mid: int, _code: Any, _properties: Any
    ) -> None:
        self._acknowledged.add(mid)
