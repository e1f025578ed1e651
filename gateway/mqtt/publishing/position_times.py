"""Times of positions in payloads, to recognise positions that come too late."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats.values import time_ms
from waylog.malformed import MALFORMED
from waylog.messages import CLOCK_AHEAD_MS

_LEVELS: Final = {"owntracks": 3, "devices": 4}


class _Position(msgspec.Struct, gc=False):
    kind: str = msgspec.field(default="location", name="_type")
    tst: Any = None
    time: Any = None


_decoder = msgspec.json.Decoder(_Position)


def is_overtaken(topic: str, payload: bytes, previous: bytes, now: int) -> bool:
    """Return whether a position is older than another position of its topic.

    Payloads that are not positions, or cannot be read, are never older. Nothing is older than a
    position that lies ahead of `now` (ms): it would keep its topic although others come.
    """
    root, _, rest = topic.partition("/")
    levels = _LEVELS.get(root)
    if levels is None or rest.count("/") != levels - 2:
        return False
    if root == "devices" and not rest.endswith("/position"):
        return False
    time, before = _time_of(payload), _time_of(previous)
    if time is None or before is None or before > now + CLOCK_AHEAD_MS:
        return False
    return time < before


def is_position_topic(topic: str) -> bool:
    """Return whether the views have the newest position of a topic: `owntracks/<user>/<device>`."""
    return topic.count("/") == 2 and topic.startswith("owntracks/")


def is_position(payload: bytes) -> bool:
    """Return whether a payload is one of OwnTracks' positions."""
    return _read(payload) is not None


def is_newest(stored: bytes, derived: bytes, now: int) -> bool:
    """Return whether a retained position is at least as new as that of the views.

    Anything else than a position never is, nor one that lies ahead of `now` (ms): the views' is
    what every other worker has.
    """
    time, newest = _time_of(stored), _time_of(derived)
    if time is None or time > now + CLOCK_AHEAD_MS:
        return False
    return newest is None or time >= newest


def _time_of(payload: bytes) -> int | None:
    position = _read(payload)
    if position is None:
        return None
    return time_ms(position.tst if position.tst is not None else position.time)


def _read(payload: bytes) -> _Position | None:
    try:
        position = _decoder.decode(payload)
    except MALFORMED:
        return None
    return position if position.kind == "location" else None
