"""OwnTracks' JSON, from MQTT (`owntracks/<user>/<device>...`) and from HTTP mode.

https://owntracks.org/booklet/tech/json/. Colota's OwnTracks template and Overland's OwnTracks mode
are parsed here too, because users point them at the same address.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed
from gateway.formats.secretbox import Undecryptable, decrypt
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    charging_state,
    decode_json,
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

SOURCE: Final = "owntracks"

#: Seconds from 1970-01-01 to 2001-01-01, the epoch of Overland's OwnTracks mode.
_EPOCH_2001_S: Final = 978_307_200

_FIX_MEMBERS: Final = frozenset(
    [
        "_type",
        "_id",
        "lat",
        "lon",
        "tst",
        "acc",
        "alt",
        "vac",
        "vel",
        "cog",
        "batt",
        "bs",
        "t",
        "topic",
        "source",
        "qos",
        "retained",
        "modeId",
    ]
)

#: Stored in topic `event`. A waypoint is not a fix: storing it as one drew jumps in tracks.
_EVENT_TYPES: Final = frozenset(
    (
        *("transition", "waypoint", "waypoints", "lwt", "status", "steps", "beacon"),
        *("request", "card", "cmd", "dump", "configuration"),
    )
)
#: Their content is a secret or a picture: only the fact that they came is stored.
_WITHOUT_CONTENT: Final = frozenset(("dump", "configuration", "card", "cmd"))


def parse(body: bytes, context: Context) -> Parsed:
    """Parse one message, or an array of them. An empty body is valid and stores nothing."""
    parsed = Parsed()
    if not body.strip():
        return parsed
    try:
        value = decode_json(body)
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), body)
    messages = value if isinstance(value, list) else [value]
    if len(messages) > BATCH_ITEMS_MAX:
        parsed.refused = f"{len(messages)} messages in one request; {BATCH_ITEMS_MAX} are allowed"
        return parsed
    for index, message in enumerate(messages):
        try:
            _parse_message(_decrypted(message, context, parsed), context, parsed)
        except Unacceptable as reason:
            # A message of a batch is kept with its own bytes, not with those of the whole batch.
            raw = body if len(messages) == 1 else msgspec.json.encode(message)
            reject(parsed, context, SOURCE, str(reason), raw, index)
    return parsed


def _parse_message(message: Any, context: Context, parsed: Parsed) -> None:
    if not isinstance(message, dict):
        raise Unacceptable("not a JSON object")
    kind = message.get("_type")
    if not isinstance(kind, str | None):
        raise Unacceptable("_type is not text")
    if kind is None and "lat" in message and "lon" in message:
        kind = "location"
    tid = text(message.get("tid"), 8)
    parsed.tid = parsed.tid or tid
    device = device_key(context, _named_device(message, context), tid or SOURCE)
    if kind == "location":
        _parse_location(message, device, context, parsed)
    elif kind in _EVENT_TYPES:
        attributes = {} if kind in _WITHOUT_CONTENT else other_members(message, ("_type", "topic"))
        identity = "\0".join(
            str(message.get(name, "")) for name in ("event", "wtst", "desc", "rid", "uuid", "_id")
        )
        time = time_ms(message.get("tst"))
        parsed.events.append(build_event(context, SOURCE, device, kind, time, attributes, identity))
    else:
        raise Unacceptable(f"unknown _type {kind and kind[:64]!r}")


def _decrypted(message: Any, context: Context, parsed: Parsed) -> Any:
    """Return the message itself, or the content of an encrypted one. Raises Unacceptable."""
    if not isinstance(message, dict) or message.get("_type") != "encrypted":
        return message
    if context.encryption_key is None:
        raise Unacceptable("encrypted: this user has no key here, the message is kept as it came")
    try:
        plain = decode_json(decrypt(message.get("data"), context.encryption_key))
    except Undecryptable as error:
        raise Unacceptable(f"{error}; the message is kept as it came") from error
    if isinstance(plain, dict):
        if plain.get("_type") == "encrypted":
            raise Unacceptable("encrypted twice")
        # Over HTTP the topic is sent unencrypted, beside the encrypted data.
        plain.setdefault("topic", message.get("topic"))
    parsed.encrypted = True
    return plain


def _named_device(message: dict[str, Any], context: Context) -> str | None:
    """Return the device in the topic that HTTP mode puts into the body; never another user's."""
    topic = message.get("topic")
    if not isinstance(topic, str):
        return None
    levels = topic.strip("/").split("/")
    if len(levels) < 3 or levels[0] != "owntracks":
        return None
    return f"{levels[1]}/{levels[2]}" if levels[1] == context.user else levels[2]


def _parse_location(message: dict[str, Any], device: str, context: Context, parsed: Parsed) -> None:
    message_id = text(message.get("_id"), 64)
    seconds = number(message.get("tst"))
    if (
        seconds is not None
        and 0 < seconds < 1e9
        and context.topic is None
        and message_id is None
        and "created_at" not in message
    ):
        seconds += _EPOCH_2001_S
        parsed.from_overland = True
    time = time_ms(message.get("tst")) if seconds is None else time_ms(seconds)
    attributes = other_members(message, _FIX_MEMBERS)
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            message.get("lat"),
            message.get("lon"),
            time,
            message_id=message_id,
            trigger=text(message.get("t"), 64),
            accuracy=positive(message.get("acc")),
            altitude=number(message.get("alt")),
            vertical_accuracy=positive(message.get("vac")),
            speed=_speed(message, context),
            course=degrees(message.get("cog")),
            battery=percent(message.get("batt")),
            charging=charging_state(message.get("bs")),
            attributes=attributes,
        )
    )


def _speed(message: dict[str, Any], context: Context) -> float | None:
    """Return `vel` in m/s. OwnTracks sends km/h as an integer.

    Colota's OwnTracks template sends m/s. It is recognised by a fractional number and by the
    absence of `topic` and `_id`, which OwnTracks puts into HTTP bodies. `?speed_unit=` in the URL
    overrides the guess.
    """
    value = message.get("vel")
    speed = positive(value)
    if speed is None:
        return None
    unit = context.query.get("speed_unit") if context.query else None
    if unit is None:
        foreign = context.topic is None and "topic" not in message and "_id" not in message
        unit = "ms" if foreign and isinstance(value, float) else "kmh"
    return speed if unit in ("ms", "m/s") else round(speed / 3.6, 4)
