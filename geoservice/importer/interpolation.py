"""House numbers interpolated along a way between two houses that are mapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import shapely
from shapely.ops import substring

from geoservice.importer.postcodes import read_postcode
from geoservice.importer.reading import Interpolation
from geoservice.importer.rows import DEGREE, NODE

if TYPE_CHECKING:
    from geoservice.importer.addressing import AddressedStreet, Tile
    from geoservice.importer.row_attributes import RowAttributes

_NUMBER_DIGITS_MAX: Final = 6
_NODE_DEGREES: Final = 0.0005


@dataclass(frozen=True)
class Interpolated:
    """The stretch between two mapped houses, without these."""

    osm_id: int
    first: int
    last: int
    step: int
    geometry: Any
    middle: Any
    street: AddressedStreet
    postcode: str | None


def place_interpolations(
    tile: Tile, survey: RowAttributes, box: tuple[int, int, int, int]
) -> Iterator[Interpolated]:
    """Yield the stretches of the ways whose middle is in the tile."""
    west, south, east, north = (edge / DEGREE for edge in box)
    for interpolation in survey.source.interpolations.values():
        middle = shapely.line_interpolate_point(interpolation.geometry, 0.5, normalized=True)
        if not (west <= middle.x < east and south <= middle.y < north):
            continue
        step = _step(interpolation.type)
        if step is None:
            continue
        numbers = _numbered_nodes(survey, interpolation)
        address = dict(interpolation.address)
        if "street" not in address and "place" not in address:
            for _, _, node_address in numbers:
                if "street" in node_address or "place" in node_address:
                    address = {**node_address, **address}
                    break
        street = tile.street_of_line(interpolation.geometry, middle, address)
        if street is not None:
            yield from _stretches(interpolation, step, numbers, street)


def _step(kind: str) -> int | None:
    if kind in ("odd", "even"):
        return 2
    if kind == "all":
        return 1
    return int(kind) if len(kind) == 1 and kind in "123456789" else None


def _numbered_nodes(
    survey: RowAttributes, interpolation: Interpolation
) -> list[tuple[int | None, Any, dict[str, str]]]:
    """Return (number, point, address) of the nodes that are places, in the order of the way."""
    rows = survey.source.rows
    is_node = np.flatnonzero(rows.osm_type == NODE)
    ids = rows.osm_id[is_node]
    found: list[tuple[int | None, Any, dict[str, str]]] = []
    for node in interpolation.nodes:
        first, last = np.searchsorted(ids, [node, node + 1]).tolist()
        if first == last:
            continue
        row = int(is_node[first])
        address = rows.tags(row).address
        text = address.get("housenumber", "")
        number = None
        if text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX:
            number = int(text)
        point = shapely.Point(rows.lon[row] / DEGREE, rows.lat[row] / DEGREE)
        found.append((number, point, address))
    return found


def _stretches(
    interpolation: Interpolation,
    step: int,
    nodes: list[tuple[int | None, Any, dict[str, str]]],
    street: AddressedStreet,
) -> Iterator[Interpolated]:
    line = interpolation.geometry
    remaining: tuple[float, float] = (0.0, 1.0)
    previous: int | None = None
    previous_postcode: str | None = None
    for number, point, address in nodes:
        if number is None or shapely.distance(line, point) >= _NODE_DEGREES:
            continue
        start, end = remaining
        split = float(shapely.line_locate_point(line, point, normalized=True))
        stretch: Any = None
        if previous is not None and split > start:
            stretch = substring(line, start, min(split, end), normalized=True)
        remaining = (max(split, start), end)
        if (
            previous is not None
            and stretch is not None
            and stretch.geom_type == "LineString"
            and abs(previous - number) > step
        ):
            postcode = previous_postcode or _postcode(street, address) or street.postcode
            interpolated = _inner(interpolation, step, previous, number, stretch, street, postcode)
            if interpolated is not None:
                yield interpolated
        previous = number
        previous_postcode = _postcode(street, address)
        if split >= 1.0:
            return


def _postcode(street: AddressedStreet, address: dict[str, str]) -> str | None:
    text = address.get("postcode")
    return read_postcode(street.country, text) if text is not None else None


def _inner(
    interpolation: Interpolation,
    step: int,
    previous: int,
    number: int,
    stretch: Any,
    street: AddressedStreet,
    postcode: str | None,
) -> Interpolated | None:
    if previous > number:
        previous, number = number, previous
        stretch = shapely.reverse(stretch)
    if interpolation.type in ("odd", "even"):
        first = previous + 1
        wrong = first % 2 - (1 if interpolation.type == "odd" else 0)
        first += abs(wrong)
    else:
        first = previous + step
    last = first + (number - 1 - first) // step * step
    if last < first:
        return None
    span = number - previous
    geometry = substring(
        stretch, (first - previous) / span, (last - previous) / span, normalized=True
    )
    if geometry.geom_type != "LineString":
        x, y = geometry.x, geometry.y
        geometry = shapely.LineString([(x, y), (x, y)])
    middle = shapely.Point(shapely.get_coordinates(geometry).mean(axis=0))
    return Interpolated(interpolation.osm_id, first, last, step, geometry, middle, street, postcode)
