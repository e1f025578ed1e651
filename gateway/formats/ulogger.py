"""uLogger for Android: the form `action=addpos` adds a fix, `addtrack` begins a track.

https://github.com/bfabiszewski/ulogger-server. Signing in (`action=auth`) carries no fix; see
gateway.http.ingest.ulogger_sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from gateway.formats import Context, Parsed
from gateway.formats.members import Members, add_member
from gateway.formats.parameters import place_named, query_and_body
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    degrees,
    device_key,
    number,
    positive,
    reject,
    time_ms,
)

SOURCE: Final = "ulogger"

_SECRETS: Final = ("action", "user", "pass")
#: A picture comes as a file, which is not kept.
_NOT_KEPT: Final = (*_SECRETS, "image")

_place = place_named(("lat",), ("lon",), ("time",))


def form_of(body: bytes, context: Context) -> dict[str, str]:
    """Return the members of the form, or of the URL. Raises Unacceptable."""
    items, _ = query_and_body(body, context, _place, not_kept=_NOT_KEPT)
    return items[-1] if items else {}


def track_id(received: int) -> int:
    """Return the id of a track that begins now: seconds since 1970. The app repeats it."""
    return received // 1000


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the fixes of `addpos`, or an event `track` from `addtrack`."""
    parsed = Parsed()
    try:
        items, _ = query_and_body(body, context, _place, not_kept=_NOT_KEPT)
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), body)
    if not items and not body.strip():
        return Parsed(malformed="the form is empty: send action=addpos, lat, lon and time")
    items = items or [{}]
    for index, item in enumerate(items):
        # Of two positions the one in the URL may have no action of its own.
        action = item.get("action") or items[-1].get("action", "")
        try:
            _parse_item(action, item, context, parsed)
        except Unacceptable as reason:
            # `pass` is in `action=auth` only, which makes nothing; elsewhere it is not kept.
            raw = body if body.strip() and index == len(items) - 1 else urlencode(item).encode()
            reject(parsed, context, SOURCE, str(reason), raw, index)
    return parsed


def _parse_item(action: str, values: Mapping[str, Any], context: Context, parsed: Parsed) -> None:
    if action == "auth":
        return
    members = Members(values, _NOT_KEPT)
    device = device_key(context, None, SOURCE)
    if action == "addtrack":
        attributes = {"track": members.value("track") or ""} | members.others()
        add_member(attributes, "trackid", track_id(context.received))
        parsed.events.append(build_event(context, SOURCE, device, "track", None, attributes))
    elif action == "addpos":
        _add_position(members, device, context, parsed)
    else:
        raise Unacceptable(f"unknown action {action[:64]!r}")


def _add_position(members: Members, device: str, context: Context, parsed: Parsed) -> None:
    time = time_ms(members.value("time"))
    if time is None:
        raise Unacceptable("time is not a time")
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            members.value("lat"),
            members.value("lon"),
            time,
            accuracy=members.read(positive, "accuracy"),
            altitude=members.read(number, "altitude"),
            speed=members.read(positive, "speed"),
            course=members.read(degrees, "bearing"),
            attributes=members.others(),
        )
    )
