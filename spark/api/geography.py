"""Cells and addresses of positions, as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

# Spark reads the annotations of a function to know what it takes.
import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_type

from spark.api.columns import is_point
from spark.api.positions import ADDRESS, ADDRESS_ZOOM
from spark.api.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import Column

_WORK: Final = "spark.api.positions"
_RESOLUTION_MAX: Final = 15
_ZOOM_MIN: Final = 3


def h3_cell(lat: Column | str, lon: Column | str, resolution: int = 9) -> Column:
    """Return the H3 cell of each position as text, as in the heat map of `waylog fleet`.

    `resolution` is 0 to 15; a cell of 9 has edges of some 200 m. Null for what is no point on
    earth. Raises ValueError for another resolution.
    """
    if not 0 <= resolution <= _RESOLUTION_MAX:
        raise ValueError(f"resolution {resolution}: H3 has 0 to {_RESOLUTION_MAX}")
    return _of_points("h3_cells", "string", lat, lon, resolution).alias("h3_cell")


def reverse_geocode(
    lat: Column | str,
    lon: Column | str,
    index: str | None = None,
    *,
    zoom: int = ADDRESS_ZOOM,
    languages: Sequence[str] = (),
) -> Column:
    """Return the address of each position, out of an index file and without any service.

    A struct: `display_name`, `name`, `category` and `type` (main tag in OpenStreetMap, such as
    `highway` and `residential`), `distance` (m, null for a country alone), `timezone` (where the
    index knows it) and `address`, a map with Nominatim's keys (`road`, `city`, `country_code`).
    Null at sea and for what is no point on earth.

    `index` is a file that `waylog geo import` has made, by default the towns of the embedded world:
    a path that is the same on all machines, or one in what `addFile`, `addArchive`, `--files` or
    `--archives` has shipped (`geo/germany.idx` in an archive shipped as `geo.zip#geo`). Each Python
    worker maps the file once; its pages are shared by all workers of a machine. `zoom` is
    Nominatim's level of detail, 3 for the country alone; `languages` the preferred ones of names.
    """
    if not _ZOOM_MIN <= zoom <= ADDRESS_ZOOM:
        raise ValueError(f"zoom {zoom}: {_ZOOM_MIN} (country) to {ADDRESS_ZOOM} (building)")
    if isinstance(languages, str):
        raise ValueError(f"languages={languages!r}: give a list, such as [{languages!r}]")
    return _of_points(
        "addresses", from_arrow_type(ADDRESS), lat, lon, index, zoom, tuple(languages)
    ).alias("address")


def _of_points(
    name: str, kind: Any, lat: Column | str, lon: Column | str, *arguments: object
) -> Column:
    work = in_worker(_WORK, name, *arguments)

    def of_points(lat: pa.Array, lon: pa.Array) -> pa.Array:
        return work(lat, lon)

    # It is what query plans show.
    of_points.__name__ = name
    function: Callable[..., Column] = sf.arrow_udf(of_points, kind)  # type: ignore[attr-defined]
    north, east = _degrees(lat), _degrees(lon)
    known = is_point(north, east)
    return function(sf.when(known, north), sf.when(known, east))


def _degrees(column: Column | str) -> Column:
    return (sf.col(column) if isinstance(column, str) else column).cast("double")
