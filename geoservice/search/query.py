"""What can be asked of the forward search, and what it asks of an index."""

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

#: Address ranks by Nominatim's featureType.
FEATURE_RANKS: Final = {
    "country": (4, 4),
    "state": (8, 8),
    "city": (14, 16),
    "settlement": (8, 20),
}

Box = tuple[float, float, float, float]  # west, south, east, north


class Structured(msgspec.Struct, frozen=True, kw_only=True):
    """A question in parts, from fine to coarse."""

    amenity: str = ""
    street: str = ""
    city: str = ""
    county: str = ""
    state: str = ""
    country: str = ""
    postalcode: str = ""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A question."""

    text: str = ""
    structured: Structured | None = None  # instead of the text
    limit: int = LIMIT_DEFAULT
    countries: frozenset[str] = frozenset()  # ISO codes in lower case; empty: all
    viewbox: Box | None = None  # preferred, or with `bounded` the only one
    bounded: bool = False
    ranks: tuple[int, int] | None = None  # address ranks, see FEATURE_RANKS
    layers: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()  # place ids, or "N12", "W34", "R56"
    languages: tuple[str, ...] = ()
    dedupe: bool = True


class House(msgspec.Struct, frozen=True):
    """A house of a street: an object of its own, or one that is counted along a line."""

    number: int
    counted: int = -1  # the house number, on a line between two houses


class SearchLayer(Protocol):
    """One index that can be searched. Arguments and answers are its own numbers of objects."""

    words: WordIndex
    context_count: int
    object_count: int
    bonus: float  # what its places are worth beside those of other layers

    def contexts(self, numbers: Numbers) -> Numbers:
        """What each lies in; -1 for nothing."""

    def parents(self, numbers: Numbers) -> Numbers:
        """The street or place that each is on; -1 for none."""

    def importances(self, numbers: Numbers) -> NDArray[np.float64]:
        """How well known each is, 0 to 1."""

    def ranks(self, numbers: Numbers) -> Numbers:
        """Nominatim's address ranks."""

    def inside(self, numbers: Numbers, box: Box) -> NDArray[np.bool_]:
        """Which of them are in a box."""

    def names(self, number: int) -> Iterable[str]:
        """All names of one, the one that is shown first."""

    def house(self, number: int, house_number: str) -> House | None:
        """The house of a street or place with this (plain) number."""

    def place(self, number: int, languages: Sequence[str], house: House | None) -> Place:
        """What an answer says about one, or about its house."""

    def postcodes(self, text: str, languages: Sequence[str]) -> list[Place]:
        """The areas of a postcode, one a country."""
