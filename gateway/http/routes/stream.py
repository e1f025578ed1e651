"""`GET /v1/stream`: fixes and addresses as server-sent events (WHATWG HTML, section 9.2).

`event: fix` and `event: address` carry the JSON of the topics. The id of an event is the set of
next offsets; a client that reconnects with `Last-Event-ID` (or `?since=`) gets the records of the
log from there on. `event: skipped` with `{"count": n}` tells a slow client how many events it
missed, `event: narrowed` that a friend shows less than before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Final

from aiohttp import web

from gateway.friends.friend_events import FriendEventFilter
from gateway.http.requests.authentication import reader, remote_of, require_device
from gateway.http.requests.responses import Refused, unauthorized, unavailable
from gateway.http.requests.services import SERVICES, Services
from gateway.limits.addresses import is_loopback
from gateway.observability.push_ledger import SSE
from gateway.users.auth import Identity
from gateway.viewers.cursors import BadCursor, Cursor, encode_cursor
from gateway.viewers.live_events import EVENT_NAMES, sse_of
from gateway.viewers.log_range import LogRanges, RangeCutOff
from gateway.viewers.viewers import Filter, TooManyViewers, Viewer
from gateway.views.view import ViewEvent
from waylog.bounding_box import BoundingBox
from waylog.network.connection_ends import reset
from waylog.network.peer_parties import party_of
from waylog.observability.telemetry import now_ms

HEARTBEAT_S: Final = 15.0
_LOOK_S: Final = 1.0
#: Seconds in which events are collected for one write.
COALESCING_S: Final = 0.05
#: Seconds that a returning viewer waits for the homes of its friends to be loaded.
HOMES_S: Final = 10.0

#: Bytes written to a viewer but not yet sent, beside the socket's own buffer.
WRITE_BUFFER_BYTES: Final = 32 * 1024

Write = Callable[[bytes], Awaitable[None]]


class StalledViewer(Exception):
    """The client has not read for too long."""


def filter_of(request: web.Request, identity: Identity) -> Filter:
    """Return a viewer's filter from its URL: `bbox`, `device`, `topics`. Raises Refused."""
    wanted = Filter()
    try:
        if box := request.query.get("bbox"):
            wanted.box = BoundingBox.of(float(number) for number in box.split(","))
    except ValueError:
        raise Refused(400, "bbox is west,south,east,north in degrees") from None
    if device := request.query.get("device"):
        require_device(identity, device)
        wanted.devices = frozenset((device,))
    if topics := request.query.get("topics"):
        wanted.topics = frozenset(topics.split(",")) & EVENT_NAMES.keys()
        if not wanted.topics:
            raise Refused(400, f"topics are {' and '.join(EVENT_NAMES)}")
    return wanted


def cursor_of(request: web.Request) -> Cursor | None:
    """Return the cursor at which a viewer wants to resume, or None. Raises Refused."""
    text = request.headers.get("Last-Event-ID") or request.query.get("since")
    if not text:
        return None
    try:
        return request.app[SERVICES].cursor_seal.open(text)
    except BadCursor as error:
        raise Refused(400, str(error)) from error


@asynccontextmanager
async def viewing(
    services: Services,
    wanted: Filter,
    identity: Identity,
    address: str,
    until_ms: int | None = None,
) -> AsyncIterator[Viewer]:
    """Register a viewer for as long as its connection lasts, at most until `until_ms`.

    Raises Refused.
    """
    try:
        # The rights may have changed since the credentials were verified.
        now = services.permissions.now(identity)
        if now is None:
            raise unauthorized("the credentials have been revoked")
        # A loopback address is a proxy or this machine, and is not limited.
        party = None if is_loopback(address) else party_of(address)
        viewer = services.viewers.add(wanted, now, party)
    except TooManyViewers as error:
        raise unavailable(str(error)) from None
    end = None
    if until_ms is not None:
        loop = asyncio.get_running_loop()
        end = loop.call_later((until_ms - now_ms()) / 1000, viewer.end)
    try:
        yield viewer
    finally:
        if end is not None:
            end.cancel()
        services.viewers.remove(viewer)


async def missed(
    ranges: LogRanges, viewer: Viewer, since: Cursor, services: Services
) -> AsyncGenerator[list[ViewEvent], None]:
    """Yield the events that a returning viewer has missed, and set its cursor accordingly.

    Raises RangeCutOff: the viewer should come again, from the last event that it has.
    """
    if viewer.identity.rights.friends:
        # Events skipped now, because the homes of friends are not loaded yet, would not be sent
        # again.
        await services.friend_filter.wait_until_ready(HOMES_S)
    telling = FriendEventFilter(services.friend_filter)
    end = dict(viewer.cursor)
    viewer.cursor = {each: min(since.get(each, 0), offset) for each, offset in end.items()}
    async with aclosing(ranges.read(since, end, viewer.identity.user)) as batches:
        async for events in batches:
            wanted = viewer.shown_of_before(events, telling)
            if viewer.closed:
                return
            if wanted:
                yield wanted
    viewer.cursor = end


async def serve_stream(ranges: LogRanges, request: web.Request) -> web.StreamResponse:
    """Serve `GET /v1/stream`."""
    identity = await reader(request)
    wanted = filter_of(request, identity)
    return await send_events(ranges, request, identity, wanted, cursor_of(request))


async def send_events(
    ranges: LogRanges,
    request: web.Request,
    identity: Identity,
    wanted: Filter,
    since: Cursor | None = None,
    until_ms: int | None = None,
) -> web.StreamResponse:
    """Send events as they come, until the client goes or `until_ms`. Raises Refused."""
    services = request.app[SERVICES]
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store",
            # Without it nginx buffers events.
            "X-Accel-Buffering": "no",
        }
    )
    async with viewing(services, wanted, identity, remote_of(request), until_ms) as viewer:
        if request.transport is not None:
            # Limits the data that is buffered for a client that does not read.
            request.transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        write = partial(_write, request, response)
        await response.prepare(request)
        with suppress(ConnectionResetError, StalledViewer, RangeCutOff):
            # The first bytes tell the client that it is connected, and its position.
            start = dict(viewer.cursor) if since is None else since
            seal = services.cursor_seal.seal
            await write(f"retry: 1000\nid: {seal(encode_cursor(start))}\n: ready\n\n".encode())
            if since is not None:
                async with aclosing(missed(ranges, viewer, since, services)) as batches:
                    async for events in batches:
                        await write(
                            b"".join(sse_of(event, seal(viewer.advance(event))) for event in events)
                        )
                        services.metrics.pushed("sse", len(events))
            while await _news_or_silence(request, write, viewer):
                await services.turns.let_others_work(identity.user)
                await _write_news(write, viewer, services, identity.user)
    return response


async def _write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Write, and wait until the client has taken most of it. Raises StalledViewer."""
    timeout_s = request.app[SERVICES].limits.stalled_viewer_timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            await response.write(data)
    except TimeoutError:
        end_stalled(request)
        raise StalledViewer from None


def end_stalled(request: web.Request) -> None:
    """Abort the connection of a client that does not read, and discard its buffered data."""
    request.app[SERVICES].metrics.viewers_stalled += 1
    if request.transport is not None:
        reset(request.transport)


async def _news_or_silence(request: web.Request, write: Write, viewer: Viewer) -> bool:
    """Wait for events to write. Return False when the client or the viewer is closed."""
    silent_s = 0.0
    while not viewer.wake.is_set():
        try:
            async with asyncio.timeout(_LOOK_S):
                await viewer.wake.wait()
        except TimeoutError:
            # A handler gets no other sign that its client has gone.
            if request.transport is None or request.transport.is_closing():
                return False
            silent_s += _LOOK_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                await write(b": still here\n\n")
    return not viewer.closed


async def _write_news(write: Write, viewer: Viewer, services: Services, user: str) -> None:
    events = viewer.take()
    skipped = viewer.take_skipped()
    body = b"".join([live.sse(services.cursor_seal) for live in events])
    if skipped:
        services.metrics.skipped += skipped
        body += b'event: skipped\ndata: {"count":%d}\n\n' % skipped
    if viewer.take_narrowed():
        body += b"event: narrowed\ndata: {}\n\n"
    if body:
        await write(body)
        services.metrics.pushed("sse", len(events))
        services.pushes.shown(SSE, events, user)
    # Events that come meanwhile are sent in one write; events that wait already are sent at once.
    await asyncio.sleep(0 if viewer.wake.is_set() else COALESCING_S)
