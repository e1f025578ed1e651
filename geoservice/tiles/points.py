"""Places, points of interest, stops and house numbers, in the layers of Shortbread."""

from __future__ import annotations

from typing import Final

from geoservice.tiles.features import Attributes, Drawn, Mapped, Tags, names, whole_number

_PLACES: Final = {
    "city": 6,
    "town": 7,
    "village": 9,
    "suburb": 11,
    "hamlet": 12,
    "quarter": 12,
    "neighbourhood": 13,
    "isolated_dwelling": 14,
    "farm": 14,
    "locality": 14,
    "island": 10,
    "islet": 13,
}
_STATE_LEVELS: Final = ("3", "4")

_STOPS: Final[dict[str, dict[str, int]]] = {
    "aeroway": {"aerodrome": 10, "helipad": 14},
    "railway": {"station": 12, "halt": 12, "tram_stop": 14},
    "amenity": {"bus_station": 13, "ferry_terminal": 13},
    "highway": {"bus_stop": 14},
    "aerialway": {"station": 13},
}
#: Keys and values of points of interest that a street map shows; None stands for every value.
_INTERESTS: Final[dict[str, frozenset[str] | None]] = {
    "amenity": frozenset(
        (
            *("arts_centre", "atm", "bank", "bar", "bicycle_rental", "biergarten", "cafe"),
            *("car_rental", "charging_station", "cinema", "clinic", "college", "community_centre"),
            *("courthouse", "dentist", "doctors", "embassy", "fast_food", "fire_station"),
            *("fountain", "fuel", "hospital", "ice_cream", "kindergarten", "library"),
            *("marketplace", "nightclub", "parking", "pharmacy", "place_of_worship", "police"),
            *("post_office", "prison", "pub", "restaurant", "school", "shelter", "theatre"),
            *("toilets", "townhall", "university", "veterinary", "drinking_water"),
        )
    ),
    "leisure": frozenset(
        (
            *("golf_course", "ice_rink", "marina", "nature_reserve", "park", "playground"),
            *("sports_centre", "stadium", "swimming_pool", "water_park"),
        )
    ),
    "tourism": frozenset(
        (
            *("alpine_hut", "aquarium", "artwork", "attraction", "bed_and_breakfast", "camp_site"),
            *("chalet", "gallery", "guest_house", "hostel", "hotel", "information", "motel"),
            *("museum", "picnic_site", "theme_park", "viewpoint", "wilderness_hut", "zoo"),
        )
    ),
    "historic": frozenset(
        ("archaeological_site", "castle", "fort", "memorial", "monastery", "monument", "ruins")
    ),
    "man_made": frozenset(("lighthouse", "observatory", "tower", "watermill", "windmill")),
    "shop": None,
}
#: Interests that are as well known as the place they are in, and those that only matter close by.
_EARLY: Final = frozenset(
    ("hospital", "castle", "museum", "stadium", "university", "theme_park", "zoo", "alpine_hut")
)
#: Without a name these say nothing.
_NAMELESS: Final = frozenset(
    (
        *("alpine_hut", "atm", "bank", "charging_station", "drinking_water", "fire_station"),
        *("fountain", "fuel", "hospital", "lighthouse", "parking", "pharmacy"),
        *("place_of_worship", "playground", "police", "post_office", "shelter", "toilets"),
        *("viewpoint", "wilderness_hut", "windmill", "picnic_site", "tower"),
    )
)
_OUTDOOR: Final = {"peak": 11, "volcano": 11, "saddle": 13, "spring": 14, "cave_entrance": 14}
#: Beside `parking` and the like, which are shown for areas only if they are public.
_PRIVATE: Final = frozenset(("private", "no", "customers", "permit"))
_AREA_PIXELS: Final = 4.0


def of_place(tags: Tags) -> Mapped:
    """Yield the label of a settlement, of a node only: areas have one beside."""
    kind = tags.get("place", "")
    zoom = _PLACES.get(kind)
    named = names(tags)
    if zoom is None or not named:
        return
    if kind in ("city", "town", "village"):
        if tags.get("capital") in ("yes", "2"):
            kind, zoom = "capital", 6
        elif tags.get("capital") in _STATE_LEVELS:
            kind, zoom = "state_capital", 6
    population = whole_number(tags.get("population")) or 0
    yield Drawn("place_labels", zoom, {"kind": kind, **named, "population": population})


def of_point(tags: Tags) -> Mapped:
    """Yield what is drawn of a node, or of an area, as a point."""
    yield from _address(tags)
    yield from _stop(tags)
    yield from _interest(tags)


def _address(tags: Tags) -> Mapped:
    number, house = tags.get("addr:housenumber"), tags.get("addr:housename")
    if number or house:
        attributes: Attributes = {}
        if number:
            attributes["housenumber"] = number[:20]
        if house:
            attributes["housename"] = house[:80]
        yield Drawn("addresses", 14, attributes, as_point=True)


def _stop(tags: Tags) -> Mapped:
    for key, zooms in _STOPS.items():
        zoom = zooms.get(tags.get(key, ""))
        if zoom is None:
            continue
        kind = tags[key] if key != "aerialway" else "aerialway_station"
        attributes: Attributes = {"kind": kind, **names(tags)}
        if kind == "station" and tags.get("station") in ("subway", "light_rail", "funicular"):
            zoom = 13
        if "iata" in tags:
            attributes["iata"] = tags["iata"]
        elif kind == "aerodrome":
            zoom = 12
        yield Drawn("public_transport", zoom, attributes, as_point=True)
        return


def _interest(tags: Tags) -> Mapped:
    named = names(tags)
    outdoor = tags.get("natural", "")
    if outdoor in _OUTDOOR and (named or outdoor == "spring"):
        attributes: Attributes = {"natural": outdoor, **named}
        height = whole_number(tags.get("ele", "").partition(".")[0])
        if height is not None:
            attributes["ele"] = height
        yield Drawn("pois", _OUTDOOR[outdoor], attributes, as_point=True)
    for key, wanted in _INTERESTS.items():
        value = tags.get(key)
        if value is None or value in ("no", "vacant") or (wanted and value not in wanted):
            continue
        if tags.get("access") in _PRIVATE or not (named or value in _NAMELESS):
            continue
        found: Attributes = {key: value, **named}
        if tags.get("religion") and value == "place_of_worship":
            found["religion"] = tags["religion"]
        if value == "information":
            if tags.get("information") not in ("office", "visitor_centre"):
                continue
            found["information"] = tags["information"]
        early = value in _EARLY and bool(named)
        yield Drawn("pois", 13 if early else 14, found, pixels=_AREA_PIXELS, as_point=True)
        return
