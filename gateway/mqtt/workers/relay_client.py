"""A worker's side of the relay: it has no views and asks the gateway that has them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from gateway.mqtt.requests import RelayUnavailable, Requests
from gateway.mqtt.workers.relay import FrameProtocol, watched

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.2


class NoAddresses:
    """An empty view, in place of the views of addresses and of fixes."""

    def latest(self, device: str) -> Any:
        """Return None: the view is empty."""
        return None

    def devices(self, user: str | None) -> Iterable[str]:
        """Return nothing: the view is empty."""
        return ()


class RelayClient:
    """A connection to the relay that reconnects whenever it is lost.

    `on_address(device, value)` receives the addresses of watched devices, `on_arrival` their
    transitions.
    """

    def __init__(
        self,
        path: Path,
        on_address: Callable[[str, bytes], None],
        on_arrival: Callable[[str, bytes], None],
        on_notice: Callable[[str, bytes], None],
    ) -> None:
        self._path = path
        self._on_address = on_address
        self._on_arrival = on_arrival
        self._on_notice = on_notice
        self._wanted: Counter[str] = Counter()
        self._changed: dict[str, None] = {}
        self._requests = Requests(self.send)
        #: Called with frames of other workers, and when the connection is open (again).
        self.on_frame: Callable[[str, list[Any]], None] | None = None
        self.on_open: Callable[[], None] | None = None
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
                # Send the whole list: the gateway may have restarted.
                self._changed.clear()
                self._connection.send(
                    "watch", [(name, True) for name in self._wanted], self._connected_before
                )
                self._connected_before = True
                if self.on_open is not None:
                    self.on_open()
                self.connected.set()
                await self._lost.wait()
                self.connected.clear()
                logger.warning("the connection to the gateway with the views is lost")
        finally:
            if self._connection is not None:
                self._connection.close()

    def watch(self, topic_filters: Iterable[str], wanted: bool) -> None:
        """Count filters that clients subscribe to, or (`wanted` False) no longer."""
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

    async def request(
        self, kind: str, *arguments: Any, user: str, late: Callable[[Any], object] | None = None
    ) -> Any:
        """Send a request to the gateway, as Requests.ask does; raises RelayUnavailable."""
        if self._connection is None:
            raise RelayUnavailable
        return await self._requests.ask(kind, *arguments, user=user, late=late)

    @property
    def is_open(self) -> bool:
        """Return whether the connection is open."""
        return self._connection is not None

    def send(self, *frame: Any) -> None:
        """Send a frame, or drop it if there is no connection."""
        if self._connection is not None:
            self._connection.send(*frame)

    def _on_frame(self, _: FrameProtocol, frame: list[Any]) -> None:
        kind, *arguments = frame
        if kind == "addresses":
            for device, value in arguments[0]:
                self._on_address(device, value)
        elif kind == "arrived":
            self._on_arrival(*arguments)
        elif kind == "noticed":
            self._on_notice(*arguments)
        elif kind == "answer":
            self._requests.answered(*arguments)
        elif self.on_frame is not None:
            self.on_frame(kind, arguments)

    def _on_lost(self, _: FrameProtocol) -> None:
        self._connection = None
        self._lost.set()
        self._requests.fail()
