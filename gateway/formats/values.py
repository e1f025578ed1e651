"""Conversion of single values as apps really write them, and construction of fixes from them.

Apps write numbers as text, unknown values as -1, and times as seconds, milliseconds or ISO 8601.
The rules that hold for every app are here, once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gateway.formats import Context, Parsed
from gateway.formats.characters import FORBIDDEN_IN_NAMES
from waylog.messages import Event, Fix, Rejected, fix_id

DAY_MS: Final = 24 * 60 * 60 * 1000
YEAR_2000_MS: Final = 946_684_800_000
_YEAR_1_MS: Final = -62_135_596_800_000
_YEAR_9999_MS: Final = 253_402_300_799_999

#: Bytes of a rejected item that are kept; as base64 they must fit into one record of 1 MB.
RAW_BYTES_MAX: Final = 256 * 1024
DEVICE_CHARACTERS_MAX: Final = 128
#: Characters of a name that are looked at, so that one that is too long is still recognised.
_NAMED_CHARACTERS_MAX: Final = 1000
#: Characters that are kept of a name that cannot be the name of a device.
_NO_NAME_CHARACTERS_MAX: Final = 200

#: Parameters of URLs and forms that are credentials and are never stored.
SECRET_PARAMETERS: Final = frozenset(("token", "api_key", "access_token", "password"))
_TOKEN = re.compile(rb"wl_[A-Za-z0-9_-]{43}")

_decoder = msgspec.json.Decoder()
# A device's name is a level of MQTT topics and part of the record key.
_FORBIDDEN = re.compile(f"[{FORBIDDEN_IN_NAMES}]")


_SECRET_FIELD = re.compile(
    rb"""((?:^|[&\s{,"'])(?:%b)["']?\s*[=:]\s*)(?:"[^"]*"?|[^&\s,}"]+)"""
    % "|".join(sorted((*SECRET_PARAMETERS, "pass", "passphrase", "encryptionKey"))).encode()
)


#: The greatest number that a float of 32 bits can hold.
FLOAT_MAX: Final = 3.4028234663852886e38


class Unacceptable(Exception):
    """An item that can never be accepted; the text tells the sender why."""


class Malformed(Unacceptable):
    """An item whose syntax is invalid."""


def decode_json(body: bytes | memoryview) -> Any:
    """Return any JSON value. Raises Unacceptable.

    Half of a surrogate pair becomes "?", and a number that is too large becomes infinite: RFC 8259
    allows both, and an app that has cut a text inside an emoji must not lose a whole batch.
    """
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        try:
            return _storable(_lenient_decoder.decode(str(body, "utf-8")))
        except (RecursionError, ValueError):
            raise Unacceptable(f"not JSON: {error}") from error
    except (RecursionError, ValueError) as error:
        raise Unacceptable("not JSON that can be read: nested too deeply or malformed") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_lenient_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def _storable(value: Any) -> Any:
    """Return a decoded value whose texts can be encoded. Raises RecursionError."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, dict):
        return {_storable(name): _storable(each) for name, each in value.items()}
    return value


def kind_of(value: object) -> str:
    """Return what a JSON value is, in words for the reason of a refusal."""
    if isinstance(value, dict):
        return "a JSON object"
    if isinstance(value, list):
        return "a JSON array"
    return "a text" if isinstance(value, str) else "null" if value is None else "a number"


def number(value: object) -> float | None:
    """Return a number that a float of 32 bits can hold, as views and Parquet files have them.

    It may be written as text; None for anything else.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float | str):
        try:
            result = float(value)
        except (ValueError, OverflowError):
            return None
        return result if abs(result) <= FLOAT_MAX else None
    return None


def positive(value: object) -> float | None:
    """Return a number >= 0, or None: apps write -1 for "unknown"."""
    result = number(value)
    return result if result is not None and result >= 0 else None


def percent(value: object) -> float | None:
    """Return a number in 0..100, or None."""
    result = number(value)
    return result if result is not None and 0 <= result <= 100 else None


def share(value: object) -> float | None:
    """Return a fraction 0..1 as percent, or None."""
    result = number(value)
    return round(result * 100, 2) if result is not None and 0 <= result <= 1 else None


def degrees(value: object) -> float | None:
    """Return a course, 0 <= value < 360, or None. 360 becomes 0."""
    result = number(value)
    return result % 360 if result is not None and 0 <= result <= 360 else None


def boolean(value: object) -> bool | None:
    """Return the value of true, false, 1, 0 and their usual spellings, or None."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value != 0
    if isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in ("true", "1", "yes", "on"):
            return True
        if lowered in ("false", "0", "no", "off"):
            return False
    return None


def text(value: object, characters_max: int = 256) -> str | None:
    """Return non-empty text or an integer as text, truncated; None for anything else."""
    if isinstance(value, str):
        stripped = value.strip()
        return stripped[:characters_max] or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)[:characters_max]
    return None


def charging_state(value: object) -> bool | None:
    """Return the charging state in OwnTracks' `bs`: 0 unknown, 1 unplugged, 2 charging, 3 full."""
    state = number(value)
    return None if state is None else {1.0: False, 2.0: True, 3.0: True}.get(state)


def is_no_charging_state(value: object) -> bool:
    """Tell whether a value is OwnTracks' `bs` for "unknown"."""
    state = number(value)
    return state is not None and state <= 0


#: The end of a time whose zone has lost its "+": in a URL that stands for a space.
_PLUS_AS_SPACE: Final = re.compile(r"(\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?) (\d\d:?\d\d)$")


def iso_time(value: str) -> int | None:
    """Return ISO 8601 or `yyyy-MM-dd HH:mm:ss` as ms since 1970. The default time zone is UTC.

    A space before the zone is the "+" of a URL that was not encoded.
    """
    try:
        moment = datetime.fromisoformat(_PLUS_AS_SPACE.sub(r"\1+\2", value.strip()))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def time_ms(value: object) -> int | None:
    """Return seconds, milliseconds or ISO 8601 as ms since 1970; None if it is none of these.

    Seconds and milliseconds cannot be confused: 2^31 s is the year 2038, 2^31 ms is January 1970.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        stripped = value.strip()
        try:
            value = float(stripped)
        except ValueError:
            return iso_time(stripped)
    if isinstance(value, int):
        return value * 1000 if -(2**31) <= value < 2**32 else value
    if isinstance(value, float) and math.isfinite(value):
        return round(value * 1000) if -(2**31) <= value < 2**32 else round(value)
    return None


def parameters(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the parameters of a URL or a form as a dict. Repeated values are joined by ";"."""
    result: dict[str, str] = {}
    for name, value in pairs:
        result[name] = f"{result[name]};{value}" if name in result else value
    return result


def device_text(value: object) -> str | None:
    """Return what an item has as the name of its device; None if that is no name."""
    return text(value, _NAMED_CHARACTERS_MAX)


def known_device(context: Context, named: object = None) -> str | None:
    """Return `user/name` of the device that an item or its request names; None if none is named.

    None as well for a name that may not be one, or is that of another user's device.
    """
    if context.device is None and device_text(named) is None:
        return None
    try:
        return device_key(context, named, "")
    except Unacceptable:
        return None


def device_key(context: Context, named: object, default: str) -> str:
    """Return `user/name` of the device an item belongs to. Raises Unacceptable."""
    name = context.device or device_text(named) or default
    if name.startswith("wl_") and _TOKEN.fullmatch(name.encode("utf-8", "replace")):
        raise Unacceptable("a token stands where the name of a device should be")
    user, separator, rest = name.partition("/")
    if separator and rest:
        if user != context.user and not context.any_user:
            raise Unacceptable(f"device {name[:200]!r} belongs to another user")
        name = rest
    else:
        user = context.user
    if len(name) > DEVICE_CHARACTERS_MAX:
        raise Unacceptable(f"the device's name is longer than {DEVICE_CHARACTERS_MAX} characters")
    if _FORBIDDEN.search(name) is not None:
        name = _FORBIDDEN.sub("_", name)
    if not user or _FORBIDDEN.search(user) is not None or len(user) > DEVICE_CHARACTERS_MAX:
        raise Unacceptable("no user is named to whom the device belongs")
    return f"{user}/{name}"


def build_fix(
    context: Context,
    source: str,
    device: str,
    lat: object,
    lon: object,
    time: int | None,
    *,
    message_id: str | None = None,
    trigger: str | None = None,
    accuracy: float | None = None,
    altitude: float | None = None,
    vertical_accuracy: float | None = None,
    speed: float | None = None,
    course: float | None = None,
    battery: float | None = None,
    charging: bool | None = None,
    attributes: dict[str, Any] | None = None,
) -> Fix:
    """Return a fix, after checking all members that every format has. Raises Unacceptable.

    If `time` is None, the fix gets the time of arrival.
    """
    latitude = number(lat)
    longitude = number(lon)
    if latitude is None or longitude is None:
        raise Unacceptable("no coordinates: lat and lon must be numbers")
    if not -90 <= latitude <= 90:
        raise Unacceptable("lat is outside -90..90")
    if not -180 <= longitude <= 180:
        raise Unacceptable("lon is outside -180..180")
    received = context.received
    if time is None:
        # A repeated message must get the same id although it arrives at another time.
        identity_time = 0 if message_id is not None else received
        time = received
    else:
        identity_time = time
        if not _YEAR_1_MS <= time <= _YEAR_9999_MS:
            raise Unacceptable("the time is outside the years 1 to 9999")
        if time > received + DAY_MS or time < YEAR_2000_MS:
            attributes = {} if attributes is None else attributes
            attributes["time_suspect"] = "future" if time > received else "past"
    return Fix(
        id=fix_id(device, identity_time, latitude, longitude, trigger, message_id),
        device=device,
        user=device.partition("/")[0],
        lat=latitude,
        lon=longitude,
        time=time,
        received=received,
        accuracy=accuracy,
        altitude=altitude,
        vertical_accuracy=vertical_accuracy,
        speed=speed,
        course=course,
        battery=battery,
        charging=charging,
        trigger=trigger,
        source=source,
        attributes=attributes or None,
    )


def build_event(
    context: Context,
    source: str,
    device: str,
    kind: str,
    time: int | None,
    attributes: dict[str, Any] | None = None,
    identity: str = "",
) -> Event:
    """Return an event. Raises Unacceptable.

    `identity` distinguishes events of one kind with the same time.
    """
    if time is not None and not _YEAR_1_MS <= time <= _YEAR_9999_MS:
        raise Unacceptable("the time is outside the years 1 to 9999")
    moment = context.received if time is None else time
    return Event(
        id=fix_id(device, moment, 0.0, 0.0, message_id=f"{source}\0{kind}\0{identity}"),
        device=device,
        user=device.partition("/")[0],
        type=kind,
        time=moment,
        received=context.received,
        source=source,
        attributes=attributes or None,
    )


def without_tokens(raw: bytes) -> bytes:
    """Return the bytes with all Waylog tokens replaced, wherever they occur."""
    return _TOKEN.sub(b"[token]", raw) if b"wl_" in raw else raw


def build_rejected(
    context: Context, source: str, reason: str, raw: bytes, device: str | None = None
) -> Rejected:
    """Return a rejected item with its raw bytes, without credentials, truncated to fit a record.

    `device` is that of the item; without it the one that the request names. A name outside the body
    that cannot be a device's is in a header, since the raw bytes do not have it.
    """
    headers = dict(context.headers) if context.headers else {}
    device = device or known_device(context)
    if device is None and context.device is not None:
        name = context.device[:_NO_NAME_CHARACTERS_MAX].encode("utf-8", "replace")
        headers["device"] = without_tokens(name).decode("utf-8", "replace")
    if context.topic is not None:
        headers["topic"] = context.topic
    raw = without_tokens(raw)
    if len(raw) > RAW_BYTES_MAX:
        headers["raw-bytes"] = str(len(raw))
        raw = raw[:RAW_BYTES_MAX]
    raw = _SECRET_FIELD.sub(rb"\1[secret]", raw)
    return Rejected(
        reason=reason[:1000],
        source=source,
        time=context.received,
        raw=raw,
        device=device,
        user=context.user or None,
        headers=headers or None,
    )


def reject(
    parsed: Parsed,
    context: Context,
    source: str,
    reason: str,
    raw: bytes,
    index: int = 0,
    *,
    named: object = None,
) -> Parsed:
    """Add one rejection and return `parsed`. `named` is what the item has as its device's name."""
    device = known_device(context, named)
    parsed.rejected.append(build_rejected(context, source, reason, raw, device))
    parsed.rejected_at.append(index)
    return parsed
