"""An invented town as an OpenStreetMap extract: streets, houses, areas and other objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import osmium
from osmium.osm.mutable import Node, Relation, Way

STEP = 0.001  # degrees between two streets
STREETS = 12
WEST, SOUTH = 9.5, 47.1


class _Ids:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.ways: list[Way] = []
        self.relations: list[Relation] = []

    def node(self, lon: float, lat: float, **tags: str) -> int:
        number = len(self.nodes) + 1
        self.nodes.append(
            Node(id=number, version=1, location=(round(lon, 7), round(lat, 7)), tags=_tags(tags))
        )
        return number

    def way(self, nodes: list[int], **tags: str) -> int:
        number = len(self.ways) + 1
        self.ways.append(Way(id=number, version=1, nodes=nodes, tags=_tags(tags)))
        return number

    def box(self, west: float, south: float, east: float, north: float, **tags: str) -> int:
        corners = [(west, south), (east, south), (east, north), (west, north)]
        nodes = [self.node(*corner) for corner in corners]
        return self.way([*nodes, nodes[0]], **tags)


def _tags(tags: dict[str, str]) -> dict[str, str]:
    return {key.replace("__", ":"): value for key, value in tags.items()}


def write_extract(
    path: Path,
    *,
    town: str = "Musterstadt",
    west: float = WEST,
    header: Mapping[str, str] | None = None,
) -> None:
    """Write the extract; the same arguments give the same file. `header` has its options."""
    ids = _Ids()
    end = STREETS * STEP
    for row in range(STREETS):
        lat = SOUTH + row * STEP
        nodes = [ids.node(west + column * STEP, lat) for column in range(STREETS + 1)]
        ids.way(nodes, highway="residential", name=f"{row}. Querstraße", name__fr=f"Rue {row}")
        for column in range(STREETS):
            lon = west + (column + 0.5) * STEP
            if (row + column) % 3 == 0:
                tags = {"addr__housenumber": str(column + 1), "addr__street": f"{row}. Querstraße"}
                ids.node(lon, lat + 1.5e-4, **tags)
            elif (row + column) % 3 == 1:
                ids.box(
                    lon - 1e-4, lat + 1e-4, lon + 1e-4, lat + 2e-4, building="yes",
                    addr__housenumber=str(column + 1), addr__street=f"{row}. Querstraße",
                )  # fmt: skip
            else:
                ids.node(lon, lat + 1e-4, amenity="cafe", name=f"Café {row}/{column}")
    ends = [
        ids.node(west + share * end, SOUTH - STEP, addr__housenumber=number, addr__street="Am Rand")
        for share, number in ((0.0, "2"), (1.0, "40"))
    ]
    ids.way(ends, addr__interpolation="even")
    edge = [ids.node(west + share * end, SOUTH - 1.2 * STEP) for share in (0.0, 0.5, 1.0)]
    ids.way(edge, highway="tertiary", name="Am Rand")
    ids.node(west + end / 2, SOUTH + end / 2, place="town", name=town, population="12000")
    ids.node(west + end / 4, SOUTH + end / 4, place="suburb", name="Altstadt")
    ids.node(west + 3 * end, SOUTH + 3 * end, place="hamlet", name="Weiler")
    for level, margin, name in (("8", 0.01, town), ("6", 0.05, "Musterkreis")):
        outer = ids.box(west - margin, SOUTH - margin, west + end + margin, SOUTH + end + margin)
        ids.relations.append(
            Relation(
                id=len(ids.relations) + 1, version=1, members=[("w", outer, "outer")],
                tags={"type": "boundary", "boundary": "administrative", "admin_level": level,
                      "name": name},
            )
        )  # fmt: skip
    path.unlink(missing_ok=True)
    head = osmium.io.Header()
    head.add_box(osmium.osm.Box(west - 0.06, SOUTH - 0.06, west + end + 0.06, SOUTH + end + 0.06))
    for name, value in (header or {}).items():
        head.set(name, value)
    with osmium.SimpleWriter(str(path), header=head) as writer:
        for node in ids.nodes:
            writer.add_node(node)
        for way in ids.ways:
            writer.add_way(way)
        for relation in ids.relations:
            writer.add_relation(relation)
