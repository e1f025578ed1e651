"""Makes an MQTT server one of several workers: its channel, claims and questions about fixes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from gateway.fixes.device_times import DeviceTimes
from gateway.fixes.known_fixes import fix_key
from gateway.fixes.receipts import Receipt
from gateway.fixes.submit import Submitter
from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.listening.listener import MqttServer
from gateway.mqtt.requests import RelayUnavailable, Requests
from gateway.mqtt.sessions.claims import SessionClaims
from gateway.mqtt.workers.worker_hub import WorkerHub
from gateway.mqtt.workers.worker_peers import Channel, WorkerPeers
from waylog.kafka.clients import AppendError
from waylog.messages import Fix
from waylog.process.background import TaskSet


class AskingChannel(Channel, Protocol):
    """A channel that also sends requests."""

    async def request(
        self, kind: str, *arguments: Any, user: str, late: Callable[[Any], object] | None = None
    ) -> Any: ...


class LocalChannel:
    """The channel of the worker that runs in the same process as the worker hub."""

    is_open = True

    def __init__(self, worker_hub: WorkerHub) -> None:
        self._worker_hub = worker_hub
        self._requests = Requests(self.send)
        self._inbox = _Inbox(self)
        self.on_frame: Callable[[str, list[Any]], None] | None = None

    def send(self, *frame: Any) -> None:
        """Send a frame to the worker hub."""
        kind, *arguments = frame
        self._worker_hub.on_frame(self._inbox, kind, arguments)

    async def request(
        self, kind: str, *arguments: Any, user: str, late: Callable[[Any], object] | None = None
    ) -> Any:
        """Send a request, as Requests.ask does; raises RelayUnavailable."""
        return await self._requests.ask(kind, *arguments, user=user, late=late)

    def take(self, kind: str, arguments: list[Any]) -> None:
        """Handle a frame from the worker hub."""
        if kind == "answer":
            self._requests.answered(*arguments)
        elif self.on_frame is not None:
            self.on_frame(kind, arguments)


class _Inbox:
    """The worker hub's end of a LocalChannel."""

    def __init__(self, channel: LocalChannel) -> None:
        self._channel = channel

    def send(self, *frame: Any) -> None:
        """Deliver a frame to this worker."""
        kind, *arguments = frame
        self._channel.take(kind, arguments)


def about_fixes(channel: AskingChannel, kind: str) -> Callable[[str, str], Awaitable[Any]]:
    """Return a function that asks about a fix, in the share of its device's user."""

    async def ask(device: str, fix_id: str) -> Any:
        return await channel.request(kind, device, fix_id, user=device.partition("/")[0])

    return ask


class DeduplicatingSubmitter(Submitter):
    """A submitter that knows only this worker's fixes and asks about those that may be elsewhere.

    `is_stored(device, fix_id)` tells whether another worker has stored a fix that a client repeats;
    it raises RelayUnavailable. `look_up(device, fix_id)` tells whether the views have a fix, and
    the greatest time of all fixes of its device; it raises RelayUnavailable, too. With `look_up`
    the submitter asks about each fix that may have come by another worker: the first fix of a
    device over a connection, and fixes that are not newer than the newest known one of the device.
    """

    def __init__(
        self,
        *arguments: Any,
        is_stored: Callable[[str, str], Awaitable[bool]],
        look_up: Callable[[str, str], Awaitable[tuple[bool, int | None]]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.doubts_repeats = True
        self._is_stored = is_stored
        self._look_up = look_up
        if look_up is not None:
            self.known_fixes.watch(DeviceTimes())
            self.doubts_late = True
        # The number of look-ups under way, by device and connection.
        self._looking_up: Counter[tuple[str, int]] = Counter()
        self._asking = TaskSet("asking other workers for a fix")

    def submit_location(self, fix: Fix, traceparent: bytes | None = None) -> Receipt:
        """Append a fix, unless it may have come before and another worker has stored it."""
        known = self.receipt_of(fix_key(fix.device, fix.id)) is not None
        if known or not (self.repeated or self.may_be_elsewhere(fix)):
            return super().submit_location(fix, traceparent)
        receipt = Receipt()
        repeated, sender = self.repeated, self.sender
        if not repeated:
            self._looking_up[fix.device, sender] += 1
        self._asking.start(
            self._ask(fix, traceparent, receipt)
            if repeated
            else self._ask_views(fix, traceparent, receipt, sender),
            lambda error: receipt.finish(AppendError(repr(error))),
        )
        return receipt

    async def _ask(self, fix: Fix, traceparent: bytes | None, receipt: Receipt) -> None:
        # Without an answer append the fix: a duplicate is better than a loss.
        with contextlib.suppress(RelayUnavailable):
            if await self._is_stored(fix.device, fix.id):
                self.known_fixes.add(fix_key(fix.device, fix.id))
        self._append_asked(fix, traceparent, receipt)

    async def _ask_views(
        self, fix: Fix, traceparent: bytes | None, receipt: Receipt, sender: int
    ) -> None:
        assert self._look_up is not None
        place = (fix.device, sender)
        try:
            known, newest = await self._look_up(fix.device, fix.id)
            if known:
                self.known_fixes.add(fix_key(fix.device, fix.id))
            # While other look-ups are under way, later fixes have to wait behind them.
            if self._looking_up[place] == 1:
                self.trust(fix.device, sender, max(newest or fix.time, fix.time))
        except RelayUnavailable:
            pass
        finally:
            self._looking_up[place] -= 1
            if not self._looking_up[place]:
                del self._looking_up[place]
        self._append_asked(fix, traceparent, receipt)

    def _append_asked(self, fix: Fix, traceparent: bytes | None, receipt: Receipt) -> None:
        appended = super().submit_location(fix, traceparent)
        appended.add_done_callback(partial(_finish, receipt))


def _finish(receipt: Receipt, appended: Receipt) -> None:
    receipt.finish(appended.exception())


def join(
    server: MqttServer, journal: Journal, channel: AskingChannel, submitter: Submitter
) -> WorkerPeers:
    """Make a server one of several workers; the caller then calls `opened` of the result."""
    loop = asyncio.get_running_loop()

    def receipt_of(device: str, fix_id: str) -> Receipt | None:
        return submitter.receipt_of(fix_key(device, fix_id))

    server.claim = SessionClaims(server.router, journal, channel.request, loop.time).claim
    journal.writes_all = False
    return WorkerPeers(
        server.router,
        journal,
        channel,
        clock=loop.time,
        schedule=loop.call_soon,
        wake=server.wake,
        in_flight=receipt_of,
    )
