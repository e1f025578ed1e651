"""Addresses in the postal format of each country.

The templates are OpenCage's, from the package addressformatting. They are used for display only;
`display_name` keeps Nominatim's format.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from geoservice.reverse.geocoder import Place

_RANK_HOUSE = 30


def postal_lines(place: Place) -> list[str]:
    """Return a place's address as lines, starting with the name of a house or shop that has one."""
    components: dict[str, str | None] = {
        key: name for key, name in place.address.items() if not key.startswith("ISO3166")
    }
    if place.name and place.place_rank == _RANK_HOUSE:
        components["attention"] = place.name
    text = _formatter().format(components, country=place.address.get("country_code"))
    # The library joins parts of a line, of which some may be empty.
    lines = (line.strip(" ,") for line in text.split("\n"))
    return [line for line in lines if line]


@cache
def _formatter() -> Any:
    # It takes 0.1 s and some megabytes, so it is created only when it is needed.
    from addressformatting import AddressFormatter

    return AddressFormatter()
