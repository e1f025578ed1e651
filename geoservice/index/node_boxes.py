"""The size of the bounding box of a node, by its main tag."""

from __future__ import annotations

from typing import Final

#: Half the side of the box around a node, in degrees; the values are Nominatim's.
_EXTENTS: Final = {
    ("place", "continent"): 25.0,
    ("place", "country"): 7.0,
    ("place", "state"): 2.6,
    ("place", "province"): 2.6,
    ("place", "region"): 1.0,
    ("place", "county"): 0.7,
    ("place", "city"): 0.16,
    ("place", "municipality"): 0.16,
    ("place", "island"): 0.32,
    ("place", "postcode"): 0.16,
    ("place", "town"): 0.04,
    ("place", "village"): 0.02,
    ("place", "hamlet"): 0.02,
    ("place", "district"): 0.02,
    ("place", "borough"): 0.02,
    ("place", "suburb"): 0.02,
    ("place", "locality"): 0.01,
    ("place", "neighbourhood"): 0.01,
    ("place", "quarter"): 0.01,
    ("place", "city_block"): 0.01,
    ("landuse", "farm"): 0.01,
    ("place", "farm"): 0.01,
    ("place", "airport"): 0.015,
    ("aeroway", "aerodrome"): 0.015,
    ("railway", "station"): 0.005,
}
_EXTENT: Final = 0.00005


def box_around(
    lat: float, lon: float, category: str, type_: str
) -> tuple[float, float, float, float]:
    """Return south, north, west and east of the box around a node, in degrees."""
    extent = _EXTENTS.get((category, type_), _EXTENT)
    return lat - extent, lat + extent, lon - extent, lon + extent
