"""A small invented town, written as an OpenStreetMap extract.

Sternwil lies in Liechtenstein: Hauptstrasse from west to east with houses, an interpolation line
and a bakery, Alte Gasse across, and the hamlet Hinterdorf.
"""

from __future__ import annotations

from pathlib import Path

import osmium
from osmium.osm.mutable import Node, Relation, Way

LAT, LON = 47.14, 9.52

_TAGS: dict[str, str] = {"addr:city": "Sternwil", "addr:postcode": "9999"}


def write_town(path: Path) -> Path:
    """Write the extract; return its path."""
    nodes: list[Node] = []
    ways: list[Way] = []

    def node(north: float, east: float, tags: dict[str, str] | None = None) -> int:
        number = len(nodes) + 1
        # One ten-thousandth of a degree is 11 m north, 7.6 m east.
        location = (LON + east * 1e-4, LAT + north * 1e-4)
        nodes.append(Node(id=number, version=1, location=location, tags=tags or {}))
        return number

    def way(members: list[int], tags: dict[str, str]) -> int:
        number = 1000 + len(ways)
        ways.append(Way(id=number, version=1, nodes=members, tags=tags))
        return number

    def house(north: float, east: float, number: str, street: str, **tags: str) -> int:
        return node(
            north, east, {"addr:housenumber": number, "addr:street": street, **_TAGS, **tags}
        )

    node(0, 0, {"place": "town", "name": "Sternwil", "name:fr": "Étoileville"})
    node(60, 60, {"place": "hamlet", "name": "Hinterdorf"})
    corners = [node(-90, -90), node(-90, 90), node(90, 90), node(90, -90)]
    outline = way([*corners, corners[0]], {})
    street = [node(0, east) for east in range(-40, 81, 10)]
    way(street, {"highway": "residential", "name": "Hauptstrasse", "name:fr": "Rue Principale"})
    way([street[4], node(20, 0), node(40, 0)], {"highway": "residential", "name": "Alte Gasse"})
    house(2, -35, "1", "Hauptstrasse")
    house(2, -25, "3 a", "Hauptstrasse")
    house(2, -15, "5;7", "Hauptstrasse")
    first = house(-2, 10, "10", "Hauptstrasse")
    last = house(-2, 30, "20", "Hauptstrasse")
    way([first, last], {"addr:interpolation": "even"})
    house(30, 1, "3", "Alte Gasse")
    house(10, 1, "1", "Alte Gasse", shop="bakery", name="Bäckerei Süß")
    boundary = Relation(
        id=1,
        version=1,
        members=[("w", outline, "outer")],
        tags={
            "type": "boundary",
            "boundary": "administrative",
            "admin_level": "8",
            "name": "Sternwil",
        },
    )
    path.unlink(missing_ok=True)
    with osmium.SimpleWriter(path) as writer:
        for point in nodes:
            writer.add_node(point)
        for line in ways:
            writer.add_way(line)
        writer.add_relation(boundary)
    return path
