"""JSON pointers (RFC 6901): names of places in a document."""

from __future__ import annotations

import re
from typing import Any, Final

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
#: What is found where there is nothing; null is something.
MISSING: Final = object()


class JsonPointer:
    """A pointer. It never changes."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for what is no pointer."""
        if text and not text.startswith("/"):
            raise ValueError("a JSON pointer begins with /")
        if _BAD_ESCAPE.search(text):
            raise ValueError("in a JSON pointer ~ is written as ~0, and / in a name as ~1")
        parts = text.split("/")[1:]
        self._parts: Final = tuple(each.replace("~1", "/").replace("~0", "~") for each in parts)

    def find(self, document: Any) -> Any:
        """Return what is at the place, MISSING if nothing is."""
        for part in self._parts:
            if isinstance(document, dict):
                document = document.get(part, MISSING)
            elif isinstance(document, list) and _INDEX.fullmatch(part):
                document = document[int(part)] if int(part) < len(document) else MISSING
            else:
                return MISSING
        return document
