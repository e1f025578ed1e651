"""Streets, paths, railways and what else is drawn as a line, in the layers of Shortbread."""

from __future__ import annotations

from typing import Final

from geoservice.tiles.features import Attributes, Drawn, Mapped, Tags, flags, names

#: First zoom level of the line and of its name.
_HIGHWAYS: Final = {
    "motorway": (6, 10),
    "trunk": (6, 11),
    "primary": (8, 12),
    "secondary": (9, 12),
    "tertiary": (10, 13),
    "unclassified": (12, 14),
    "residential": (12, 14),
    "busway": (12, 14),
    "bus_guideway": (12, 14),
    "living_street": (12, 14),
    "pedestrian": (12, 14),
    "service": (13, 14),
    "track": (13, 14),
    "footway": (13, 14),
    "path": (13, 14),
    "cycleway": (13, 14),
    "bridleway": (13, 14),
    "steps": (14, 14),
}
_LINKS_LATER: Final = 2
_RAILWAYS: Final = {
    "rail": 8,
    "narrow_gauge": 10,
    "light_rail": 11,
    "subway": 12,
    "tram": 12,
    "funicular": 12,
    "monorail": 12,
}
_SIDINGS: Final = frozenset(("yard", "siding", "spur", "crossover"))
_RUNWAYS: Final = {"runway": 11, "taxiway": 13}
_WATERWAYS: Final = {"river": 8, "canal": 10, "stream": 12, "ditch": 14, "drain": 14}
_AERIALWAYS: Final = frozenset(
    (
        *("cable_car", "gondola", "goods", "chair_lift", "drag_lift", "t-bar", "j-bar"),
        *("platter", "rope_tow", "mixed_lift", "magic_carpet"),
    )
)
_PIERS: Final = frozenset(("pier", "breakwater", "groyne"))
_IDENTIFIERS_MAX: Final = 3  # `ref` of a street that is part of many routes


def of_line(tags: Tags, *, closed: bool) -> Mapped:
    """Yield what is drawn of a way as a line; of a closed one there may be an area beside."""
    highway = tags.get("highway")
    if highway is not None:
        yield from _street(highway, tags)
    railway = tags.get("railway")
    if railway in _RAILWAYS:
        zoom = _RAILWAYS[railway]
        attributes: Attributes = {"kind": railway, "rail": True, **flags(tags, "bridge", "tunnel")}
        if tags.get("service") in _SIDINGS:
            attributes["service"] = tags["service"]
            zoom = max(zoom, 13)
        yield Drawn("streets", zoom, attributes)
    aeroway = tags.get("aeroway")
    if aeroway in _RUNWAYS and not closed:
        yield Drawn("streets", _RUNWAYS[aeroway], {"kind": aeroway})
    waterway = tags.get("waterway")
    if waterway in _WATERWAYS:
        zoom = _WATERWAYS[waterway]
        yield Drawn(
            "water_lines",
            zoom,
            {"kind": waterway, **flags(tags, "bridge", "tunnel", "intermittent")},
        )
        if named := names(tags):
            yield Drawn("water_lines_labels", min(14, zoom + 2), {"kind": waterway, **named})
    elif waterway == "dam":
        yield Drawn("dam_lines", 13, {"kind": "dam"})
    if tags.get("aerialway") in _AERIALWAYS:
        yield Drawn("aerialways", 12, {"kind": tags["aerialway"]})
    if tags.get("route") == "ferry":
        yield Drawn("ferries", 10, {"kind": "ferry", **names(tags)})
    if tags.get("man_made") in _PIERS and not closed:
        yield Drawn("pier_lines", 12, {"kind": tags["man_made"]})


def _street(highway: str, tags: Tags) -> Mapped:
    kind = highway.removesuffix("_link")
    if kind == "road":
        kind = "unclassified"
    if kind not in _HIGHWAYS or tags.get("area") == "yes":
        return
    zoom, label_zoom = _HIGHWAYS[kind]
    link = kind != highway
    if link:
        zoom, label_zoom = zoom + _LINKS_LATER, 14
    service = tags.get("service")
    if kind == "service" and service is not None:
        zoom = 14
    attributes: Attributes = {"kind": kind, **flags(tags, "bridge", "tunnel")}
    if link:
        attributes["link"] = True
    if kind == "service" and service is not None:
        attributes["service"] = service
    if tags.get("oneway") in ("yes", "1", "true"):
        attributes["oneway"] = True
    elif tags.get("oneway") == "-1":
        attributes["oneway_reverse"] = True
    for key in ("surface", "tracktype") if kind in ("track", "path") else ():
        if key in tags:
            attributes[key] = tags[key]
    yield Drawn("streets", min(zoom, 14), attributes)
    named = names(tags)
    identifiers = tags.get("ref", "").split(";")[:_IDENTIFIERS_MAX] if not link else []
    reference = "\n".join(filter(None, (each.strip() for each in identifiers)))
    if reference:
        named["ref"] = reference
        rows = reference.split("\n")
        named["ref_rows"] = len(rows)
        named["ref_cols"] = max(map(len, rows))
    if named:
        yield Drawn("street_labels", label_zoom, {"kind": kind, **flags(tags, "tunnel"), **named})


def of_area(tags: Tags, *, from_way: bool) -> Mapped:
    """Yield what is drawn of an area that is a part of a street.

    A closed way is a loop of a street unless it says that it is an area; a relation always is one.
    """
    highway = tags.get("highway")
    is_area = not from_way or tags.get("area") == "yes"
    if highway in ("pedestrian", "service", "footway") and is_area:
        kind = "pedestrian" if highway == "footway" else highway
        yield Drawn("street_polygons", 12, {"kind": kind}, pixels=12)
        if named := names(tags):
            yield Drawn(
                "streets_polygons_labels", 14, {"kind": kind, **named}, pixels=400, as_point=True
            )
    if tags.get("aeroway") in ("runway", "taxiway", "apron"):
        kind = "taxiway" if tags["aeroway"] == "apron" else tags["aeroway"]
        yield Drawn("street_polygons", 11, {"kind": kind}, pixels=12)
    if tags.get("man_made") == "bridge":
        yield Drawn("bridges", 12, {"kind": "bridge"}, pixels=16)
    elif tags.get("man_made") in _PIERS:
        yield Drawn("pier_polygons", 12, {"kind": tags["man_made"]}, pixels=12)
    if tags.get("waterway") == "dam":
        yield Drawn("dam_polygons", 12, {"kind": "dam"}, pixels=12)
