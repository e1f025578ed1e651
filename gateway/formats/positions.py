"""Waylog's own JSON: one position, an array of them, or one per line (NDJSON).

The members are those of `waylog.messages.Fix`, all but `lat` and `lon` optional. The short names
that browsers and small scripts use (`t`, `acc`, `alt`, `vel` in m/s, `batt`, ...) are accepted as
well. Over MQTT the same JSON goes to `devices/<user>/<device>/position`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed
from gateway.formats.encodings import in_utf8
from gateway.formats.members import Members, add_member, other_members
from gateway.formats.values import (
    Malformed,
    Unacceptable,
    boolean,
    build_fix,
    build_rejected,
    decode_json,
    degrees,
    device_key,
    kind_of,
    known_device,
    number,
    percent,
    positive,
    reject,
    text,
    time_ms,
)
from waylog.malformed import MALFORMED
from waylog.messages import Fix

SOURCE: Final = "positions"

#: A client's own id of at least this length is taken to be globally unique (ULID, UUID, Waylog's
#: ids) and becomes the fix's id. A shorter one is unique only together with device and time.
UNIQUE_ID_CHARACTERS: Final = 16
_ID_CHARACTERS_MAX: Final = 64
DEFAULT_DEVICE: Final = "default"


#: Set by the gateway, whatever a client writes; `type` is that of frames of a WebSocket.
_NOT_KEPT: Final = ("user", "received", "source")
_FRAME_TYPE: Final = "fix"
#: Coordinates as parameters of the URL, where our own JSON has none.
COORDINATES: Final = frozenset(("lat", "lon", "lng", "latitude", "longitude"))

_item_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def parse(body: bytes, context: Context) -> Parsed:
    """Parse fixes in the order of the batch. Each invalid item is rejected on its own."""
    parsed = Parsed()
    if context.query and (beside := COORDINATES & context.query.keys()):
        parsed.malformed = f"{', '.join(sorted(beside))} in the URL: send positions in the body"
        return parsed
    body = in_utf8(body, context)
    start = body.lstrip()[:1]
    if not start:
        parsed.malformed = "the body is empty: send a position, an array or a line for each"
        return parsed
    if start == b"[":
        try:
            items = _item_decoder.decode(body)
        except MALFORMED as error:
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
    except MALFORMED:
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
        device = known_device(context, _named_in(item)) if context.device is None else None
        rejected = build_rejected(context, SOURCE, str(reason), bytes(item), device)
        parsed.rejected.append(rejected)
        parsed.rejected_at.append(index)
        return str(reason) if isinstance(reason, Malformed) else None
    if client_id is not None and not parsed.client_ids:
        parsed.client_ids = [None] * len(parsed.fixes)
    parsed.fixes.append(fix)
    if parsed.client_ids or client_id is not None:
        parsed.client_ids.append(client_id)
    return None


def _named(members: Members, context: Context) -> str | None:
    """Return the name of the device; one beside a token or topic of a device is not kept."""
    if context.device is not None:
        members.value("device")
        return None
    return members.device(None, "device")


def _named_in(item: bytes | msgspec.Raw) -> object:
    """Return what a refused item has as its device's name."""
    try:
        position = decode_json(item)
    except Unacceptable:
        return None
    return position.get("device") if isinstance(position, dict) else None


def _read(item: bytes | msgspec.Raw, context: Context) -> tuple[Fix, str | None]:
    """Return the fix and the client's own id for it. Raises Unacceptable."""
    try:
        position = decode_json(item)
    except Unacceptable as error:
        raise Malformed(str(error)) from error
    if not isinstance(position, dict):
        raise Malformed(f"not a JSON object but {kind_of(position)}")
    own_type = ("type",) if position.get("type") == _FRAME_TYPE else ()
    members = Members(position, (*_NOT_KEPT, *own_type))
    device = device_key(context, _named(members, context), DEFAULT_DEVICE)
    client_id = members.read(_any_text, "id")
    if client_id is not None and len(client_id) > _ID_CHARACTERS_MAX:
        raise Unacceptable(f"the id is longer than {_ID_CHARACTERS_MAX} characters")
    time_given = members.value("time", "t", "timestamp", "tst")
    time = time_ms(time_given)
    if time is None and time_given is not None:
        raise Unacceptable("time is neither milliseconds, seconds nor ISO 8601")
    # All members but the coordinates are read leniently: a bad battery level must not cost the
    # position.
    fix = build_fix(
        context,
        SOURCE,
        device,
        members.value("lat", "latitude"),
        members.value("lon", "lng", "longitude"),
        time,
        message_id=client_id,
        trigger=members.trigger("trigger"),
        accuracy=members.read(positive, "accuracy", "acc"),
        altitude=members.read(number, "altitude", "alt"),
        vertical_accuracy=members.read(positive, "vertical_accuracy", "vac"),
        speed=members.read(positive, "speed", "vel"),
        course=members.read(degrees, "course", "cog", "heading", "bearing"),
        battery=members.read(percent, "battery", "batt"),
        charging=members.read(boolean, "charging"),
        attributes=_attributes(members),
    )
    if client_id is not None and len(client_id) >= UNIQUE_ID_CHARACTERS:
        fix.id = client_id
    return fix, client_id


def _attributes(members: Members) -> dict[str, Any]:
    """Return `attributes`, and beside them all members that have no meaning here."""
    own = members.value("attributes")
    if own is not None and not isinstance(own, dict):
        raise Unacceptable("attributes must be an object")
    attributes = other_members(own or {}, ())
    for name, value in members.others().items():
        add_member(attributes, name, value)
    return attributes


def _any_text(value: object) -> str | None:
    return text(value, _ID_CHARACTERS_MAX + 1)
