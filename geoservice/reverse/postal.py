"""Addresses as they are written on letters, each country in its own way.

The templates are OpenCage's, in the package addressformatting. They only are for show:
`display_name` stays as Nominatim writes it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from geoservice.reverse.geocoder import Place

_RANK_HOUSE = 30


def postal_lines(place: Place) -> list[str]:
    """The lines of a place's address, its name first if it has one beside street and number."""
    components: dict[str, str | None] = {
        key: name for key, name in place.address.items() if not key.startswith("ISO3166")
    }
    if place.name and place.place_rank == _RANK_HOUSE:
        components["attention"] = place.name
    text = _formatter().format(components, country=place.address.get("country_code"))
    # The library joins lines of which the middle may be empty.
    lines = (line.strip(" ,") for line in text.split("\n"))
    return [line for line in lines if line]


@cache
def _formatter() -> Any:
    # 0.1 s and some megabytes, which only those pay who ask for it.
    from addressformatting import AddressFormatter

    return AddressFormatter()
