"""One path accepts bodies of any app, and keeps those that no app can have sent.

An app has one setting for the URL, but versions of an app, and templates within one, send different
formats to it. A body is first parsed in the format of its path. If that yields nothing, its JSON is
checked for the distinguishing members of other apps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from gateway.formats import Context, Parsed, Parser, home_assistant, overland, owntracks, traccar
from gateway.formats.beside_json import settings_of, with_query
from gateway.formats.encodings import in_utf8
from gateway.formats.members import without_secrets
from gateway.formats.values import Unacceptable, decode_json, reject, without_tokens

#: Members that occur in the JSON of this app only.
_MARKS: Final[tuple[tuple[Callable[[dict[str, Any]], bool], Parser], ...]] = (
    (lambda members: "_type" in members, owntracks.parse),
    (lambda members: isinstance(members.get("locations"), list), overland.parse),
    (lambda members: isinstance(members.get("location"), dict | list), traccar.parse),
    (lambda members: members.get("type") == "update_location", home_assistant.parse),
    (lambda members: members.get("type") in overland.GEOJSON_TYPES, overland.parse),
)

#: Formats whose values are parameters, of the URL or a form; some also read flat JSON.
_OF_PARAMETERS: Final = frozenset(("colota", "gpslogger", "opengts", "osmand", "phonetrack"))
#: Apps that send OwnTracks' members with units of their own.
_READ_OWNTRACKS: Final = frozenset(("colota", "gpslogger"))


def of_any_app(source: str, own: Parser) -> Parser:
    """Return a parser that tries `own`, then other apps. A body that none can parse is rejected."""

    def parse(body: bytes, context: Context) -> Parsed:
        parsed = _parse(in_utf8(body, context), context)
        if context.query and parsed.rejected:
            # Once, since a batch may have many rejected items.
            last = parsed.rejected[-1]
            query = without_tokens(urlencode(without_secrets(context.query)).encode()).decode()
            last.headers = (last.headers or {}) | {"query": query}
        return parsed

    def _parse(body: bytes, context: Context) -> Parsed:
        other = _recognised(body, source)
        if other is not None and source in _OF_PARAMETERS:
            # The path's own format would take such JSON for a form.
            found = other(body, settings_of(context))
            if found.fixes or found.events or found.refused is not None:
                return with_query(found, context, source, own)
        parsed = own(body, context)
        if parsed.fixes or parsed.events or parsed.refused is not None or not body.strip():
            return parsed
        if other is not None and other is not own:
            found = other(body, context)
            if found.fixes or found.events or found.refused is not None:
                return found
        if not parsed.rejected:
            reject(parsed, context, source, "nothing in the body could be understood", body)
        parsed.malformed = None
        if context.query:
            # The URL alone may hold a position; the body is kept as rejected.
            parsed.fixes = own(b"", context).fixes
        return parsed

    return parse


def _recognised(body: bytes, source: str) -> Parser | None:
    if body.lstrip()[:1] != b"{":
        return None
    try:
        members = decode_json(body)
    except Unacceptable:
        return None
    for has_mark, parser in _MARKS:
        if has_mark(members):
            reads_itself = parser is owntracks.parse and source in _READ_OWNTRACKS
            return None if reads_itself else parser
    return None
