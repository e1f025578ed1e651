"""Which versions of a class a configuration takes, `*.plugin.version` (KIP-891).

The form is Maven's: `[1.0,2.0)`, `(,1.0]`, `[1.0,1.1),[1.2,)`; a version without brackets is that
one alone. Source: Maven's documentation, "Version Range Specification" and "Version Order
Specification".
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from consumers.connect.configuration.exceptions import ConfigException, invalid_value

_LATEST: Final = "latest"
_RANGE: Final = re.compile(r"\s*([\[(])([^\[\](),]*)(?:(,)([^\[\](),]*))?([\])])\s*(?:,|$)")
_PART: Final = re.compile(r"\d+|[a-z]+")
_QUALIFIERS: Final = {
    name: number
    for number, names in enumerate(
        (("alpha", "a"), ("beta", "b"), ("milestone", "m"), ("rc", "cr"), ("snapshot",),
         ("", "ga", "final", "release"), ("sp",))
    )
    for name in names
}  # fmt: skip
_RELEASE: Final = _QUALIFIERS[""]
#: A number, a qualifier that Maven knows, and one that it does not know.
_Item = tuple[int, int, str]
_NOTHING: Final[_Item] = (0, _RELEASE, "")


class _Part(NamedTuple):
    """One of several ranges; a bound of None is none."""

    lower: list[_Item] | None
    includes_lower: bool
    upper: list[_Item] | None
    includes_upper: bool


class VersionRange:
    """The versions that a specification means."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for what is no specification."""
        self.text: Final = text
        self._parts: Final = _parse(text)

    def contains(self, version: str) -> bool:
        """Tell whether a version is one of them."""
        items = _items(version)
        return any(
            (part.lower is None or _before(part.lower, items, or_same=part.includes_lower))
            and (part.upper is None or _before(items, part.upper, or_same=part.includes_upper))
            for part in self._parts
        )


def requirement(text: str | None) -> VersionRange | None:
    """Return what a property asks for; None: any version. Raises ValueError."""
    if text is None or text.strip() in ("", _LATEST):
        return None
    text = text.strip()
    return VersionRange(text if text[0] in "[(" else f"[{text}]")


def valid_range(name: str, value: Any) -> None:
    """A version, or a range of them, in Maven's form; none is valid, too."""
    try:
        requirement(value)
    except ValueError as error:
        raise invalid_value(name, value, str(error)) from None


def check_version(name: str, value: str | None, class_name: str, version: str) -> None:
    """Raise ConfigException if the version of a class is none of those that a property means."""
    try:
        wanted = requirement(value)
    except ValueError:
        return  # the property's own validation says so
    if wanted is not None and not wanted.contains(version):
        raise ConfigException(
            f"Invalid value {value} for configuration {name}: Plugin {class_name} not found that "
            f"matches the version range {wanted.text}, available versions: [{version}]"
        )


def _parse(text: str) -> list[_Part]:
    parts: list[_Part] = []
    end = 0
    while end < len(text):
        found = _RANGE.match(text, end)
        if found is None:
            raise ValueError(f"Unbounded or malformed range: {text}")
        opening, lower, comma, upper, closing = found.groups()
        lower, upper = lower.strip(), (upper or "").strip()
        if comma is None:
            if (opening, closing) != ("[", "]") or not lower:
                raise ValueError(f"Single version must be surrounded by []: {text}")
            upper = lower
        part = _Part(
            _items(lower) if lower else None,
            opening == "[",
            _items(upper) if upper else None,
            closing == "]",
        )
        if part.lower is not None and part.upper is not None and _before(part.upper, part.lower):
            raise ValueError(f"Range defies version ordering: {text}")
        parts.append(part)
        end = found.end()
    if not parts:
        raise ValueError("a version, or a range such as [1.0,2.0), is expected")
    return parts


def _items(version: str) -> list[_Item]:
    items: list[_Item] = []
    for part in _PART.findall(version.lower()):
        if part.isdigit():
            items.append((int(part), _RELEASE, ""))
        else:
            known = _QUALIFIERS.get(part)
            # One that Maven does not know comes after all others, in its own order.
            items.append((-1, len(_QUALIFIERS) if known is None else known, part))
    return items


def _before(one: list[_Item], two: list[_Item], *, or_same: bool = False) -> bool:
    for first, second in zip_longest(one, two, fillvalue=_NOTHING):
        if _order(first) != _order(second):
            return _order(first) < _order(second)
    return or_same


def _order(item: _Item) -> tuple[int, int, str]:
    number, qualifier, text = item
    if number >= 0:
        # What is there no more counts as a release without a qualifier: 1 is 1.0, after 1-rc.
        return (1 if number == 0 else 2, number, "")
    if qualifier < _RELEASE:
        return (0, qualifier, "")
    if qualifier == _RELEASE:
        return (1, 0, "")
    return (1, qualifier, text if qualifier == len(_QUALIFIERS) else "")
