"""uLogger for Android: the form `action=addpos` adds a fix, `addtrack` begins a track.

https://github.com/bfabiszewski/ulogger-server. Signing in (`action=auth`) carries no fix; see
gateway.http.ingest.ulogger_sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.formats import Context, Parsed
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    degrees,
    device_key,
    number,
    other_members,
    positive,
    query_or_form,
    reject,
    time_ms,
)

SOURCE: Final = "ulogger"

_SECRETS: Final = frozenset(("action", "user", "pass"))
_FIX_MEMBERS: Final = _SECRETS | {
    *("lat", "lon", "time", "altitude", "speed", "bearing", "accuracy", "image"),
}


def form_of(body: bytes, context: Context) -> dict[str, str]:
    """Return the members of the form. Raises Unacceptable."""
    return query_or_form(body, context)[0]


def track_id(received: int) -> int:
    """Return the id of a track that begins now: seconds since 1970. The app repeats it."""
    return received // 1000


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the fix of `addpos`, or an event `track` from `addtrack`."""
    parsed = Parsed()
    try:
        values = form_of(body, context) if body.strip() else {}
        action = values.get("action", "")
        if action == "auth" or not body.strip():
            return parsed
        device = device_key(context, None, SOURCE)
        if action == "addtrack":
            attributes = {"track": values.get("track", ""), "trackid": track_id(context.received)}
            parsed.events.append(build_event(context, SOURCE, device, "track", None, attributes))
        elif action == "addpos":
            _add_position(values, device, context, parsed)
        else:
            raise Unacceptable(f"unknown action {action[:64]!r}")
    except Unacceptable as reason:
        # The raw body has no password: only `action=auth` has `pass`, and returns above.
        reject(parsed, context, SOURCE, str(reason), body)
    return parsed


def _add_position(values: Mapping[str, str], device: str, context: Context, parsed: Parsed) -> None:
    time_given = values.get("time")
    time = time_ms(time_given)
    if time is None:
        raise Unacceptable("time is not a time")
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            values.get("lat"),
            values.get("lon"),
            time,
            accuracy=positive(values.get("accuracy")),
            altitude=number(values.get("altitude")),
            speed=positive(values.get("speed")),
            course=degrees(values.get("bearing")),
            attributes=other_members(values, _FIX_MEMBERS),
        )
    )
