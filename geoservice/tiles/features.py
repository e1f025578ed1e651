"""What is drawn of an object of OpenStreetMap: layer, first zoom level and attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

ZOOM_MIN: Final = 6
ZOOM_MAX: Final = 14

Tags = Mapping[str, str]
Attributes = dict[str, str | int | float | bool]

#: `name:de`, `name:zh-Hant`; not `name:etymology`, which is no language.
_NAME: Final = re.compile(r"name:([a-z]{2,3}(?:[-_][A-Za-z]{2,8})?)")
_NO_LANGUAGES: Final = frozenset(("alt", "old", "pre", "ref", "sms"))
_NAME_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Drawn:
    """A feature of a layer of Shortbread's schema, from zoom level `zoom` on."""

    layer: str
    zoom: int
    attributes: Attributes = field(default_factory=dict)
    #: An area is drawn from the level on where it has this many pixels (of a tile of 512).
    pixels: float = 0.0
    #: An area is drawn as a point in it.
    as_point: bool = False


Mapped = Iterator[Drawn]


def names(tags: Tags) -> Attributes:
    """Return `name` and, where it differs, `name_xx` for each language of the extract."""
    name = tags.get("name", "")[:_NAME_CHARACTERS_MAX]
    found: Attributes = {"name": name} if name else {}
    for key, value in tags.items():
        if not key.startswith("name:") or value == name:
            continue
        language = _NAME.fullmatch(key)
        if language is not None and language[1] not in _NO_LANGUAGES:
            found[f"name_{language[1]}"] = value[:_NAME_CHARACTERS_MAX]
    return found


def flags(tags: Tags, *keys: str) -> Attributes:
    """Return those of `bridge`, `tunnel` and the like that are set."""
    return {key: True for key in keys if tags.get(key, "no") != "no"}


def whole_number(text: str | None) -> int | None:
    """Return a number without sign, or None for anything else."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 12:
        return None
    return int(text)
