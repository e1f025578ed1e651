"""Land use, water, sites and buildings, in the layers of Shortbread."""

from __future__ import annotations

from typing import Final

from geoservice.tiles.features import ZOOM_MIN, Drawn, Mapped, Tags, flags, names

#: Values of each key that Shortbread's layer `land` has under the same name, or another one.
_LAND: Final[dict[str, dict[str, str]]] = {
    "landuse": {
        **{
            kind: kind
            for kind in (
                *("forest", "residential", "industrial", "commercial", "retail", "railway"),
                *("landfill", "brownfield", "greenfield", "farmyard", "farmland", "grass"),
                *("meadow", "orchard", "vineyard", "allotments", "village_green", "cemetery"),
                *("recreation_ground", "greenhouse_horticulture", "plant_nursery", "quarry"),
            )
        },
        "wood": "forest",
        "garages": "residential",
        "flowerbed": "garden",
    },
    "natural": {
        **{
            kind: kind
            for kind in (
                *("sand", "beach", "bare_rock", "scree", "shingle", "heath", "scrub"),
                *("grassland", "fell"),
            )
        },
        "wood": "forest",
    },
    "wetland": {kind: kind for kind in ("swamp", "bog", "string_bog", "wet_meadow", "marsh")},
    "leisure": {
        **{
            kind: kind for kind in ("golf_course", "miniature_golf", "park", "playground", "garden")
        },
        "common": "village_green",
        "pitch": "pitch",
        "track": "pitch",
    },
    "amenity": {"grave_yard": "grave_yard"},
}
_SITES: Final[dict[str, dict[str, str]]] = {
    "amenity": {
        kind: kind
        for kind in (
            *("university", "hospital", "college", "school", "kindergarten", "prison"),
            *("parking", "bicycle_parking"),
        )
    },
    "leisure": {"sports_centre": "sports_center", "stadium": "sports_center"},
    "landuse": {"construction": "construction"},
    "military": {"danger_area": "danger_area"},
}
_WATER: Final = {"reservoir": "reservoir", "basin": "basin"}

#: Pixels from which an area is drawn: smaller ones would be dots.
_LAND_PIXELS: Final = 24.0
_WATER_PIXELS: Final = 10.0
_BUILDING_PIXELS: Final = 6.0
_LABEL_PIXELS: Final = 1500.0


def of_area(tags: Tags) -> Mapped:
    """Yield what is drawn of an area as an area."""
    yield from _water(tags)
    for key, kinds in _LAND.items():
        kind = kinds.get(tags.get(key, ""))
        if kind:
            yield Drawn("land", ZOOM_MIN, {"kind": kind}, pixels=_LAND_PIXELS)
            break
    for key, kinds in _SITES.items():
        kind = kinds.get(tags.get(key, ""))
        if kind:
            yield Drawn("sites", 12, {"kind": kind}, pixels=_LAND_PIXELS)
            break
    building = tags.get("building", "no")
    if building != "no" and tags.get("location") != "underground":
        yield Drawn("buildings", 13, pixels=_BUILDING_PIXELS)


def _water(tags: Tags) -> Mapped:
    kind = None
    if tags.get("natural") == "water":
        kind = tags.get("water", "water")
    elif tags.get("natural") == "glacier":
        kind = "glacier"
    elif tags.get("landuse") in _WATER:
        kind = _WATER[tags["landuse"]]
    elif tags.get("waterway") in ("riverbank", "dock", "canal"):
        kind = {"riverbank": "river"}.get(tags["waterway"], tags["waterway"])
    elif tags.get("leisure") == "swimming_pool" and tags.get("location") != "indoor":
        kind = "swimming_pool"
    if kind is None:
        return
    first = 13 if kind in ("swimming_pool", "wastewater", "basin") else ZOOM_MIN
    attributes = {"kind": kind, **flags(tags, "intermittent")}
    yield Drawn("water_polygons", first, attributes, pixels=_WATER_PIXELS)
    if named := names(tags):
        yield Drawn(
            "water_polygons_labels",
            max(first, 8),
            {"kind": kind, **named},
            pixels=_LABEL_PIXELS,
            as_point=True,
        )
