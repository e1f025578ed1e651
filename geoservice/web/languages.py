"""The header Accept-Language (RFC 9110, section 12.5.4)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_RANGE: Final = re.compile(r"\s*([a-z_-]+)\s*(?:;\s*q\s*=\s*([01](?:\.\d+)?))?\s*", re.IGNORECASE)

#: Limit of the languages of a request: each one is tried on every name.
LANGUAGES_MAX: Final = 20
_CHARACTERS_MAX: Final = 500


@lru_cache(maxsize=256)
def parse_languages(text: str) -> tuple[str, ...]:
    """Return the preferred languages, best first; malformed ones are ignored, as in Nominatim.

    A variant ("de-AT") adds its language ("de"), unless that is listed itself.
    """
    wanted: list[tuple[str, float]] = []
    for part in text[:_CHARACTERS_MAX].split(","):
        match = _RANGE.fullmatch(part)
        if match is not None:
            wanted.append((match[1], float(match[2] or 1.0)))
    wanted.sort(key=lambda language: -language[1])
    named = {language for language, _ in wanted}
    languages: dict[str, None] = {}
    for language, _ in wanted:
        languages[language] = None
        base = language.split("-", 1)[0]
        if base not in named:
            languages[base] = None
    return tuple(languages)[:LANGUAGES_MAX]
