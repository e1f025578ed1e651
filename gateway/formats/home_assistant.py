"""The webhook of Home Assistant's companion app: `update_location`, which has no timestamp."""

from __future__ import annotations

from typing import Any, Final

from gateway.formats import Context, Parsed
from gateway.formats.beside_json import attach, with_query
from gateway.formats.members import Members
from gateway.formats.parameters import EMPTY_BODY
from gateway.formats.secretbox import Undecryptable, decrypt
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    decode_json,
    degrees,
    device_key,
    kind_of,
    number,
    percent,
    positive,
    reject,
    text,
)

SOURCE: Final = "home_assistant"

_ENVELOPE: Final = ("type", "data", "encrypted")


def parse(body: bytes, context: Context) -> Parsed:
    """Parse a fix, or an event `location_name` if the phone sends a zone without coordinates."""
    parsed = Parsed()
    if not body.strip():
        return with_query(Parsed(malformed=EMPTY_BODY), context, SOURCE)
    try:
        envelope = decode_json(body)
        if not isinstance(envelope, dict):
            raise Unacceptable(f"not a JSON object but {kind_of(envelope)}")
        kind = envelope.get("type")
        data = envelope.get("data")
        if kind == "encrypted" or envelope.get("encrypted"):
            kind, data = _decrypted(envelope, context)
            parsed.encrypted = True
        if kind != "update_location":
            raise Unacceptable(f"unknown type {str(kind)[:64]!r}")
        if not isinstance(data, dict):
            raise Unacceptable("`data` is missing or not an object")
        read = (*_ENVELOPE, "encrypted_data") if parsed.encrypted else _ENVELOPE
        more = Members(envelope, read).others()
        _parse_data(Members(data), context, parsed)
        attach(parsed, more)
    except Unacceptable as reason:
        reject(parsed, context, SOURCE, str(reason), body)
    return with_query(parsed, context, SOURCE)


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


def _parse_data(members: Members, context: Context, parsed: Parsed) -> None:
    device = device_key(context, None, SOURCE)
    gps = members.value("gps")
    if gps is None and (name := text(members.peek("location_name"))):
        parsed.events.append(
            build_event(context, SOURCE, device, "location_name", None, members.others(), name)
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
            accuracy=members.read(positive, "gps_accuracy"),
            altitude=members.read(number, "altitude"),
            vertical_accuracy=members.read(positive, "vertical_accuracy"),
            speed=members.read(positive, "speed"),
            course=members.read(degrees, "course"),
            battery=members.read(percent, "battery"),
            attributes=members.others(),
        )
    )
