"""The choice of the name to show from all names of an object, in Nominatim's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def display_name(names: Mapping[str, str], languages: Iterable[str] = ()) -> str:
    """Return the name in the first of the languages that has one; "" if there are no names."""
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
    # Nominatim takes the first key in PostgreSQL's order: shorter keys first, then by bytes.
    return names[min(names, key=lambda key: (len(key.encode()), key.encode()))]
