"""Shapes read from an index equal those of the extract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import osmium
import pytest
import shapely
from osmium.osm.mutable import Node, Way
from shapely.geometry import shape

from geoservice.importer.build import build_index
from geoservice.index.street_shapes import simplified
from geoservice.reverse.geocoder import Geocoder
from geoservice.web.formats.described import Details
from geoservice.web.nominatim import render_list

LAT, LON = 47.14, 9.52

_STREET = [(LON + 1e-4 * step, LAT + (5e-5 if step % 2 else 0.0)) for step in range(40)]
_OUTLINE = [(0, 20), (3, 20), (3, 23), (0, 23), (0, 20)]


@pytest.fixture(scope="module")
def geocoder(tmp_path_factory: pytest.TempPathFactory) -> Geocoder:
    directory: Path = tmp_path_factory.mktemp("shapes")
    outline = [(LON + 1e-4 * x, LAT + 1e-4 * y) for x, y in _OUTLINE]
    with osmium.SimpleWriter(directory / "shapes.osm.pbf") as writer:
        for number, location in enumerate(_STREET + outline[:-1] + [(LON, LAT + 0.01)], start=1):
            tags = {"place": "village", "name": "Ort"} if number == len(_STREET) + 5 else {}
            writer.add_node(Node(id=number, version=1, location=location, tags=tags))
        nodes = list(range(1, len(_STREET) + 1))
        street = {"highway": "residential", "name": "Gasse"}
        writer.add_way(Way(id=1, version=1, nodes=nodes, tags=street))
        corners = [len(_STREET) + 1 + place % 4 for place in range(5)]
        house = {"building": "yes", "addr:housenumber": "1", "addr:street": "Gasse"}
        writer.add_way(Way(id=2, version=1, nodes=corners, tags=house))
    build_index([directory / "shapes.osm.pbf"], directory / "shapes.geo")
    return Geocoder.open(directory / "shapes.geo")


def geometry(geocoder: Geocoder, osm_type: str, osm_id: int) -> Any:
    [place] = geocoder.lookup(osm_type, osm_id)
    return geocoder.geometry(place)


def test_a_street_is_its_line_although_it_was_cut(geocoder: Geocoder) -> None:
    line = geometry(geocoder, "way", 1)
    assert line["type"] == "LineString"
    assert line["coordinates"] == [pytest.approx(point, abs=1e-7) for point in _STREET]


def test_a_house_is_its_outline(geocoder: Geocoder) -> None:
    outline = shape(geometry(geocoder, "way", 2))
    expected = shapely.Polygon([(LON + 1e-4 * x, LAT + 1e-4 * y) for x, y in _OUTLINE])
    assert outline.symmetric_difference(expected).area < 1e-12


def test_a_node_has_only_its_point(geocoder: Geocoder) -> None:
    [place] = geocoder.lookup("node", len(_STREET) + 5)
    assert geocoder.geometry(place) is None
    written = render_list(geocoder, [place], "geojson", Details(geojson=True))
    assert b'"geometry":{"type":"Point","coordinates":[9.52,47.15]}' in written


def test_a_threshold_leaves_points_out(geocoder: Geocoder) -> None:
    line = geometry(geocoder, "way", 1)
    simple = simplified(line, 1e-4)
    assert simple["type"] == "LineString"
    assert len(simple["coordinates"]) < 5
    [place] = geocoder.lookup("way", 1)
    written = render_list(
        geocoder, [place], "jsonv2", Details(geojson=True, geojson_threshold=1e-4)
    )
    assert written.count(b",9.5") + written.count(b"[9.5") < 10
