"""Sends over MQTT 3.1.1 with QoS 1, as phones do."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from waylog.cli import CommandError
from waylog.config import Endpoint
from waylog.process.threads import watch_thread_of
from waylog.replay.senders import wire
from waylog.replay.senders.tally import Tally
from waylog.replay.senders.wire import Outgoing

logger = logging.getLogger(__name__)

_CONNECTIONS_MAX: Final = 50
_WINDOW: Final = 100  # unacknowledged messages a connection; OwnTracks on Android has 500
_SILENCE_S: Final = 20.0  # a connection is made anew if an acknowledgement is overdue this long
_BACKOFF_MIN_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0
_REFUSED: Final = frozenset(
    {0x84, 0x85, 0x86, 0x87}
)  # version, client id, password, not authorized


class _Connection:
    """The connection of one device, or of several. paho runs it in a thread of its own.

    paho keeps unacknowledged messages, reconnects by itself and sends them again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        user: str,
        token: str | None,
        tally: Tally,
        loop: asyncio.AbstractEventLoop,
        failed: asyncio.Future[None],
    ) -> None:
        self._tally = tally
        self._loop = loop
        self._failed = failed
        self._waiting: dict[int, Outgoing] = {}
        self._window = asyncio.Semaphore(_WINDOW)
        # Messages given to paho before CONNACK would be sent after those given later.
        self._ready = asyncio.Event()
        self._connected_before = False
        self._is_stopping = False
        self._last_answer = time.monotonic()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"replay-{secrets.token_hex(6)}",
            clean_session=True,
            protocol=MQTTProtocolVersion.MQTTv311,
        )
        self._client.username_pw_set(user, token)
        self._client.max_inflight_messages_set(_WINDOW)
        self._client.reconnect_delay_set(_BACKOFF_MIN_S, _BACKOFF_MAX_S)  # type: ignore[arg-type]
        self._client.on_publish = self._on_publish
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.connect_async(endpoint.host, endpoint.port, keepalive=30)
        watch_thread_of(
            self._client.loop_start, "paho-mqtt-client", may_end=lambda: self._is_stopping
        )

    async def publish(self, fix: Outgoing, topic: str, body: bytes) -> None:
        """Send once there is a connection and room in its window."""
        await self._window.acquire()
        await self._ready.wait()
        self._tally.fix_sent(fix)
        if not self._waiting:
            self._last_answer = time.monotonic()
        # Acknowledgements arrive through call_soon_threadsafe, so never before the next line ends.
        self._waiting[self._client.publish(topic, body, qos=1).mid] = fix

    async def drained(self) -> None:
        """Wait until everything is acknowledged."""
        for _ in range(_WINDOW):
            await self._window.acquire()

    def renew_if_silent(self) -> None:
        """Break the connection if an acknowledgement is overdue."""
        if not self._waiting or time.monotonic() - self._last_answer < _SILENCE_S:
            return
        self._last_answer = time.monotonic()
        connection = self._client.socket()
        if isinstance(connection, socket.socket):
            # On a connection that is broken already this fails, and paho will notice it.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Disconnect; blocks until paho's thread is gone."""
        self._is_stopping = True
        self._client.disconnect()
        self._client.loop_stop()

    def _on_publish(self, *arguments: Any) -> None:
        self._call(self._acknowledged, arguments[2])

    def _on_connect(self, *arguments: Any) -> None:
        self._call(self._connected, arguments[3])

    def _on_disconnect(self, *_: Any) -> None:
        self._call(self._ready.clear)

    def _on_connect_fail(self, *_: Any) -> None:
        self._call(self._tally.attempt_failed, "no connection to the gateway", 0)

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            logger.debug("the event loop is closed already")

    def _acknowledged(self, message_id: int) -> None:
        fix = self._waiting.pop(message_id, None)
        if fix is not None:
            self._last_answer = time.monotonic()
            self._tally.fix_acknowledged(fix)
            self._window.release()

    def _connected(self, reason: ReasonCode) -> None:
        if reason.value in _REFUSED and not self._failed.done():
            self._failed.set_exception(
                CommandError(f"the gateway refuses the connection: {reason}")
            )
            return
        if reason.is_failure:
            self._tally.attempt_failed(f"the gateway refuses the connection: {reason}", 0)
            return
        if self._connected_before:
            self._tally.attempt_failed("the connection was lost", len(self._waiting))
        self._connected_before = True
        self._ready.set()


class MqttSender:
    """Sends over a connection for each device, up to 50; further devices share these."""

    def __init__(
        self, endpoint: Endpoint, user: str, token: str | None, wire_format: str, tally: Tally
    ) -> None:
        self._endpoint = endpoint
        self._user = user
        self._token = token
        self._format = wire_format
        self._body = wire.MQTT_BODIES[wire_format]
        self._tally = tally
        self._lane_of: dict[str, int] = {}
        self._connections: list[_Connection] = []

    async def run(self, fixes: AsyncIterator[Outgoing]) -> None:
        """Send all; returns when all are acknowledged. Raises CommandError if refused."""
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()
        try:
            async with asyncio.TaskGroup() as tasks:
                guards = [
                    tasks.create_task(_raise_from(failed)),
                    tasks.create_task(self._renew_silent()),
                ]
                async for fix in fixes:
                    await self._connection(fix, failed, loop).publish(
                        fix, wire.mqtt_topic(fix, self._format), self._body(fix)
                    )
                for connection in self._connections:
                    await connection.drained()
                for guard in guards:
                    guard.cancel()
        finally:
            await loop.run_in_executor(None, self._stop)

    def _connection(
        self, fix: Outgoing, failed: asyncio.Future[None], loop: asyncio.AbstractEventLoop
    ) -> _Connection:
        lane = self._lane_of.setdefault(fix.name, len(self._lane_of) % _CONNECTIONS_MAX)
        if lane == len(self._connections):
            self._connections.append(
                _Connection(self._endpoint, self._user, self._token, self._tally, loop, failed)
            )
        return self._connections[lane]

    async def _renew_silent(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for connection in self._connections:
                connection.renew_if_silent()

    def _stop(self) -> None:
        for connection in self._connections:
            connection.stop()


async def _raise_from(failed: asyncio.Future[None]) -> None:
    await failed
