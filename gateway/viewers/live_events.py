"""Events on their way to live viewers: encoded once, however many viewers there are.

`Feed` remembers the newest event of each device, for viewers that have fallen behind. Nothing here
costs anything for a viewer that does not read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, NamedTuple

from gateway.viewers.cursors import CursorSeal
from gateway.views.views import ViewEvent
from waylog.kafka.topics import ADDRESS, LOCATION

EVENT_NAMES: Final = {LOCATION: "fix", ADDRESS: "address"}

#: Devices of which a feed remembers the newest event.
NEWEST_EVENTS_MAX: Final = 20_000


class LiveEvent:
    """An event, where in the stream of all it stands, and what it looks like on the wire."""

    __slots__ = ("_sse", "_websocket", "cursor", "event", "number", "told", "told_ms")

    def __init__(self, event: ViewEvent, number: int, cursor: str) -> None:
        self.event = event
        #: Grows from event to event.
        self.number = number
        #: Next offsets after this event and all before it, encoded: its id is made of them.
        self.cursor = cursor
        #: What friends are told instead, and when that was (ms); None: nothing.
        self.told: LiveEvent | None = None
        self.told_ms = 0
        self._sse: bytes | None = None
        self._websocket: bytes | None = None

    def sse(self, seal: CursorSeal) -> bytes:
        """As a server-sent event; made once for all viewers."""
        if self._sse is None:
            self._sse = sse_of(self.event, seal.seal(self.cursor))
        return self._sse

    def websocket(self, seal: CursorSeal) -> bytes:
        """As a message of a WebSocket, likewise; empty for what is no JSON object."""
        if self._websocket is None:
            self._websocket = websocket_of(self.event, seal.seal(self.cursor))
        return self._websocket


def sse_of(event: ViewEvent, event_id: str) -> bytes:
    """WHATWG HTML, section 9.2.6."""
    value = event.value
    if b"\n" in value or b"\r" in value:
        # JSON of ours has no line breaks; somebody else's record may have.
        value = value.replace(b"\r", b" ").replace(b"\n", b" ")
    name = EVENT_NAMES[event.topic].encode()
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), name, value)


def websocket_of(event: ViewEvent, event_id: str) -> bytes:
    """The members of the record, after its type and cursor; none of them is called so."""
    if event.value[:1] != b"{":
        return b""
    opening = f'{{"type":"{EVENT_NAMES[event.topic]}","cursor":"{event_id}",'
    return opening.encode() + event.value[1:]


class Batch(NamedTuple):
    """Events that came at one time, for all viewers of one feed; nobody changes it."""

    events: list[LiveEvent]
    value_bytes: int
    #: Those of one call of the views have the same.
    call: int


class Feed:
    """The events of one user, or of all: who watches them, and the newest of each device."""

    def __init__(self) -> None:
        #: Viewers that see the feed as friends.
        self.friends = 0
        # The event that came last is last.
        self._newest: OrderedDict[tuple[str, str], LiveEvent] = OrderedDict()

    def add(self, live: LiveEvent) -> None:
        """Remember an event in the place of an older one; a late fix takes the place of none."""
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
        """Those of which friends are told nothing."""
        return [live for live in self._newest.values() if live.told is None]

    def has(self, live: LiveEvent) -> bool:
        """Tell whether an event is still the newest of its device."""
        return self._newest.get((live.event.topic, live.event.device)) is live

    def newest_since(self, number: int) -> Iterator[LiveEvent]:
        """The newest of each device among the events from `number` on; the last comes first."""
        return takewhile(lambda live: live.number >= number, reversed(self._newest.values()))
