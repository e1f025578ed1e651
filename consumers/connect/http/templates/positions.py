"""What the templates make of positions."""

from __future__ import annotations

from typing import Any, Final

from consumers.connect.data.positions import Position, position_reader

#: Returns the position of a record; raises DataException.
position_of: Final = position_reader(Position)


def known(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def rounded(value: float | None) -> int | None:
    """Return the nearest whole number."""
    return None if value is None else round(value)
