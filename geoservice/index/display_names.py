"""Which of an object's names is shown: Nominatim's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def display_name(names: Mapping[str, str], languages: Iterable[str] = ()) -> str:
    """The name to show, in the first of the languages that there is; "" without any."""
    if not names:
        return ""
    if len(names) > 1:
        tried: list[str] = [f"name:{language}" for language in languages]
        tried += ("name", "brand")
        tried += [f"official_name:{language}" for language in languages]
        tried += [f"short_name:{language}" for language in languages]
        tried += ("official_name", "short_name", "ref")
        for key in tried:
            if key in names:
                return names[key]
            if f"_place_{key}" in names:
                return names[f"_place_{key}"]
    # PostgreSQL's order of keys, which Nominatim takes the first of.
    return names[min(names, key=lambda key: (len(key.encode()), key.encode()))]
