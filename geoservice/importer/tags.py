"""The tags that make an OpenStreetMap object a place: the rules of Nominatim's style "full".

An object becomes one place for each main tag that counts by itself ("a restaurant in a hotel"), or
one place for a tag that counts only when no other does (a building with an address).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

Tags = Mapping[str, str]


class PlaceTags(msgspec.Struct, frozen=True, gc=False):
    """One place that an object represents."""

    category: str  # key of the main tag
    type: str  # value of the main tag
    names: dict[str, str]


class TaggedObject(msgspec.Struct, frozen=True, gc=False):
    """The interpreted tags of one object."""

    places: list[PlaceTags]
    address: dict[str, str]  # keys without "addr:"
    extratags: dict[str, str]
    admin_level: int
    interpolation: str | None = None
    #: The postcode, if the object is a postcode boundary or has nothing but a postcode.
    postcode: str | None = None
    postcode_area: bool = False


class _Reading:
    """The tags of one object while they are being interpreted."""

    __slots__ = ("address", "extratags", "has_name", "main", "names", "tags")

    def __init__(self, tags: Tags) -> None:
        self.tags = tags
        self.main: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.address: dict[str, str] = {}
        self.extratags: dict[str, str] = {}
        self.has_name = False


# A rule returns the names that a place of this tag has, or None if the tag makes no place.
Rule = Callable[[_Reading, str], "dict[str, str] | None"]


def _always(reading: _Reading, _key: str) -> dict[str, str] | None:
    return reading.names


def _never(_reading: _Reading, _key: str) -> dict[str, str] | None:
    return None


def _named(reading: _Reading, _key: str) -> dict[str, str] | None:
    return reading.names if reading.has_name else None


def _footway(reading: _Reading, _key: str) -> dict[str, str] | None:
    beside_a_street = reading.tags.get("footway") in ("sidewalk", "crossing", "link")
    return reading.names if reading.has_name and not beside_a_street else None


def _named_with_key(reading: _Reading, key: str) -> dict[str, str] | None:
    prefix = f"{key}:name"
    names = {
        name.removeprefix(f"{key}:"): value
        for name, value in reading.main.items()
        if name == prefix or name.startswith(prefix + ":")
    }
    return names or None


def _lock(reading: _Reading, _key: str) -> dict[str, str] | None:
    name = reading.tags.get("lock_name")
    if name is None or "waterway" not in reading.tags:
        return None
    names = {"name": name}
    if "lock_ref" in reading.tags:
        names["ref"] = reading.tags["lock_ref"]
    return names


def _with(key: str, value: str | None, *, named: bool = False) -> Rule:
    """Return a rule that requires another main tag to have this value (None: to be absent)."""

    def rule(reading: _Reading, _key: str) -> dict[str, str] | None:
        if (named and not reading.has_name) or reading.main.get(key) != value:
            return None
        return reading.names

    return rule


# Counts when no other tag does, and the object has a name or number.
_FALLBACK: Final = "fallback"
_IGNORE: Final = "ignore"
_POSTCODE_AREA: Final = "postcode area"

_Outcome = Rule | str


def _tags(default: _Outcome | None, **values: _Outcome) -> dict[str, _Outcome]:
    outcomes = dict(values)
    if default is not None:
        outcomes[""] = default
    return outcomes


_MAIN: Final[dict[str, dict[str, _Outcome]]] = {
    "boundary": _tags(
        _named,
        place=_IGNORE,
        land_area=_IGNORE,
        protected_area=_FALLBACK,
        postal_code=_POSTCODE_AREA,
    ),
    "landuse": _tags(_FALLBACK, cemetery=_always),
    "place": _tags(_always),
    "waterway": _tags(_named, riverbank=_IGNORE),
    "natural": _tags(
        _named,
        yes=_IGNORE,
        no=_IGNORE,
        coastline=_IGNORE,
        saddle=_FALLBACK,
        water=_with("water", None, named=True),
    ),
    "mountain_pass": _tags(_always, no=_IGNORE),
    "water": _tags(_with("natural", "water", named=True))
    | dict.fromkeys(("river", "stream", "canal", "ditch", "drain", "fish_pass"), _never)
    | dict.fromkeys(("yes", "intermittent", "tidal"), _IGNORE),
    "highway": _tags(_always, footway=_footway)
    | dict.fromkeys(
        (
            *("service", "cycleway", "path", "steps", "bridleway", "track", "motorway_link"),
            *("trunk_link", "primary_link", "secondary_link", "tertiary_link"),
            *("street_lamp", "traffic_signals"),
        ),
        _named,
    )
    | dict.fromkeys(
        (
            *("no", "turning_circle", "mini_roundabout", "noexit", "crossing", "give_way"),
            *("stop", "turning_loop", "passing_place"),
        ),
        _IGNORE,
    ),
    "aerialway": _tags(_always, no=_IGNORE, pylon=_IGNORE),
    "aeroway": _tags(_always, no=_IGNORE),
    "amenity": _tags(_always)
    | dict.fromkeys(
        ("no", "parking_space", "parking_entrance", "waste_disposal", "hunting_stand"), _IGNORE
    ),
    "building": _tags(_FALLBACK, no=_IGNORE),
    "bridge": _tags(_named_with_key, no=_IGNORE),
    "tunnel": _tags(_named_with_key, no=_IGNORE),
    "club": _tags(_always, no=_IGNORE),
    "craft": _tags(_always, no=_IGNORE),
    "emergency": _tags(_always, no=_IGNORE, yes=_IGNORE, fire_hydrant=_IGNORE),
    "healthcare": _tags(_FALLBACK, yes=_IGNORE, no=_IGNORE),
    "historic": _tags(_FALLBACK, yes=_IGNORE, no=_IGNORE),
    "information": _tags(
        _with("tourism", "information"), yes=_IGNORE, route_marker=_never, trail_blaze=_never
    ),
    "junction": _tags(_FALLBACK, no=_IGNORE),
    "leisure": _tags(_always, no=_IGNORE)
    | dict.fromkeys(("nature_reserve", "swimming_pool", "garden", "common"), _named),
    "lock": _tags(None, yes=_lock),
    "man_made": _tags(None, works=_named, dyke=_named, adit=_named)
    | dict.fromkeys(
        ("pier", "tower", "bridge", "water_tower", "lighthouse", "watermill", "tunnel"), _always
    ),
    "military": _tags(_always, yes=_IGNORE, no=_IGNORE),
    "office": _tags(_always, no=_IGNORE),
    "railway": _tags(_named)
    | dict.fromkeys(
        (
            *("rail", "no", "abandoned", "disused", "razed", "level_crossing", "switch"),
            *("signal", "buffer_stop"),
        ),
        _IGNORE,
    ),
    "shop": _tags(_always, no=_IGNORE),
    "tourism": _tags(
        _always,
        attraction=_FALLBACK,
        no=_IGNORE,
        yes=_IGNORE,
        information=_with("information", None),
    ),
}

_NAME_KEYS: Final = frozenset(
    {
        *("name", "int_name", "reg_name", "loc_name", "old_name", "alt_name", "official_name"),
        *("place_name", "short_name", "brand"),
    }
)
_NAME_PREFIXES: Final = (*(f"{key}:" for key in _NAME_KEYS - {"brand"}), "alt_name_")
_REFERENCE_KEYS: Final = frozenset(
    {
        *("ref", "int_ref", "nat_ref", "reg_ref", "loc_ref", "old_ref", "ISO3166-2"),
        *("iata", "icao", "faa"),
    }
)
_HOUSE_NAME: Final = "addr:housename"
_HOUSE_NUMBER_KEYS: Final = frozenset(
    {"addr:housenumber", "addr:conscriptionnumber", "addr:streetnumber"}
)
_POSTCODE_KEYS: Final = frozenset(
    {"postal_code", "postcode", "addr:postcode", "tiger:zip_left", "tiger:zip_right"}
)
_COUNTRY_KEYS: Final = frozenset(
    {
        *("country_code", "ISO3166-1", "addr:country_code", "is_in:country_code"),
        *("addr:country", "is_in:country"),
    }
)

_IGNORED_KEYS: Final = frozenset(
    {
        *("note", "source", "attribution", "comment", "fixme", "created_by", "import", "type"),
        *("tiger:cfcc", "tiger:reviewed", "ref:bygningsnr", "building:ruian:type"),
        *("is_in:postcode", "name:etymology", "name:signed", "name:botanical"),
        *("addr:TW:dataset", "admin_level"),
    }
)
_IGNORED_PREFIXES: Final = (
    *("note:", "source:", "nysgissam:", "NHD:", "nhd:", "gnis:", "geobase:", "yh:", "osak:"),
    *("naptan:", "CLC:", "it:fvg:", "lacounty:", "ref:linz:", "survey:", "ref:ruian:"),
    *("name:prefix:", "name:suffix:", "name:etymology:"),
    *("addr:street:", "addr:city:", "addr:district:", "addr:province:", "addr:subdistrict:"),
    "addr:place:",
)
_IGNORED_SUFFIXES: Final = ("source", ":prefix", ":suffix")

#: Tags that are kept besides names and address.
_EXTRATAGS: Final = frozenset({"wikipedia", "wikidata", "capital"})

#: An object without any of these keys is not a place: a quick check that excludes most objects.
INTERESTING_KEYS: Final = (
    frozenset(_MAIN) | _HOUSE_NUMBER_KEYS | _POSTCODE_KEYS | {_HOUSE_NAME, "addr:interpolation"}
)

ADMIN_LEVEL_NONE: Final = 15


def is_ignored(key: str) -> bool:
    """Return whether this tag describes the mapping and not the place."""
    return (
        key in _IGNORED_KEYS or key.startswith(_IGNORED_PREFIXES) or key.endswith(_IGNORED_SUFFIXES)
    )


def read_tags(tags: Tags, *, is_way: bool) -> TaggedObject | None:
    """Interpret the tags of an object; return None if it is not indexed."""
    reading = _Reading(tags)
    interesting = False
    for key, value in tags.items():
        outcomes = _MAIN.get(key)
        if outcomes is not None:
            outcome = outcomes.get(value, outcomes.get(""))
            if outcome == _IGNORE:
                continue
            interesting = interesting or outcome is not None
        elif is_ignored(key):
            continue
        elif key in INTERESTING_KEYS:
            interesting = True
        reading.main[key] = value
    if not interesting:
        return None
    return _sort_out(reading, is_way=is_way)


def _sort_out(reading: _Reading, *, is_way: bool) -> TaggedObject | None:
    main = reading.main
    if main.get("boundary") == "administrative" and not main.get("place", "isl").startswith("isl"):
        reading.extratags["place"] = main.pop("place")
    has_house_name = _take_names(reading)
    has_house_number = _take_address(reading)
    address = reading.address
    interpolation = None
    if is_way and "housenumber" not in address:
        interpolation = address.pop("interpolation", None)

    places: list[PlaceTags] = []
    fallback: PlaceTags | None = None
    if has_house_name or has_house_number:
        # An object with only an address has no name except that of the house.
        names = {key: name for key, name in reading.names.items() if key == _HOUSE_NAME}
        fallback = PlaceTags("place", "house", names)
    postcode_area = False
    for key, value in main.items():
        outcomes = _MAIN.get(key)
        outcome = outcomes.get(value, outcomes.get("")) if outcomes else None
        if callable(outcome):
            place_names = outcome(reading, key)
            if place_names is not None:
                places.append(PlaceTags(key, value, place_names))
        elif outcome == _POSTCODE_AREA:
            postcode_area = True
        elif outcome == _FALLBACK and reading.has_name:
            fallback = PlaceTags(key, value, reading.names)
    if not places and fallback is not None:
        places.append(fallback)
    postcode = None
    if postcode_area or not places:
        postcode = address.get("postcode")
    if not places and postcode is None and interpolation is None:
        return None
    for key, value in reading.tags.items():
        if key in _EXTRATAGS or key.startswith("wikipedia:"):
            reading.extratags[key] = value
    return TaggedObject(
        places=places,
        address=address,
        extratags=reading.extratags,
        admin_level=_admin_level(reading.tags),
        interpolation=interpolation,
        postcode=postcode,
        postcode_area=postcode_area,
    )


def _take_names(reading: _Reading) -> bool:
    """Move the names out of the main tags; return whether a house name is among them."""
    has_house_name = False
    for key in list(reading.main):
        if key in _NAME_KEYS or key.startswith(_NAME_PREFIXES):
            reading.has_name = True
        elif key == _HOUSE_NAME:
            reading.has_name = has_house_name = True
        elif key not in _REFERENCE_KEYS:
            continue
        reading.names[key] = reading.main.pop(key)
    return has_house_name


def _take_address(reading: _Reading) -> bool:
    """Move the address out of the main tags; return whether it has a house number."""
    has_house_number = False
    address = reading.address
    for key in list(reading.main):
        if key in _POSTCODE_KEYS:
            address["postcode"] = reading.main.pop(key)
        elif key in _COUNTRY_KEYS:
            address["country"] = reading.main.pop(key)
        elif key in _HOUSE_NUMBER_KEYS:
            has_house_number = True
            reading.has_name = True
            address[key.removeprefix("addr:")] = reading.main.pop(key)
        elif key.startswith("addr:"):
            address[key.removeprefix("addr:")] = reading.main.pop(key)
        elif key.startswith("is_in:") or key == "tiger:county":
            address[key.removeprefix("is_in:")] = reading.main.pop(key)
    if len(address.get("country", "  ")) != 2:
        del address["country"]
    return has_house_number


def _admin_level(tags: Tags) -> int:
    text = tags.get("admin_level", "")
    if text.isascii() and text.isdigit() and 0 < int(text) <= ADMIN_LEVEL_NONE:
        return int(text)
    return ADMIN_LEVEL_NONE
