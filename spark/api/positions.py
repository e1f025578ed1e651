"""The part of the functions for columns of positions that runs in Python workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.api.geocoders import open_geocoder

if TYPE_CHECKING:
    from geoservice.reverse.geocoder import Place

#: Nominatim's finest level of detail.
ADDRESS_ZOOM: Final = 18

#: What `reverse_geocode` returns.
ADDRESS: Final = pa.struct(
    [
        pa.field("display_name", pa.string()),
        pa.field("name", pa.string()),
        pa.field("category", pa.string()),
        pa.field("type", pa.string()),
        pa.field("distance", pa.float64()),
        pa.field("timezone", pa.string()),
        pa.field("address", pa.map_(pa.string(), pa.string())),
    ]
)


def h3_cells(lat: pa.Array, lon: pa.Array, resolution: int) -> pa.Array:
    """Return H3 cells as text, null for null."""
    from h3.api.basic_str import latlng_to_cell

    return pa.array(
        [
            None if north is None else latlng_to_cell(north, east, resolution)
            for north, east in zip(lat.to_pylist(), lon.to_pylist(), strict=True)
        ],
        pa.string(),
    )


def addresses(
    lat: pa.Array, lon: pa.Array, index: str | None, zoom: int, languages: tuple[str, ...]
) -> pa.Array:
    """Return addresses as ADDRESS, null for null and where there is no place."""
    geocoder = open_geocoder(index)
    known = pc.is_valid(lat)
    results = geocoder.reverse_batch(
        lat.filter(known).to_numpy(), lon.filter(known).to_numpy(), zoom=zoom, languages=languages
    )
    # Neighbours in time are mostly at the same place: what a place has is converted once.
    numbers: dict[int, int] = {}
    places: list[Place] = []
    rows = np.full(len(lat), -1, np.int64)
    metres = np.full(len(lat), np.nan)
    for row, result in zip(np.flatnonzero(known.to_numpy(False)).tolist(), results, strict=True):
        place = result.place
        if place is None:
            continue
        number = numbers.get(id(place))
        if number is None:
            number = numbers[id(place)] = len(places)
            places.append(place)
        rows[row] = number
        if result.distance is not None:
            metres[row] = result.distance
    taken = pa.array(rows, mask=rows < 0)
    columns: dict[str, Any] = {
        field.name: _column(places, field).take(taken)
        for field in ADDRESS
        if field.name != "distance"
    }
    columns["distance"] = pa.array(metres, mask=np.isnan(metres))
    return pa.StructArray.from_arrays(
        [columns[field.name] for field in ADDRESS],
        fields=list(ADDRESS),
        mask=pa.array(rows < 0),
    )


def _column(places: list[Place], field: pa.Field) -> pa.Array:
    values = [getattr(place, field.name) for place in places]
    if pa.types.is_map(field.type):
        values = [list(address.items()) for address in values]
    return pa.array(values, field.type)
