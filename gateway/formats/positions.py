"""Waylog's own JSON: one position, an array of them, or one per line (NDJSON).

The members are those of `waylog.messages.Fix`, all but `lat` and `lon` optional. The short names
that browsers and small scripts use (`t`, `acc`, `alt`, `vel` in m/s, `batt`, ...) are accepted as
well. Over MQTT the same JSON goes to `devices/<user>/<device>/position`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed
from gateway.formats.values import (
    Malformed,
    Unacceptable,
    boolean,
    build_fix,
    build_rejected,
    degrees,
    device_key,
    number,
    other_members,
    percent,
    positive,
    reject,
    text,
    time_ms,
)
from waylog.messages import Fix

SOURCE: Final = "positions"

#: A client's own id of at least this length is taken to be globally unique (ULID, UUID, Waylog's
#: ids) and becomes the fix's id. A shorter one is unique only together with device and time.
UNIQUE_ID_CHARACTERS: Final = 16
_ID_CHARACTERS_MAX: Final = 64
_TRIGGER_MAX: Final = 64
DEFAULT_DEVICE: Final = "default"


class _Position(msgspec.Struct, gc=False):
    # All members but the coordinates are parsed leniently: a bad battery level must not cost the
    # position.
    lat: Any = None
    lon: Any = None
    time: Any = None
    id: Any = None
    device: Any = None
    accuracy: Any = None
    speed: Any = None
    course: Any = None
    altitude: Any = None
    battery: Any = None
    vertical_accuracy: Any = None
    charging: Any = None
    trigger: Any = None
    attributes: Any = None
    # short names
    t: Any = None
    lng: Any = None
    latitude: Any = None
    longitude: Any = None
    timestamp: Any = None
    tst: Any = None
    acc: Any = None
    alt: Any = None
    vac: Any = None
    vel: Any = None
    cog: Any = None
    heading: Any = None
    bearing: Any = None
    batt: Any = None


_position_decoder = msgspec.json.Decoder(_Position)
_item_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def parse(body: bytes, context: Context) -> Parsed:
    """Parse fixes in the order of the batch. Each invalid item is rejected on its own."""
    parsed = Parsed()
    start = body.lstrip()[:1]
    if not start:
        return parsed
    if start == b"[":
        try:
            items = _item_decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            parsed.malformed = f"not a JSON array: {error}"
            return reject(parsed, context, SOURCE, parsed.malformed, body)
        return _parse_items(items, context, parsed)
    if b"\n" in body:
        lines = [line for line in body.splitlines() if line.strip()]
        # An object written over several lines is one position, not NDJSON.
        if len(lines) > 1 and not _is_one_document(body):
            return _parse_lines(lines, context, parsed)
    parsed.malformed = _parse_item(body, context, parsed, 0)
    return parsed


def _is_one_document(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True


def _parse_items(
    items: list[msgspec.Raw] | list[bytes], context: Context, parsed: Parsed
) -> Parsed:
    if len(items) > BATCH_ITEMS_MAX:
        parsed.refused = f"{len(items)} positions in one request; {BATCH_ITEMS_MAX} are allowed"
        return parsed
    for index, item in enumerate(items):
        _parse_item(item, context, parsed, index)
    return parsed


def _parse_lines(lines: list[bytes], context: Context, parsed: Parsed) -> Parsed:
    if len(lines) > BATCH_ITEMS_MAX:
        return _parse_items(lines, context, parsed)
    reasons = [_parse_item(line, context, parsed, index) for index, line in enumerate(lines)]
    if None not in reasons:
        parsed.malformed = f"none of {len(lines)} lines is a JSON object; line 1: {reasons[0]}"
    return parsed


def _parse_item(
    item: bytes | msgspec.Raw, context: Context, parsed: Parsed, index: int
) -> str | None:
    """Add the item as a fix or a rejection. Return the reason if it is not even a JSON object."""
    try:
        fix, client_id = _read(item, context)
    except Unacceptable as reason:
        rejected = build_rejected(context, SOURCE, str(reason), bytes(item))
        parsed.rejected.append(rejected)
        parsed.rejected_at.append(index)
        return str(reason) if isinstance(reason, Malformed) else None
    if client_id is not None and not parsed.client_ids:
        parsed.client_ids = [None] * len(parsed.fixes)
    parsed.fixes.append(fix)
    if parsed.client_ids or client_id is not None:
        parsed.client_ids.append(client_id)
    return None


def _read(item: bytes | msgspec.Raw, context: Context) -> tuple[Fix, str | None]:
    """Return the fix and the client's own id for it. Raises Unacceptable."""
    try:
        position = _position_decoder.decode(item)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Malformed(f"not a JSON object: {error}") from error
    device = device_key(context, position.device, DEFAULT_DEVICE)
    client_id = text(position.id, _ID_CHARACTERS_MAX + 1)
    if client_id is not None and len(client_id) > _ID_CHARACTERS_MAX:
        raise Unacceptable(f"the id is longer than {_ID_CHARACTERS_MAX} characters")
    time_given = _first(position.time, position.t, position.timestamp, position.tst)
    time = time_ms(time_given)
    if time is None and time_given is not None:
        raise Unacceptable("time is neither milliseconds, seconds nor ISO 8601")
    attributes = position.attributes
    if attributes is not None:
        if not isinstance(attributes, dict):
            raise Unacceptable("attributes must be an object")
        attributes = other_members(attributes, ())
    fix = build_fix(
        context,
        SOURCE,
        device,
        _first(position.lat, position.latitude),
        _first(position.lon, position.lng, position.longitude),
        time,
        message_id=client_id,
        trigger=text(position.trigger, _TRIGGER_MAX),
        accuracy=positive(_first(position.accuracy, position.acc)),
        altitude=number(_first(position.altitude, position.alt)),
        vertical_accuracy=positive(_first(position.vertical_accuracy, position.vac)),
        speed=positive(_first(position.speed, position.vel)),
        course=degrees(_first(position.course, position.cog, position.heading, position.bearing)),
        battery=percent(_first(position.battery, position.batt)),
        charging=boolean(position.charging),
        attributes=attributes,
    )
    if client_id is not None and len(client_id) >= UNIQUE_ID_CHARACTERS:
        fix.id = client_id
    return fix, client_id


def _first(*values: Any) -> Any:
    for value in values:
        if value is not None:
            return value
    return None
