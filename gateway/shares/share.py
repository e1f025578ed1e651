"""What a share is: which devices it shows, until when, and how precisely.

A share shows either where its devices are now, or where they were in one period that has passed. It
is opened by a token in a link. Whoever has the link sees what a friend would see under the share's
terms, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

Precision = Literal["exact", "metres", "town"]

#: The side of a cell, in m, that a share of precision `metres` may have.
METRES_MIN: Final = 50
METRES_MAX: Final = 50_000
#: The side of a cell of precision `town`, in m.
TOWN_M: Final = 5_000

_MINUTE_MS: Final = 60_000


@dataclass(frozen=True)
class Terms:
    """How positions are told to somebody; by default as to friends."""

    #: Whatever is near a home of the owner is told as the middle of a circle around it.
    hides_home: bool = True
    #: The side (m) of the square that is told in place of a position; None: positions to a metre.
    cell_m: int | None = None

    @property
    def is_exact(self) -> bool:
        """Tell whether positions are told, and not squares."""
        return self.cell_m is None

    def tells_more_than(self, other: Terms) -> bool:
        """Tell whether positions are told more precisely than by other terms."""
        return (self.cell_m or 0) < (other.cell_m or 0)

    @property
    def step_ms(self) -> int:
        """Return what times are rounded down to with a cell: its crossing is no exact moment."""
        return (15 if self.cell_m is not None and self.cell_m >= TOWN_M else 5) * _MINUTE_MS


#: What friends are told, unless they are told less.
FRIENDS: Final = Terms()


def terms_with(precision: Precision, metres: int | None, *, hides_home: bool = True) -> Terms:
    """Return the terms of a precision; `metres` belong to precision `metres`."""
    cell_m = {"exact": None, "metres": metres, "town": TOWN_M}[precision]
    return Terms(hides_home, cell_m)


def require_metres(precision: Precision, metres: int | None) -> None:
    """Raise ValueError for metres that do not go with a precision."""
    if precision != "metres":
        if metres is not None:
            raise ValueError('metres belong to {"precision": "metres"}')
    elif metres is None or not METRES_MIN <= metres <= METRES_MAX:
        raise ValueError(f"metres must be {METRES_MIN} to {METRES_MAX}")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a user offers to show."""

    devices: tuple[str, ...]  # user/device
    until: int  # ms
    name: str = ""
    #: The period (ms) that is shown; None for a live share.
    from_ms: int | None = None
    to_ms: int | None = None
    precision: Precision = "exact"
    metres: int | None = None  # of precision `metres`
    hides_home: bool = True

    @property
    def is_live(self) -> bool:
        """Tell whether the share shows where devices are now; else it shows a period."""
        return self.from_ms is None

    @property
    def terms(self) -> Terms:
        """Return how positions are told to viewers."""
        return terms_with(self.precision, self.metres, hides_home=self.hides_home)


@dataclass(frozen=True, kw_only=True)
class Share(Offer):
    """An offer with the link that accepts it, valid now."""

    hash: str = field(repr=False)  # of its token
    id: str
    user: str  # the owner
    created: int  # ms
