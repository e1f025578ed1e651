"""The fixes that readers of recorded tracks yield."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from waylog.messages import ATTRIBUTE_BYTES_MAX, ATTRIBUTE_NESTING_MAX, TRIGGER_CHARACTERS_MAX
from waylog.replay.readers.source import Source

#: Reasons that name a value; after these a reason names none.
_REASONS_MAX: Final = 20
_NAME_CHARACTERS_MAX: Final = 100
_OMITTED_MAX: Final = 64
_OWN_ID: Final = re.compile(r"[0-9A-Za-z]{16,64}")


class RecordedFix(msgspec.Struct, gc=False, array_like=True):
    """A fix as in the file. SI units, degrees WGS84, milliseconds since 1970-01-01 UTC."""

    time: int
    lat: float
    lon: float
    device: str | None = None  # as named in the file; None: the file is one device's track
    accuracy: float | None = None  # m
    altitude: float | None = None  # m
    vertical_accuracy: float | None = None  # m
    speed: float | None = None  # m/s
    course: float | None = None  # degrees from true north
    battery: float | None = None  # percent
    charging: bool | None = None
    trigger: str | None = None  # why the app reported
    id: str | None = None  # the platform's own, in a file that it has exported
    attributes: dict[str, Any] | None = None  # what else the file says about the fix


#: Counts, by reason, the entries of a file that are not sent.
Skipped = Counter[str]

Reader = Callable[[Source, Skipped], Iterator[RecordedFix]]


def on_earth(lat: float, lon: float) -> bool:
    """Return whether these are coordinates (False for NaN, too)."""
    return -90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0


def count_no_place(skipped: Skipped, lat: float | None, lon: float | None) -> None:
    """Count an entry whose place is none, by the reason."""
    reason = "no coordinates"
    if lat is not None and lon is not None and math.isfinite(lat) and math.isfinite(lon):
        name, value = ("longitude", lon) if -90.0 <= lat <= 90.0 else ("latitude", lat)
        reason = f"{name} {value:.10g} is out of range"
        # A file may have another one in each of millions of lines.
        if reason not in skipped and len(skipped) >= _REASONS_MAX:
            reason = f"{name} is out of range"
    skipped[reason] += 1


def not_negative(value: float | None) -> float | None:
    """Replace NaN and negative numbers, which apps write for unknown values, by None."""
    return value if value is not None and value >= 0 else None


def charging_of(value: object) -> bool | None:
    """Return a charging state that is written as true or false, also as text."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def trigger_of(value: object) -> str | None:
    """Return a trigger as the platform has it."""
    text = value.strip()[:TRIGGER_CHARACTERS_MAX] if isinstance(value, str) else ""
    return text or None


def id_of(value: object) -> str | None:
    """Return the platform's own id of a fix; None for anything that may not be one."""
    return value if isinstance(value, str) and _OWN_ID.fullmatch(value) else None


def attributes_of(value: object) -> dict[str, Any] | None:
    """Return attributes as an export has them: an object, or its JSON as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return others_of(value, ()) if isinstance(value, dict) else None


def others_of(members: Mapping[str, Any], known: Collection[str]) -> dict[str, Any] | None:
    """Return the members that are not `known` and say something, within the gateway's limits.

    The names of those that are too large are in `omitted`.
    """
    others: dict[str, Any] = {}
    omitted: list[str] = []
    room = ATTRIBUTE_BYTES_MAX
    for name, value in members.items():
        if name in known or value is None or value == "":
            continue
        storable = _storable(value, ATTRIBUTE_NESTING_MAX)
        size = len(name) + len(msgspec.json.encode(storable))
        if size > room:
            omitted.append(_text(name[:_NAME_CHARACTERS_MAX]))
            continue
        room -= size
        others[_text(name)] = storable
    if omitted:
        others["omitted"] = omitted[:_OMITTED_MAX]
    return others or None


def typed(text: str) -> Any:
    """Return a number or a truth value that is written as text, if it can be nothing else."""
    if text in ("true", "false"):
        return text == "true"
    try:
        value = float(text)
    except ValueError:
        return text
    # 0049 and 1e5 may be names.
    return value if math.isfinite(value) and repr(value).removesuffix(".0") == text else text


def _storable(value: Any, levels: int) -> Any:
    """Return a JSON value that every encoding can hold."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, dict) and levels:
        return {_text(name): _storable(each, levels - 1) for name, each in value.items()}
    if isinstance(value, list) and levels:
        return [_storable(each, levels - 1) for each in value]
    return None if value is None else _text(str(value)[:TRIGGER_CHARACTERS_MAX])


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()
