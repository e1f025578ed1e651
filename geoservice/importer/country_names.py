"""The names of countries, in their own language and in others.

If the extract has a country's complete boundary, the names of the relation are used. The name of a
neighbour comes from the Unicode project's data (CLDR).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from babel import Locale, UnknownLocaleError, localedata
from babel.languages import get_official_languages

#: The languages that are most common on the web, and those of countries with several languages.
_LANGUAGES: Final = (
    *("ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr", "he", "hi"),
    *("hr", "hu", "id", "it", "ja", "ko", "lt", "lv", "nl", "no", "pl", "pt", "ro", "ru", "sk"),
    *("sl", "sr", "sv", "th", "tr", "uk", "vi", "zh"),
)


class CountryNames:
    """Names by country code in lower case."""

    def __init__(self, extract: Mapping[str, dict[str, str]], complete: Container[str]) -> None:
        """Select names of the extract; `complete` has the countries with a whole boundary in it."""
        # The relation of a country that is not complete has its formal name. Use it only in
        # countries with several languages, where it shows the name in all of them.
        self._names = {
            code: names
            for code, names in extract.items()
            if code in complete or len(get_official_languages(code.upper(), de_facto=True)) > 1
        }

    def names(self, code: str) -> dict[str, str]:
        """Return the names of a country as tags: "name", "name:de"; empty if they are unknown."""
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
        # Babel caches all data of a language, a megabyte each, of which one word is needed here.
        localedata._cache.clear()
