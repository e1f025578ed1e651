"""What a request carries beside the items of its JSON body: members of the envelope, and the URL.

The apps that send JSON have no parameters of their own in the URL, but users type URLs, and some
apps fill placeholders in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from gateway.formats import Context, Parsed, Parser, osmand
from gateway.formats.members import Members, add_member, without_secrets
from gateway.formats.values import Unacceptable, reject, text

#: Parameters that say how to read the body, or whose it is.
_SETTINGS: Final = ("u", "speed_unit")
#: Parameters that name a device, if the path has no other names for it.
_DEVICE: Final = frozenset(("id", "deviceid"))
#: The member of an envelope that names the device of all its items.
_DEVICE_OF_BATCH: Final = "device_id"
_DEVICE_CHARACTERS_KEPT: Final = 200
#: Degrees; apps round the numbers that they put into a URL.
_SAME_PLACE_WITHIN: Final = 1e-4


def attach(parsed: Parsed, members: Mapping[str, Any]) -> None:
    """Add members that belong to no single item to the last one, once: a batch may be large."""
    items = parsed.fixes or parsed.events
    if items:
        last = items[-1]
        last.attributes = {} if last.attributes is None else last.attributes
        for name, value in members.items():
            add_member(last.attributes, name, value)


class RefusedItem(NamedTuple):
    """An item of a batch that cannot be accepted."""

    at: int  # its index in the batch
    reason: str
    item: dict[str, Any]  # under the name that it has in the envelope
    device: str | None = None  # as the item names it, if it does


def add_rest_of_batch(
    parsed: Parsed, context: Context, source: str, envelope: Members, refused: list[RefusedItem]
) -> None:
    """Add the refused items of a batch, and what its envelope says beside all items.

    Each refused item is kept with its own bytes and the device that the envelope names, not with
    the whole batch. The other members of the envelope go to the last accepted item, or to the last
    refused one if none is accepted. Members that cannot be accepted are kept by themselves: they
    must not cost the items.
    """
    # No longer than a name may be: it is repeated with each item.
    named = text(envelope.peek(_DEVICE_OF_BATCH), _DEVICE_CHARACTERS_KEPT)
    device = {} if named is None else {_DEVICE_OF_BATCH: named}
    beside = envelope.unread()
    is_any_accepted = bool(parsed.fixes or parsed.events)
    for each in refused:
        more = beside if each is refused[-1] and not is_any_accepted else {}
        raw = msgspec.json.encode(device | more | each.item)
        of_item = each.device or named
        reject(parsed, context, source, each.reason, raw, each.at, named=of_item)
    if is_any_accepted:
        try:
            attach(parsed, envelope.others())
        except Unacceptable as reason:
            raw = msgspec.json.encode(device | beside)
            at = max(parsed.rejected_at, default=-1) + 1
            reject(parsed, context, source, str(reason), raw, at, named=named)


def settings_of(context: Context) -> Context:
    """Return the context with only those parameters of the URL that say how to read the body."""
    query = {name: value for name, value in (context.query or {}).items() if name in _SETTINGS}
    return msgspec.structs.replace(context, query=query)


def with_query(
    parsed: Parsed, context: Context, source: str, of_url: Parser = osmand.parse
) -> Parsed:
    """Return `parsed` with the values of the URL: a fix of its own, or beside the last item's.

    `of_url` reads a fix from the URL; `source` is the format of the body.
    """
    if not context.query or parsed.refused is not None:
        return parsed
    query = Members(context.query, _SETTINGS).others()
    alone = context
    items = parsed.fixes or parsed.events
    if items and context.device is None and not query.keys() & _DEVICE:
        alone = msgspec.structs.replace(context, device=items[-1].device)
    found = of_url(b"", alone)
    no_position = bool(found.events) or found.malformed is not None
    if query and not no_position and not _repeats(found, parsed):
        first = max(parsed.rejected_at, default=-1) + 1
        parsed.fixes += found.fixes
        parsed.rejected += found.rejected
        parsed.rejected_at += [first + index for index in found.rejected_at]
        parsed.malformed = None
        return parsed
    device = items[-1].device if items else f"{context.user}/{context.device}"
    for name in (*_DEVICE, "d", "device"):
        if query.get(name) in (device, device.partition("/")[2]):
            del query[name]
    if items and query:
        attach(parsed, {"query": without_secrets(query)})
    elif query and not parsed.count and parsed.malformed is None:
        # An app that may send an empty body would repeat it for ever after an error.
        reason = "there is nothing in the body, and no position in the URL"
        reject(parsed, context, source, reason, urlencode(without_secrets(query)).encode())
    return parsed


def _repeats(of_url: Parsed, parsed: Parsed) -> bool:
    """Tell whether the body has the position that is in the URL, as apps repeat their newest."""
    return bool(of_url.fixes) and all(
        any(
            abs(fix.lat - other.lat) < _SAME_PLACE_WITHIN
            and abs(fix.lon - other.lon) < _SAME_PLACE_WITHIN
            and (fix.time == fix.received or fix.time // 1000 == other.time // 1000)
            for other in parsed.fixes
        )
        for fix in of_url.fixes
    )
