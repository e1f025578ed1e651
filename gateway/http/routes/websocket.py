"""`GET /v1/ws`: send fixes and watch, over one connection, in JSON text frames.

From the client:
  {"type": "fix", "id": "mine-1", "device": "phone", "lat": .., "lon": .., ...}
  {"type": "fixes", "fixes": [{...}, ...]}
  {"type": "subscribe", "bbox": [w, s, e, n], "devices": [..], "topics": ["location", "address"],
   "friends": false, "batch": true}     narrows the events; the default is all visible devices
  {"type": "view", "bbox": [w, s, e, n], "zoom": 4.5, "devices": [..], "friends": false}
                                       looks at a part of the map, and at these devices anywhere
  {"type": "unsubscribe"}    {"type": "ping"}

To the client:
  {"type": "ready", "cursor": ".."}
  {"type": "ack", "ids": ["mine-1"], "fix_ids": [".."]}           stored by all in-sync replicas
  {"type": "rejected", "id": "mine-1", "index": 0, "reason": ".."}  never acceptable; kept as error
  {"type": "error", "ids": ["mine-1"], "reason": "..", "retry": true}             not stored: repeat
  {"type": "fix", "cursor": "..", ...members of a fix}, {"type": "address", "cursor": "..", ...}
  {"type": "skipped", "count": n}          this viewer was too slow and got the newest state instead
  binary frames                              what a part of the map shows (gateway.viewers.lens)

`?since=CURSOR` resumes where a viewer was. With "batch" several messages are sent as one array.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from gateway.bodies.parsing import (
    READ_HERE_BYTES_MAX,
    ParsingFailed,
    ParsingUnavailable,
    is_read_here,
)
from gateway.fixes.plain_positions import PlainPositions, PlainRecords
from gateway.fixes.receipts import BatchReceipt, Receipt
from gateway.formats import Context, Parsed, positions
from gateway.http.plain.websockets import messages, prepare_websocket, send_or_close
from gateway.http.requests.authentication import (
    reader,
    remote_of,
    shown_credentials,
    stranger_of,
)
from gateway.http.requests.browsers import same_origin
from gateway.http.requests.responses import Refused
from gateway.http.requests.services import SERVICES, Services
from gateway.http.routes.stream import (
    COALESCING_S,
    WRITE_BUFFER_BYTES,
    cursor_of,
    end_stalled,
    filter_of,
    missed,
    viewing,
)
from gateway.limits.bounds import RECORD_BYTES
from gateway.limits.turn_clock import Asker
from gateway.observability.push_ledger import WEBSOCKET
from gateway.users.admission import NotAdmitted
from gateway.users.auth import ANONYMOUS, Identity
from gateway.users.permissions import may_send
from gateway.viewers.areas import Area, AreaViewer
from gateway.viewers.cursors import encode_cursor
from gateway.viewers.live_events import EVENT_NAMES, websocket_of
from gateway.viewers.log_range import LogRanges, RangeCutOff
from gateway.viewers.viewers import Viewer
from waylog.bounding_box import BoundingBox
from waylog.malformed import MALFORMED
from waylog.messages import Rejected
from waylog.network.token_bucket import TokenBucket
from waylog.observability.telemetry import now_ms

logger = logging.getLogger(__name__)

MESSAGE_BYTES_MAX: Final = 1024 * 1024
#: Fixes of one connection that wait for the log; above this number reading pauses.
IN_FLIGHT_MAX: Final = 2_000
_HEARTBEAT_S: Final = 30.0
#: Responses that wait for a client that sends but does not read.
_ANSWERS_MAX: Final = 10_000
_STEP_FIXES: Final = 50
#: Messages sent to one client between two looks at the clock.
_LOOKS: Final = 16
_DEVICES_MAX: Final = 1_000

_FIX_START: Final = b'{"type":"fix",'

#: The reason of a close; the client should come again, from the last event that it has.
_CUT_OFF: Final = "what was missed cannot be read now"
_FLOOD: Final = "too many fixes a second on one connection"

_encode = msgspec.json.Encoder().encode
_decode_ids = msgspec.json.Decoder(list[str]).decode

_DONE = Receipt()
_DONE.finish(None)


class _Incoming(msgspec.Struct):
    type: str | None = None
    fixes: msgspec.Raw = msgspec.Raw()
    bbox: list[float] | None = None
    devices: list[str] | None = None
    topics: list[str] | None = None
    batch: bool | None = None
    friends: bool | None = None
    zoom: float | None = None


_incoming = msgspec.json.Decoder(_Incoming)


async def serve_websocket(ranges: LogRanges, request: web.Request) -> web.StreamResponse:
    """Serve `GET /v1/ws`."""
    if not same_origin(request):
        # Browsers let any page open a WebSocket to this host, with the user's credentials.
        raise Refused(403, "a page of another site may not connect")
    services = request.app[SERVICES]
    identity = await reader(request)
    # A browser's session can read but not send.
    sends = shown_credentials(request) is not None or services.authenticator.open_mode
    wanted = filter_of(request, identity)
    since = cursor_of(request)
    socket = web.WebSocketResponse(
        heartbeat=_HEARTBEAT_S, max_msg_size=MESSAGE_BYTES_MAX, compress=False, autoping=False
    )
    async with (
        viewing(services, wanted, identity, remote_of(request)) as viewer,
        AsyncExitStack() as stack,
    ):
        if request.transport is not None:
            request.transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        party = identity.user or stranger_of(request)
        await prepare_websocket(request, socket, party)
        stalled = partial(end_stalled, request)
        connection = _Connection(socket, viewer, sends, services, party, stalled)
        stack.callback(connection.close)

        async def watch() -> None:
            # Nothing of it exists yet if the task is cancelled before it begins.
            await services.turns.run(Asker(party), connection.watch(ranges, since))

        watching = asyncio.create_task(send_or_close(socket, watch()))
        try:
            await connection.receive()
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    return socket


class _Connection:
    """One WebSocket, with one task that reads and one that writes."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        viewer: Viewer,
        sends: bool,
        services: Services,
        party: str,
        end_stalled: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._end_stalled = end_stalled
        self._viewer = viewer
        self._sends = sends
        self._services = services
        self._party = party
        self._answers: deque[bytes] = deque()
        self._batch = False
        self._in_flight = 0
        self._room = asyncio.Event()
        self._room.set()
        self._rate = TokenBucket(services.limits.fixes_per_s_per_websocket)
        self._plain: PlainPositions | None = None
        self._plain_of: Identity | None = None
        # None while the client does not look at the map by area.
        self._area: AreaViewer | None = None

    def close(self) -> None:
        """Note that the connection has ended."""
        if self._area is not None:
            self._services.areas.remove(self._area)
            self._area = None

    @property
    def _identity(self) -> Identity:
        """Return the client's identity, with its current rights."""
        return self._viewer.identity

    # --- from the client ------------------------------------------------------------------------

    async def receive(self) -> None:
        """Read messages until the client closes the connection, in turns of its party."""
        async for frame in messages(self._socket, self._services.turns, Asker(self._party)):
            if frame.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                continue
            body = frame.data.encode() if frame.type == WSMsgType.TEXT else frame.data
            large = self._take(body)
            if large is not None:
                await self._large_fixes(large)
            if not self._room.is_set():
                await self._room.wait()
            if len(self._answers) > _ANSWERS_MAX:
                await self._socket.close(code=1008, message=b"answers are not read")
                return

    def _take(self, body: bytes) -> bytes | None:
        """Process a message. Return its fixes if parsing them here would take too long."""
        if body[:1] == b"[":
            return self._fixes(body)
        if body.startswith(_FIX_START):
            # The form that Waylog's own clients send: the rest is a position.
            return self._fixes(b"{" + body[len(_FIX_START) :])
        try:
            incoming = _incoming.decode(body)
        except MALFORMED as error:
            self._answer({"type": "error", "reason": f"not understood: {error}", "retry": False})
            return None
        if incoming.type in ("fix", None):
            return self._fixes(body)
        if incoming.type == "fixes" and bytes(incoming.fixes):
            return self._fixes(bytes(incoming.fixes))
        if incoming.type == "subscribe":
            self._subscribe(incoming)
        elif incoming.type == "view":
            self._view(incoming)
        elif incoming.type == "unsubscribe":
            self._viewer.wanted.topics = frozenset()
            self._services.viewers.wanted_changed(self._viewer)
            self.close()
        elif incoming.type == "ping":
            self._answer({"type": "pong"})
        else:
            self._answer({"type": "error", "reason": "unknown type", "retry": False})
        return None

    def _subscribe(self, incoming: _Incoming) -> None:
        wanted = self._viewer.wanted
        try:
            box = None if incoming.bbox is None else BoundingBox.of(incoming.bbox)
        except ValueError:
            reason = "bbox is [west, south, east, north] in degrees"
            self._answer({"type": "error", "reason": reason, "retry": False})
            return
        wanted.box = box
        topics = frozenset(EVENT_NAMES if incoming.topics is None else incoming.topics)
        wanted.topics = topics & EVENT_NAMES.keys()
        wanted.own_only = incoming.friends is False and bool(self._identity.user)
        devices = incoming.devices
        wanted.devices = None if devices is None else frozenset(devices[:_DEVICES_MAX])
        self._services.viewers.wanted_changed(self._viewer)
        self._batch = bool(incoming.batch)
        self._answer({"type": "subscribed"})

    def _view(self, incoming: _Incoming) -> None:
        if incoming.bbox is None:
            self.close()
            self._answer({"type": "viewing"})
            return
        try:
            area = Area.of(BoundingBox.of(incoming.bbox), incoming.zoom or 0.0)
        except ValueError:
            reason = "bbox is [west, south, east, north] in degrees, zoom from 0 to 24"
            self._answer({"type": "error", "reason": reason, "retry": False})
            return
        if self._area is None:
            self._area = self._services.areas.add(self._viewer)
        own_only = incoming.friends is False and bool(self._identity.user)
        self._area.look_at(area, incoming.devices or (), own_only)
        self._answer({"type": "viewing"})

    def _fixes(self, body: bytes) -> bytes | None:
        if not (self._sends and may_send(self._identity)):
            reason = "sending needs credentials that may send"
            self._answer({"type": "error", "reason": reason, "retry": False})
            return None
        if len(body) > READ_HERE_BYTES_MAX:
            return body
        received = now_ms()
        submitter = self._services.submitter
        plain = self._plain_positions()
        few = is_read_here(body)
        if plain is not None and not (few and submitter.is_sample()):
            records = plain.records(body, received)
            if records is not None:
                size = len(body) + len(records) * RECORD_BYTES
                if not self._admit(len(records), size):
                    self._not_stored(own_ids(records), _FLOOD)
                else:
                    receipt = submitter.submit_records(records, positions.SOURCE, None)
                    receipt.add_done_callback(partial(self._stored_records, records, size))
                return None
        if not few:
            return body
        for _ in self._submit(positions.parse(body, self._context(received)), len(body)):
            pass  # it is small
        return None

    async def _large_fixes(self, body: bytes) -> None:
        """Parse fixes in the separate process and submit them; nothing else is read meanwhile."""
        context = self._context(now_ms())
        try:
            parsed = await self._services.parsing.parse(
                positions.SOURCE, body, context, context.user
            )
        except (ParsingUnavailable, ParsingFailed) as error:
            retry = isinstance(error, ParsingUnavailable)
            self._answer({"type": "error", "reason": str(error), "retry": retry})
            return
        for _ in self._submit(parsed, len(body)):
            await asyncio.sleep(0)

    def _context(self, received: int) -> Context:
        return Context(
            user=self._identity.user or ANONYMOUS,
            device=self._identity.device,
            received=received,
            any_user=self._identity.admin or self._services.authenticator.open_mode,
        )

    def _submit(self, parsed: Parsed, body_bytes: int) -> Iterator[None]:
        """Submit the parsed fixes, in steps none of which takes long."""
        submitter = self._services.submitter
        ids = [name for name in parsed.client_ids if name is not None]
        if parsed.refused is not None:
            self._answer({"type": "error", "reason": parsed.refused, "retry": False})
            return
        sent, size = len(parsed.fixes), body_bytes + parsed.count * RECORD_BYTES
        if not self._admit(sent, size):
            self._not_stored(ids, _FLOOD)
            return
        try:
            yield from self._services.admission.admit_in_steps(self._identity, parsed)
        except NotAdmitted as error:
            self._landed(sent, size)
            self._not_stored(ids, str(error))
            return
        self._landed(sent - len(parsed.fixes), 0)
        # Submitted before anything else is read, so that a device's fixes keep their order.
        waiting = BatchReceipt(1 + len(parsed.fixes) + len(parsed.rejected))
        refusals: list[bytes] = []
        waiting.add_done_callback(partial(self._stored, parsed, refusals, size))
        for number, fix in enumerate(parsed.fixes, 1):
            submitter.submit_location(fix).add_done_callback(waiting.one_done)
            if not number % _STEP_FIXES:
                yield
        places = zip(parsed.rejected_at, parsed.rejected, strict=True)
        for number, (index, rejected) in enumerate(places, 1):
            refusals.append(_refusal(index, rejected))
            submitter.rejected_receipt(rejected).add_done_callback(waiting.one_done)
            if not number % _STEP_FIXES:
                yield
        waiting.one_done(_DONE)

    def _plain_positions(self) -> PlainPositions | None:
        """Return the fast parser of positions; None for administrators and users with a quota."""
        identity = self._identity
        if identity is not self._plain_of:
            self._plain_of, self._plain = identity, None
            admission = self._services.admission
            if not admission.is_metered(identity) and not identity.admin:
                knows = partial(admission.knows_device, identity)
                self._plain = PlainPositions(identity.user, identity.device, knows)
        return self._plain

    def _admit(self, count: int, size: int) -> bool:
        """Count fixes in flight and their bytes. Return False if the client exceeds its limits."""
        if not self._services.under_way.take(self._identity.user, size):
            return False
        if not self._rate.take(count):
            self._services.under_way.give_back(self._identity.user, size)
            return False
        self._in_flight += count
        if self._in_flight > IN_FLIGHT_MAX:
            self._room.clear()
        return True

    def _landed(self, count: int, size: int) -> None:
        self._services.under_way.give_back(self._identity.user, size)
        self._in_flight -= count
        if self._in_flight <= IN_FLIGHT_MAX:
            self._room.set()

    def _not_stored(self, ids: list[str], reason: str) -> None:
        self._answer({"type": "error", "ids": ids, "reason": reason, "retry": True})

    def _stored_records(self, records: PlainRecords, size: int, receipt: Receipt) -> None:
        self._landed(len(records), size)
        error = receipt.exception()
        if error is not None:
            self._not_stored(own_ids(records), f"not stored: {error}")
            return
        self._answers.append(ack(records))
        self._viewer.wake.set()

    def _stored(self, parsed: Parsed, refusals: list[bytes], size: int, receipt: Receipt) -> None:
        self._landed(len(parsed.fixes), size)
        ids = [name for name in parsed.client_ids if name is not None]
        error = receipt.exception()
        if error is not None:
            self._not_stored(ids, f"not stored: {error}")
            return
        if parsed.fixes:
            fix_ids = [fix.id for fix in parsed.fixes]
            self._answer({"type": "ack", "ids": ids, "fix_ids": fix_ids})
        if refusals:
            self._answers += refusals
            self._viewer.wake.set()

    def _answer(self, answer: dict[str, Any]) -> None:
        self._answers.append(_encode(answer))
        self._viewer.wake.set()

    # --- to the client --------------------------------------------------------------------------

    async def watch(self, ranges: LogRanges, since: dict[tuple[str, int], int] | None) -> None:
        """Write events and answers until cancelled, or until the client closes the connection."""
        with suppress(ConnectionResetError):
            start = dict(self._viewer.cursor) if since is None else since
            seal = self._services.cursor_seal
            ready = {"type": "ready", "cursor": seal.seal(encode_cursor(start))}
            await self._send([_encode(ready)])
            if since is not None:
                batches = missed(ranges, self._viewer, since, self._services)
                try:
                    async with aclosing(batches):
                        async for missed_events in batches:
                            await self._send_events(
                                [
                                    websocket_of(each, seal.seal(self._viewer.advance(each)))
                                    for each in missed_events
                                ]
                            )
                except RangeCutOff:
                    # Live events would hide that some are missing.
                    await self._socket.close(
                        code=WSCloseCode.TRY_AGAIN_LATER, message=_CUT_OFF.encode()
                    )
                    return
            while True:
                await self._viewer.wake.wait()
                if (closed := self._viewer.closed) is not None:
                    await self._socket.close(code=closed.code, message=closed.reason.encode())
                    return
                # All viewers of a user are told of the same events, and have one turn.
                await self._services.turns.let_others_work(self._party)
                events = self._viewer.take()
                answers = list(self._answers)
                self._answers.clear()
                if skipped := self._viewer.take_skipped():
                    self._services.metrics.skipped += skipped
                    answers.append(_encode({"type": "skipped", "count": skipped}))
                if self._viewer.take_narrowed():
                    answers.append(_encode({"type": "narrowed"}))
                await self._send(answers)
                await self._send_events([live.websocket(seal) for live in events])
                self._services.pushes.shown(WEBSOCKET, events, self._identity.user)
                if self._area is not None:
                    await self._send_frames(self._area.take(now_ms()))
                if events:
                    # Events that wait already are sent at once; otherwise new ones are collected
                    # for a moment.
                    await asyncio.sleep(0 if self._viewer.wake.is_set() else COALESCING_S)

    async def _send_events(self, events: list[bytes]) -> None:
        await self._send([event for event in events if event])
        self._services.metrics.pushed("websocket", len(events))

    async def _send(self, messages: list[bytes]) -> None:
        if self._batch and len(messages) > 1:
            messages = [b"[" + b",".join(messages) + b"]"]
        await self._send_frames(messages, WSMsgType.TEXT)

    async def _send_frames(self, frames: list[bytes], kind: WSMsgType = WSMsgType.BINARY) -> None:
        if not frames:
            return
        try:
            async with asyncio.timeout(self._services.limits.stalled_viewer_timeout_s):
                turns = self._services.turns
                for number, frame in enumerate(frames, 1):
                    # Blocks while the client does not read; new events are coalesced meanwhile,
                    # and ticks of the map left out.
                    await self._socket.send_frame(frame, kind)
                    if not number % _LOOKS:
                        await turns.let_others_work(self._party)
        except TimeoutError:
            self._end_stalled()
            raise ConnectionResetError("the client does not read") from None


def own_ids(records: PlainRecords) -> list[str]:
    """Return the client's own ids of records."""
    return _decode_ids(b"[%b]" % records.own_ids)


def ack(records: PlainRecords) -> bytes:
    """Return the acknowledgement of records."""
    return b'{"type":"ack","ids":[%b],"fix_ids":[%b]}' % (records.own_ids, records.ids)


def _refusal(index: int, rejected: Rejected) -> bytes:
    refusal = {"type": "rejected", "index": index, "reason": rejected.reason}
    if client_id := _id_of(rejected.raw):
        refusal["id"] = client_id
    return _encode(refusal)


def _id_of(raw: bytes) -> str | None:
    try:
        value = msgspec.json.decode(raw, type=dict[str, Any]).get("id")
    except MALFORMED:
        return None
    return value if isinstance(value, str) else None
