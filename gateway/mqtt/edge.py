"""A worker's side of the relay: it has no views, and asks the gateway that has them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from gateway.known_fixes import fix_key
from gateway.mqtt.relay import FrameProtocol, watched
from gateway.receipts import Receipt
from gateway.submit import Submitter
from waylog.messages import Fix

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 5.0
_RETRY_S: Final = 0.2
_REQUESTS_MAX: Final = 10_000


class RelayUnavailable(Exception):
    """The gateway with the views does not answer now."""


class NoAddresses:
    """A view of addresses, or of fixes, that has none."""

    def latest(self, device: str) -> Any:
        """Nothing is known here."""
        return None

    def devices(self, user: str | None) -> Iterable[str]:
        """Nothing is known here."""
        return ()


class RelayClient:
    """The connection to the relay, made again whenever it is lost.

    `on_address(device, value)` gets the addresses of devices that are watched, `on_arrival` their
    transitions.
    """

    def __init__(
        self,
        path: Path,
        on_address: Callable[[str, bytes], None],
        on_arrival: Callable[[str, bytes], None],
    ) -> None:
        self._path = path
        self._on_address = on_address
        self._on_arrival = on_arrival
        self._wanted: Counter[str] = Counter()
        self._changed: dict[str, None] = {}
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._connection: FrameProtocol | None = None
        self._connected_before = False
        self._lost = asyncio.Event()
        self.connected = asyncio.Event()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._lost.clear()
                try:
                    _, self._connection = await loop.create_unix_connection(
                        lambda: FrameProtocol(self._on_frame, self._on_lost), str(self._path)
                    )
                except OSError:
                    await asyncio.sleep(_RETRY_S)
                    continue
                # The whole list: a gateway that was restarted knows nothing of it.
                self._changed.clear()
                self._connection.send(
                    "watch", [(name, True) for name in self._wanted], self._connected_before
                )
                self._connected_before = True
                self.connected.set()
                await self._lost.wait()
                self.connected.clear()
                logger.warning("the connection to the gateway with the views is lost")
        finally:
            if self._connection is not None:
                self._connection.close()

    def watch(self, topic_filters: Iterable[str], wanted: bool) -> None:
        """Clients have subscribed to filters, or not any more."""
        for name in map(watched, topic_filters):
            if name is None:
                continue
            before = self._wanted[name]
            self._wanted[name] += 1 if wanted else -1
            if self._wanted[name] <= 0:
                del self._wanted[name]
            if (before > 0) != (name in self._wanted):
                if not self._changed:
                    asyncio.get_running_loop().call_soon(self._send_changed)
                self._changed[name] = None

    def _send_changed(self) -> None:
        changed, self._changed = self._changed, {}
        if changed and self._connection is not None:
            self._connection.send(
                "watch", [(name, name in self._wanted) for name in changed], False
            )

    async def request(self, kind: str, *arguments: Any) -> Any:
        """Ask the gateway; raises RelayUnavailable."""
        if self._connection is None or len(self._requests) >= _REQUESTS_MAX:
            raise RelayUnavailable
        self._number += 1
        number = self._number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests[number] = future
        self._connection.send(kind, number, *arguments)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await future
        except TimeoutError as error:
            raise RelayUnavailable from error
        finally:
            self._requests.pop(number, None)

    def _on_frame(self, _: FrameProtocol, frame: list[Any]) -> None:
        kind, *arguments = frame
        if kind == "addresses":
            for device, value in arguments[0]:
                self._on_address(device, value)
        elif kind == "arrived":
            self._on_arrival(*arguments)
        elif kind == "answer":
            future = self._requests.get(arguments[0])
            if future is not None and not future.done():
                future.set_result(arguments[1])

    def _on_lost(self, _: FrameProtocol) -> None:
        self._connection = None
        self._lost.set()
        for future in self._requests.values():
            if not future.done():
                future.set_exception(RelayUnavailable())


class EdgeSubmitter(Submitter):
    """Knows only the fixes that came by this worker: of repeats it asks the gateway."""

    def __init__(self, *arguments: Any, relay: RelayClient, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.doubts_repeats = True
        self._relay = relay
        self._asking: set[asyncio.Task[None]] = set()

    def submit_location(self, fix: Fix, traceparent: bytes | None = None) -> Receipt:
        """Append a fix, unless a client repeats it and another worker has appended it."""
        if not self.repeated:
            return super().submit_location(fix, traceparent)
        receipt = Receipt()
        task = asyncio.get_running_loop().create_task(self._ask(fix, traceparent, receipt))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return receipt

    async def _ask(self, fix: Fix, traceparent: bytes | None, receipt: Receipt) -> None:
        # Without an answer a fix that is there twice is better than one that is not there.
        with contextlib.suppress(RelayUnavailable):
            if await self._relay.request("known", fix.device, fix.id):
                self.known_fixes.add(fix_key(fix.device, fix.id))
        appended = super().submit_location(fix, traceparent)
        appended.add_done_callback(partial(_finish, receipt))


def _finish(receipt: Receipt, appended: Receipt) -> None:
    receipt.finish(appended.exception())
