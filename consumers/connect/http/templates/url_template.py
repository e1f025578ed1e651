"""A URL with placeholders, whose path a record cannot leave.

A path says what a request is about: without a key `items/${@key}` would be all items, and with the
key `..` what is beside them. Servers and proxies resolve dots even where they are percent-encoded
(RFC 3986, section 6.2.2.3), so that such a record is refused.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.templates.placeholders import TextTemplate, percent_encoded

_PLACEHOLDER: Final = r"\$\{[^${}:]*\}"
_PATH: Final = re.compile(rf"(?:{_PLACEHOLDER}|[^?#])*")
_SEGMENT: Final = re.compile(rf"(?:{_PLACEHOLDER}|[^/])+|/")
#: Some servers divide a path where these are encoded, too.
_DIVIDERS: Final = re.compile(r"[/\\]")


def path_segment(value: Any) -> str:
    """Return a value as a part of a path; raises DataException for None, and for an empty text."""
    text = percent_encoded(value)
    if not text:
        raise DataException("it is missing or empty, and the URL needs it")
    return text


def check_segment(segment: str) -> str:
    """Return a segment of a path; raises DataException for one that leads elsewhere."""
    if any(part in (".", "..") for part in _DIVIDERS.split(unquote(segment))):
        raise DataException("the URL's path would lead elsewhere: a part of it is . or ..")
    return segment


class UrlTemplate:
    """The property `url`."""

    def __init__(self, text: str) -> None:
        """Raises ConfigException for a placeholder without a name."""
        path = _PATH.match(text)
        end = 0 if path is None else path.end()
        self._segments: Final = [
            TextTemplate("url", each, path_segment) for each in _SEGMENT.findall(text[:end])
        ]
        self._rest: Final = TextTemplate("url", text[end:], percent_encoded)
        self._required: Final = TextTemplate("url", text[end:], path_segment)

    @property
    def is_constant(self) -> bool:
        """Tell whether there are no placeholders."""
        return self._rest.is_constant and all(each.is_constant for each in self._segments)

    @property
    def fields(self) -> list[str]:
        """The fields of values that fill it, as they are written."""
        return [each for part in (*self._segments, self._rest) for each in part.fields]

    def filled(self, record: SinkRecord, value: Any, *, deletes: bool = False) -> str:
        """Return the URL for a record, `value` being what `fields_of` returned.

        Raises DataException if something of the path is missing, or would lead elsewhere. Of what
        `deletes` nothing may be missing in the query either: it may say what is deleted.
        """
        texts = [
            part.filled(record, value)
            if part.is_constant
            else check_segment(part.filled(record, value))
            for part in self._segments
        ]
        rest = self._required if deletes else self._rest
        return "".join([*texts, rest.filled(record, value)])
