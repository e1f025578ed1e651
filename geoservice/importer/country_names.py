"""What countries are called, in their own language and in others.

Where the extract has the country's boundary relation, its names count; a neighbour that is only
mentioned is named by the Unicode project's data (CLDR).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from babel import Locale, UnknownLocaleError, localedata
from babel.languages import get_official_languages

#: Those that people read on the web most, and of the countries that share them.
_LANGUAGES: Final = (
    *("ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr", "he", "hi"),
    *("hr", "hu", "id", "it", "ja", "ko", "lt", "lv", "nl", "no", "pl", "pt", "ro", "ru", "sk"),
    *("sl", "sr", "sv", "th", "tr", "uk", "vi", "zh"),
)


class CountryNames:
    """Sets of names by country code, in lower case."""

    def __init__(self, extract: Mapping[str, dict[str, str]], complete: Container[str]) -> None:
        """`complete` are the countries whose boundary is whole in the extract."""
        # What is only mentioned has its formal name; but where several languages are spoken that
        # shows all of them.
        self._names = {
            code: names
            for code, names in extract.items()
            if code in complete or len(get_official_languages(code.upper(), de_facto=True)) > 1
        }

    def names(self, code: str) -> dict[str, str]:
        """The names of a country as tags: "name", "name:de"; empty if nobody knows it."""
        known = self._names.get(code)
        if known is None:
            known = self._names[code] = _unicode_names(code.upper())
        return known


def _unicode_names(territory: str) -> dict[str, str]:
    official = get_official_languages(territory, de_facto=True)
    local = _name(territory, official[0] if official else "en") or _name(territory, "en")
    if not local:
        return {}
    names = {"name": local}
    for language in _LANGUAGES:
        name = _name(territory, language)
        if name:
            names[f"name:{language}"] = name
    return names


def _name(territory: str, language: str) -> str | None:
    try:
        return Locale.parse(language).territories.get(territory)
    except (UnknownLocaleError, ValueError):
        return None
    finally:
        # Babel keeps all of every language, a megabyte each, of which this is one word.
        localedata._cache.clear()
