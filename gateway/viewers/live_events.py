"""Events for live viewers: encoded once, however many viewers there are.

`Feed` keeps the newest event of each device, for viewers that have fallen behind. A viewer that
does not read causes no cost here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, NamedTuple

from gateway.friends.friend_events import FriendEventFilter
from gateway.shares.share import Terms
from gateway.viewers.cursors import CursorSeal
from gateway.views.view import ViewEvent
from waylog.kafka.topics import ADDRESS, LOCATION

EVENT_NAMES: Final = {LOCATION: "fix", ADDRESS: "address"}

#: Devices of which a feed keeps the newest event.
NEWEST_EVENTS_MAX: Final = 20_000


#: An event as somebody is told it, and its time (ms); None if nothing is told.
_Form = tuple["LiveEvent | None", int]


class LiveEvent:
    """An event with its number in the stream of all events and its encoded forms."""

    __slots__ = ("_forms", "_sse", "_websocket", "cursor", "event", "number", "told", "told_ms")

    def __init__(self, event: ViewEvent, number: int, cursor: str) -> None:
        self.event = event
        #: Increases from event to event.
        self.number = number
        #: Next offsets after this event and all before it, encoded: the basis of its event id.
        self.cursor = cursor
        #: The event as friends see it, and its time (ms); None if they see nothing.
        self.told: LiveEvent | None = None
        self.told_ms = 0
        self._forms: dict[tuple[FriendEventFilter, Terms], _Form] | None = None
        self._sse: bytes | None = None
        self._websocket: bytes | None = None

    def told_by(self, telling: FriendEventFilter, terms: Terms) -> _Form:
        """Return what others than most friends see, and its time (ms); made once for all of them.

        So whoever takes it late gets what the others got, though something newer was news since.
        """
        forms, key = self._forms, (telling, terms)
        if forms is not None and key in forms:
            return forms[key]
        made = telling.event(self.event, terms)
        if made is None and not telling.filter.is_ready_for(terms):
            return None, 0  # it is asked for again when homes are known
        form: _Form = (None, 0)
        if made is not None:
            form = LiveEvent(made.what, self.number, self.cursor), made.time
        if forms is None:
            forms = self._forms = {}
        forms[key] = form
        return form

    def sse(self, seal: CursorSeal) -> bytes:
        """Return the server-sent event; encoded once for all viewers."""
        if self._sse is None:
            self._sse = sse_of(self.event, seal.seal(self.cursor))
        return self._sse

    def websocket(self, seal: CursorSeal) -> bytes:
        """Return the WebSocket message, likewise; empty if the record is not a JSON object."""
        if self._websocket is None:
            self._websocket = websocket_of(self.event, seal.seal(self.cursor))
        return self._websocket


def sse_of(event: ViewEvent, event_id: str) -> bytes:
    """Return a server-sent event (WHATWG HTML, section 9.2.6)."""
    value = event.value
    if b"\n" in value or b"\r" in value:
        # Records of this gateway have no line breaks; those of other producers may.
        value = value.replace(b"\r", b" ").replace(b"\n", b" ")
    name = EVENT_NAMES[event.topic].encode()
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), name, value)


def websocket_of(event: ViewEvent, event_id: str) -> bytes:
    """Return the record with `type` and `cursor` in front, which no record has as members."""
    if event.value[:1] != b"{":
        return b""
    opening = f'{{"type":"{EVENT_NAMES[event.topic]}","cursor":"{event_id}",'
    return opening.encode() + event.value[1:]


class Batch(NamedTuple):
    """Events that came at one time, shared by all viewers of one feed; immutable."""

    events: list[LiveEvent]
    value_bytes: int
    #: The number of the `on_events` call that made the batch; batches of several users share it.
    call: int


class Feed:
    """The events of one user, or of all users: the newest of each device."""

    def __init__(self) -> None:
        #: Number of viewers that see the feed as friends.
        self.friends = 0
        # In order of arrival; the last event is at the end.
        self._newest: OrderedDict[tuple[str, str], LiveEvent] = OrderedDict()

    def add(self, live: LiveEvent) -> None:
        """Keep an event in place of the device's older one, unless it is older itself."""
        newest = self._newest
        key = (live.event.topic, live.event.device)
        previous = newest.get(key)
        if previous is not None and previous.event.live > live.event.live:
            return
        newest[key] = live
        newest.move_to_end(key)
        if len(newest) > NEWEST_EVENTS_MAX:
            newest.popitem(last=False)

    def untold(self) -> list[LiveEvent]:
        """Return the events that friends have not been shown."""
        return [live for live in self._newest.values() if live.told is None]

    def has(self, live: LiveEvent) -> bool:
        """Tell whether an event is still the newest of its device."""
        return self._newest.get((live.event.topic, live.event.device)) is live

    def newest_since(self, number: int) -> Iterator[LiveEvent]:
        """Yield the newest event of each device among those from `number` on, the last first."""
        return takewhile(lambda live: live.number >= number, reversed(self._newest.values()))
