"""Nominatim's ranks: the prominence of a place in a search, and its level in an address.

Ranks go from 2 (continent) over 4 (country), 8 (state), 12 (county), 16 (city), 20 (suburb), 26
(street) to 30 (house). An object with address rank 0 is never part of an address.
"""

from __future__ import annotations

from typing import Any, Final

import shapely

Ranks = tuple[int, int]  # search, address


def _both(rank: int) -> Ranks:
    return rank, rank


_HOUSE: Final = _both(30)
_OTHER: Final = ""

_PLACES: Final[dict[str, Ranks]] = {
    "sea": (2, 0),
    "island": (17, 0),
    "islet": (20, 0),
    "continent": (2, 0),
    "country": (4, 0),
    "state": (8, 0),
    "province": (8, 0),
    "region": (18, 0),
    "county": _both(12),
    "district": _both(12),
    "municipality": _both(14),
    "city": _both(16),
    "town": (18, 16),
    "borough": _both(18),
    "village": (19, 16),
    "suburb": (19, 20),
    "hamlet": _both(20),
    "croft": _both(20),
    "subdivision": _both(22),
    "allotments": _both(22),
    "neighbourhood": _both(24),
    "quarter": (20, 22),
    "isolated_dwelling": (22, 25),
    "farm": (22, 25),
    "city_block": _both(25),
    "mountain_pass": _both(25),
    "square": _both(25),
    "locality": _both(25),
    "houses": (28, 0),
    "house": _HOUSE,
    _OTHER: (22, 0),
}

_RANKS: Final[dict[str, dict[str, Ranks]]] = {
    "place": _PLACES,
    "boundary": {f"administrative{level}": _both(2 * level) for level in range(2, 13)}
    | {"administrative3": _both(6), _OTHER: (25, 0)},
    "landuse": dict.fromkeys(
        ("residential", "farm", "farmyard", "industrial", "commercial", "allotments", "retail"),
        _both(24),
    )
    | {_OTHER: (24, 0)},
    "leisure": {
        "park": (24, 0),
        "nature_reserve": (24, 0),
        "garden": (25, 0),
        "common": (25, 0),
    },
    "natural": {"peak": (18, 0), "volcano": (18, 0), "mountain_range": (18, 0), "sea": (4, 0)}
    | dict.fromkeys(
        ("tree", "spring", "cave_entrance", "geyser", "hot_spring", "rock", "stone"), _HOUSE
    )
    | {_OTHER: (22, 0)},
    "water": {
        "lake": (20, 0),
        "reservoir": (20, 0),
        "wastewater": (24, 0),
        "pond": (24, 0),
        "fountain": (24, 0),
        _OTHER: (22, 0),
    },
    "waterway": {
        "river": (19, 0),
        "stream": (22, 0),
        "ditch": (22, 0),
        "drain": (22, 0),
        _OTHER: (20, 0),
    },
    "highway": dict.fromkeys(
        (
            *("service", "cycleway", "path", "footway", "steps", "bridleway", "motorway_link"),
            *("primary_link", "trunk_link", "secondary_link", "tertiary_link"),
        ),
        _both(27),
    )
    | dict.fromkeys(
        (
            *("residential", "track", "unclassified", "tertiary", "secondary", "primary"),
            *("living_street", "trunk", "motorway", "pedestrian", "road", "construction"),
        ),
        _both(26),
    )
    | {_OTHER: _HOUSE},
    "mountain_pass": {_OTHER: (20, 0)},
    "historic": {"neighbourhood": (22, 0)},
}


def _admin(**levels: int | Ranks) -> dict[str, dict[str, Ranks]]:
    return {
        "boundary": {
            f"administrative{level.removeprefix('level')}": (
                rank if isinstance(rank, tuple) else _both(rank)
            )
            for level, rank in levels.items()
        }
    }


_NORTH: Final = _admin(level3=8, level4=12)

#: Differences in single countries, whose mappers use the levels differently.
_BY_COUNTRY: Final[dict[str, dict[str, dict[str, Ranks]]]] = {
    "au": _admin(level6=(12, 0)),
    "be": _admin(
        level3=(5, 0),
        level4=6,
        level5=(7, 0),
        level6=8,
        level7=12,
        level8=14,
        level9=16,
        level10=18,
    ),
    "br": _admin(level5=(10, 0), level6=(12, 0), level7=(14, 0)),
    "ca": {"place": {"county": (12, 0)}},
    "cz": _admin(level5=12, level6=(13, 0), level7=(14, 0), level8=14, level9=15, level10=16),
    "de": _admin(level5=(10, 0)) | {"place": {"region": (10, 0), "county": (12, 0)}},
    "es": _admin(level5=(10, 0), level6=10, level7=12, level10=22)
    | {"place": {"province": _both(10), "civil_parish": _both(18)}},
    "id": _admin(level5=12, level6=14, level7=16, level8=20, level9=22, level10=24)
    | {"place": {"municipality": _both(18)}},
    "jp": _admin(level7=16, level8=18, level9=20, level10=22, level11=24),
    "nl": _admin(level7=(13, 0), level8=14, level9=(15, 0), level10=16),
    "no": _NORTH,
    "ru": _admin(level5=(10, 0), level7=(13, 0), level8=14)
    | {"place": {"municipality": _both(18)}},
    "sa": {"place": {"province": _both(12), "municipality": _both(18)}},
    "se": _NORTH,
}


def compute_ranks(
    country: str | None,
    geometry: str,
    category: str,
    type_: str,
    admin_level: int = 15,
    *,
    capital: bool = False,
) -> Ranks:
    """Return the (search, address) rank; `geometry` is "N", "W", "R", or "A" for an area."""
    if (geometry == "N" and category == "highway") or (geometry != "A" and category == "landuse"):
        return _HOUSE
    if category == "boundary" and type_ == "administrative":
        type_ = f"administrative{admin_level}"
    search, address = _look_up(country, category, type_)
    if category == "waterway" and geometry == "R":
        search -= 1
    if capital:
        search -= 1
    return search, address


def _look_up(country: str | None, category: str, type_: str) -> Ranks:
    own = _BY_COUNTRY.get(country or "", {}).get(category, {}).get(type_)
    if own is not None:
        return own
    types = _RANKS.get(category)
    if types is None:
        return _HOUSE
    return types.get(type_) or types.get(_OTHER, _HOUSE)


def address_tag_ranks(key: str, country: str | None) -> tuple[int, int, float] | None:
    """Return the first and last address rank that `addr:key` may name, and its reach in degrees.

    Returns None if the key names no place.
    """
    own = _BY_COUNTRY.get(country or "", {}).get("place", {}).get(key)
    ranks = own or (_PLACES.get(key) if key else None)
    if ranks is None or ranks[1] <= 0:
        return None
    search, address = ranks
    for first, last in ((0, 4), (5, 9), (10, 12), (13, 16), (17, 21), (22, 24)):
        if address <= last:
            return (first or 4), last, reverse_diameter(search)
    return 25, 25, reverse_diameter(search)


def reverse_diameter(rank_search: int) -> float:
    """Return how far from its node a place of this rank reaches, in degrees."""
    for rank, degrees in ((4, 5.0), (8, 1.8), (12, 0.6), (17, 0.16), (18, 0.08), (19, 0.04)):
        if rank_search <= rank:
            return degrees
    return 0.02


def fuzzy_radius_m(rank_search: int) -> float:
    """Return half the side of the square around a place node in which streets may belong to it."""
    for rank, metres in ((16, 15_000.0), (18, 4_000.0), (19, 2_000.0), (20, 1_000.0)):
        if rank_search <= rank:
            return metres
    return 500.0


_ADMIN_LABELS: Final = {
    1: "continent",
    2: "country",
    3: "region",
    4: "state",
    5: "state_district",
    6: "county",
    7: "municipality",
    8: "city",
    9: "city_district",
    10: "suburb",
    11: "neighbourhood",
    12: "city_block",
}


def address_label(
    category: str, type_: str, rank_address: int, linked_type: str | None, country: str | None
) -> str:
    """Return the key of a place in an address."""
    if (category, type_) in (("place", "postcode"), ("boundary", "postal_code")):
        label = "postcode"
    elif rank_address < 26 and linked_type:
        label = linked_type
    elif (category, type_) == ("boundary", "administrative"):
        label = _ADMIN_LABELS.get(rank_address // 2, "administrative")
        if country in ("no", "se") and rank_address // 2 in (3, 4):
            label = "state" if rank_address // 2 == 3 else "county"
    elif rank_address < 26:
        label = type_ if type_ != "yes" else category
    elif rank_address < 28:
        label = "road"
    else:
        label = category
    return label.lower().replace(" ", "_")


def rank_by_size(rank_search: int, geometry: Any) -> int:
    """Return the address rank below which areas are part of the address of an object this large."""
    dimensions = shapely.get_dimensions(geometry)
    if dimensions == 0:
        return rank_search
    size = geometry.area if dimensions == 2 else geometry.length**2 * 0.1
    for limit, rank in ((1.0, 7), (0.1, 9), (0.01, 13), (0.001, 17), (0.0001, 19)):
        if size > limit:
            return rank
    return 21 if size > 0.000005 else 23
