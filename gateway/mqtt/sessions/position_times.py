"""Times of positions in payloads, to recognise positions that come too late."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats.values import time_ms
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


def _time_of(payload: bytes) -> int | None:
    try:
        position = _decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    if position.kind != "location":
        return None
    return time_ms(position.tst if position.tst is not None else position.time)
