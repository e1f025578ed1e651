"""The queries of forward search, and the interface that it needs of an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from geoservice.reverse.geocoder import Place
from geoservice.search.sections import Numbers, WordIndex

LIMIT_DEFAULT: Final = 10
LIMIT_MAX: Final = 50

#: Address ranks of Nominatim's featureType values.
FEATURE_RANKS: Final = {
    "country": (4, 4),
    "state": (8, 8),
    "city": (14, 16),
    "settlement": (8, 20),
}

Box = tuple[float, float, float, float]  # west, south, east, north


class Structured(msgspec.Struct, frozen=True, kw_only=True):
    """A structured query, its parts from fine to coarse."""

    amenity: str = ""
    street: str = ""
    city: str = ""
    county: str = ""
    state: str = ""
    country: str = ""
    postalcode: str = ""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query."""

    text: str = ""
    structured: Structured | None = None  # used instead of the text
    limit: int = LIMIT_DEFAULT
    countries: frozenset[str] = frozenset()  # ISO codes in lower case; empty means all
    viewbox: Box | None = None  # preferred area; with `bounded` the only one
    bounded: bool = False
    ranks: tuple[int, int] | None = None  # address ranks, see FEATURE_RANKS
    layers: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()  # place ids, or "N12", "W34", "R56"
    languages: tuple[str, ...] = ()
    dedupe: bool = True


class House(msgspec.Struct, frozen=True):
    """A house of a street: an object of its own, or one on an interpolation line."""

    number: int
    counted: int = -1  # interpolated house number, or -1


class SearchLayer(Protocol):
    """One index that can be searched. Methods take and return its own object numbers."""

    words: WordIndex
    context_count: int
    object_count: int
    bonus: float  # added to the scores of its places, to rank them among those of other layers

    def contexts(self, numbers: Numbers) -> Numbers:
        """Return the context of each object, which stands for the areas around it; -1 for none."""

    def parents(self, numbers: Numbers) -> Numbers:
        """Return the street or place that each object belongs to; -1 for none."""

    def importances(self, numbers: Numbers) -> NDArray[np.float64]:
        """Return the importance of each object, 0 to 1."""

    def ranks(self, numbers: Numbers) -> Numbers:
        """Return Nominatim's address rank of each object."""

    def inside(self, numbers: Numbers, box: Box) -> NDArray[np.bool_]:
        """Return a mask of the objects in a box."""

    def names(self, number: int) -> Iterable[str]:
        """Return all names of an object, the one that is displayed first."""

    def house(self, number: int, house_number: str) -> House | None:
        """Return the house of a street or place with this normalised number, or None."""

    def place(self, number: int, languages: Sequence[str], house: House | None) -> Place:
        """Return the place for an object, or for its house."""

    def postcodes(self, text: str, languages: Sequence[str]) -> list[Place]:
        """Return the areas of a postcode, one per country."""
