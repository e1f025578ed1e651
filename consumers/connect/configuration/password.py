"""Secrets that do not show themselves."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"


class Password:
    """The value of a property of type PASSWORD; only `value` has the secret."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__
