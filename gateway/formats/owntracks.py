"""OwnTracks' JSON, from MQTT (`owntracks/<user>/<device>...`) and from HTTP mode.

https://owntracks.org/booklet/tech/json/. Colota's OwnTracks template and Overland's OwnTracks mode
are parsed here too, because users point them at the same address.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed
from gateway.formats.beside_json import with_query
from gateway.formats.encodings import in_utf8
from gateway.formats.members import Members, without_secrets
from gateway.formats.secretbox import Undecryptable, decrypt
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    charging_state,
    decode_json,
    degrees,
    device_key,
    is_no_charging_state,
    kind_of,
    number,
    percent,
    positive,
    reject,
    text,
    time_ms,
)

SOURCE: Final = "owntracks"

#: Seconds from 1970-01-01 to 2001-01-01, the epoch of Overland's OwnTracks mode.
_EPOCH_2001_S: Final = 978_307_200

#: Seconds; Overland does not keep a fix for longer than this before it is sent.
_OVERLAND_AGE_MAX_S: Final = 366 * 86400

#: What the app notes about the message itself, and the topic, which names the device.
_NOT_KEPT: Final = ("_type", "topic", "source", "qos", "retained", "modeId")

_OF_ENCRYPTED: Final = ("_type", "data")

#: Stored in topic `event`. A waypoint is not a fix: storing it as one drew jumps in tracks.
_EVENT_TYPES: Final = frozenset(
    (
        *("transition", "waypoint", "waypoints", "lwt", "status", "steps", "beacon"),
        *("request", "card", "cmd", "dump", "configuration"),
    )
)


def parse(body: bytes, context: Context) -> Parsed:
    """Parse one message, or an array of them.

    An empty body is valid and stores nothing: the apps delete a contact with it.
    """
    return with_query(_parse(in_utf8(body, context), context), context, SOURCE)


def _parse(body: bytes, context: Context) -> Parsed:
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
            plain = _decrypted(message, context, parsed)
            if isinstance(plain, list):
                _parse_array(plain, context, parsed)
            else:
                _parse_message(plain, context, parsed)
        except Unacceptable as reason:
            # A message of a batch is kept with its own bytes, not with those of the whole batch.
            raw = body if len(messages) == 1 else msgspec.json.encode(message)
            named = _named_device(message, context) if isinstance(message, dict) else None
            reject(parsed, context, SOURCE, str(reason), raw, index, named=named)
    return parsed


def _parse_array(messages: list[Any], context: Context, parsed: Parsed) -> None:
    """Parse the messages of an encrypted array. Raises Unacceptable if some are, after the others.

    Once for all of them: what is kept is the whole encrypted message.
    """
    refused: list[str] = []
    for message in messages[:BATCH_ITEMS_MAX]:
        try:
            _parse_message(message, context, parsed)
        except Unacceptable as reason:
            refused.append(str(reason))
    refused += ["too many messages"] * (len(messages) - BATCH_ITEMS_MAX)
    if refused:
        raise Unacceptable(f"{len(refused)} of {len(messages)} encrypted messages: {refused[0]}")
    if not messages:
        raise Unacceptable("an encrypted array with nothing in it")


def _parse_message(message: Any, context: Context, parsed: Parsed) -> None:
    if not isinstance(message, dict):
        raise Unacceptable(f"not a JSON object but {kind_of(message)}")
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
        # Settings have passwords in them (`dump`, `configuration`, `setConfiguration` of `cmd`).
        attributes = without_secrets(Members(message, ("_type", "topic")).others())
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
    # Over HTTP the topic is sent unencrypted, beside the encrypted data.
    beside = {name: value for name, value in message.items() if name not in _OF_ENCRYPTED}
    for each in plain if isinstance(plain, list) else (plain,):
        if isinstance(each, dict):
            if each.get("_type") == "encrypted":
                raise Unacceptable("encrypted twice")
            for name, value in beside.items():
                each.setdefault(name, value)
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
    members = Members(message, _NOT_KEPT)
    message_id = members.read(_short_text, "_id")
    time = members.read(time_ms, "tst", unknown=lambda _: False)
    if _is_of_overland(message, message_id, context):
        time = time_ms(float(message["tst"]) + _EPOCH_2001_S)
        parsed.from_overland = True
    trigger = members.trigger("t")
    speed = _speed(members, context)
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            members.value("lat"),
            members.value("lon"),
            time,
            message_id=message_id,
            trigger=trigger,
            accuracy=members.read(positive, "acc"),
            altitude=members.read(number, "alt"),
            vertical_accuracy=members.read(positive, "vac"),
            speed=speed,
            course=members.read(degrees, "cog"),
            battery=members.read(percent, "batt"),
            charging=members.read(charging_state, "bs", unknown=is_no_charging_state),
            attributes=members.others(),
        )
    )


def _short_text(value: object) -> str | None:
    return text(value, 64)


def _is_of_overland(message: dict[str, Any], message_id: str | None, context: Context) -> bool:
    """Tell whether `tst` counts from 2001, as in Overland's OwnTracks mode.

    It does if the fix is then of the last year, and nothing in the message is OwnTracks' own. Any
    other number is the Unix time that it says.
    """
    seconds = number(message.get("tst"))
    if seconds is None or context.topic is not None or message_id is not None:
        return False
    if "created_at" in message:
        return False
    age_s = context.received / 1000 - (seconds + _EPOCH_2001_S)
    return -86400 <= age_s <= _OVERLAND_AGE_MAX_S


def _speed(members: Members, context: Context) -> float | None:
    """Return `vel` in m/s. OwnTracks sends km/h as an integer.

    Colota's OwnTracks template sends m/s. It is recognised by a fractional number and by the
    absence of `topic` and `_id`, which OwnTracks puts into HTTP bodies. `?speed_unit=` in the URL
    overrides the guess.
    """
    value = members.peek("vel")
    speed = members.read(positive, "vel")
    if speed is None:
        return None
    unit = context.query.get("speed_unit") if context.query else None
    if unit is None:
        foreign = context.topic is None and members.peek("topic", "_id") is None
        unit = "ms" if foreign and isinstance(value, float) else "kmh"
    return speed if unit in ("ms", "m/s") else round(speed / 3.6, 4)
