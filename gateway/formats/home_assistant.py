"""The webhook of Home Assistant's companion app: `update_location`, which has no timestamp."""

from __future__ import annotations

from typing import Any, Final

from gateway.formats import Context, Parsed
from gateway.formats.secretbox import Undecryptable, decrypt
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    decode_json,
    degrees,
    device_key,
    number,
    other_members,
    percent,
    positive,
    reject,
    text,
)

SOURCE: Final = "home_assistant"

_FIX_MEMBERS: Final = frozenset(
    ["gps", "gps_accuracy", "battery", "speed", "altitude", "course", "vertical_accuracy"]
)


def parse(body: bytes, context: Context) -> Parsed:
    """Parse a fix, or an event `location_name` if the phone sends a zone without coordinates."""
    parsed = Parsed()
    if not body.strip():
        return parsed
    try:
        envelope = decode_json(body)
        if not isinstance(envelope, dict):
            raise Unacceptable("not a JSON object")
        kind = envelope.get("type")
        data = envelope.get("data")
        if kind == "encrypted" or envelope.get("encrypted"):
            kind, data = _decrypted(envelope, context)
            parsed.encrypted = True
        if kind != "update_location":
            raise Unacceptable(f"unknown type {str(kind)[:64]!r}")
        if not isinstance(data, dict):
            raise Unacceptable("`data` is missing or not an object")
        _parse_data(data, context, parsed)
    except Unacceptable as reason:
        reject(parsed, context, SOURCE, str(reason), body)
    return parsed


def _decrypted(envelope: dict[str, Any], context: Context) -> tuple[Any, Any]:
    """Return type and data of an encrypted update.

    The app encrypts either the data alone, with the type beside it, or the whole update.
    """
    if context.encryption_key is None:
        raise Unacceptable("encrypted: this user has no key here, kept as it came")
    try:
        plain = decode_json(decrypt(envelope.get("encrypted_data"), context.encryption_key))
    except Undecryptable as error:
        raise Unacceptable(f"{error}; kept as it came") from error
    if isinstance(plain, dict) and "type" in plain and "data" in plain:
        return plain["type"], plain["data"]
    kind = envelope.get("type")
    return ("update_location" if kind == "encrypted" else kind), plain


def _parse_data(data: dict[str, Any], context: Context, parsed: Parsed) -> None:
    device = device_key(context, None, SOURCE)
    attributes = other_members(data, _FIX_MEMBERS)
    gps = data.get("gps")
    if gps is None and (name := text(data.get("location_name"))):
        parsed.events.append(
            build_event(context, SOURCE, device, "location_name", None, attributes, name)
        )
        return
    if not isinstance(gps, list) or len(gps) != 2:
        raise Unacceptable("no coordinates: gps must be [lat, lon]")
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            gps[0],
            gps[1],
            None,
            accuracy=positive(data.get("gps_accuracy")),
            altitude=number(data.get("altitude")),
            vertical_accuracy=positive(data.get("vertical_accuracy")),
            speed=positive(data.get("speed")),
            course=degrees(data.get("course")),
            battery=percent(data.get("battery")),
            attributes=attributes,
        )
    )
