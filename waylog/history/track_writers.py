"""The formats of exported fixes; each day of a device is a segment of its own."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import IO, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from waylog.history.row_layout import DATE, STORED_SCHEMA, to_stored
from waylog.messages import Fix
from waylog.track_elements import (
    GPX_HEAD,
    KML_HEAD,
    PLURALS,
    Place,
    geojson_feature,
    gpx_point,
    gpx_track,
    kml_track,
    xml_text,
)

#: Two fixes that are farther apart in degrees of longitude have the antimeridian between them.
_HALF_TURN: Final = 180.0


class TrackWriter(Protocol):
    """A writer of the days of devices; the days of a device are consecutive."""

    def begin(self, device: str) -> None:
        """Start a device; the following days belong to it."""

    def day(self, rows: pa.Table) -> None:
        """Write one day's rows, ascending by time; never empty.

        The columns are the members of waylog.messages.Fix, times in ms, attributes as JSON text.
        """

    def end(self) -> None:
        """End the device."""

    def close(self) -> None:
        """End the file."""


def _iso(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _more(rows: pa.Table) -> dict[str, list[Any]]:
    """Return what the fixes have beyond place, time and altitude, by column."""
    more: dict[str, list[Any]] = {name: rows[name].to_pylist() for name in PLURALS}
    more["attributes"] = [
        None if text is None else msgspec.json.decode(text) for text in more["attributes"]
    ]
    return more


def _places(rows: pa.Table) -> list[Place]:
    columns = (rows[name].to_pylist() for name in ("lat", "lon", "altitude"))
    return list(zip(*columns, strict=True))


def _times(rows: pa.Table) -> list[str]:
    return [_iso(time) for time in rows["time"].to_pylist()]


class GpxWriter:
    """GPX 1.1: one track per device, one segment per day."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._write = stream.write
        self._write(GPX_HEAD.encode())

    def begin(self, device: str) -> None:
        """Open the device's track."""
        self._write(f"{gpx_track(device)}\n".encode())

    def day(self, rows: pa.Table) -> None:
        """Write one segment."""
        more = _more(rows)
        each = zip(_times(rows), _places(rows), *more.values(), strict=True)
        points = [
            gpx_point(time, place, dict(zip(more, values, strict=True)))
            for time, place, *values in each
        ]
        self._write("\n".join(["<trkseg>", *points, "</trkseg>\n"]).encode())

    def end(self) -> None:
        """Close the track."""
        self._write(b"</trk>\n")

    def close(self) -> None:
        """Close the document."""
        self._write(b"</gpx>\n")


class KmlWriter:
    """KML 2.2: one folder per device, one gx:Track per day."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._write = stream.write
        self._device = ""
        self._write(KML_HEAD.encode())

    def begin(self, device: str) -> None:
        """Open the device's folder."""
        self._device = device
        self._write(f"<Folder><name>{xml_text(device)}</name>\n".encode())

    def day(self, rows: pa.Table) -> None:
        """Write one track."""
        times = _times(rows)
        track = kml_track(self._device, times, _places(rows), _more(rows))
        self._write(f"<Placemark><name>{times[0][:10]}</name>{track}</Placemark>\n".encode())

    def end(self) -> None:
        """Close the folder."""
        self._write(b"</Folder>\n")

    def close(self) -> None:
        """Close the document."""
        self._write(b"</Document></kml>\n")


class GeoJsonWriter:
    """GeoJSON (RFC 7946): one feature per device and day, with its times in `coordTimes`.

    A day that crosses the antimeridian has one for each side of it (section 3.1.9). No point is
    made where it crosses: each is a fix.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._write = stream.write
        self._device = ""
        self._separator = b"\n"
        self._write(b'{"type":"FeatureCollection","features":[')

    def begin(self, device: str) -> None:
        """Set the device of the next features."""
        self._device = device

    def day(self, rows: pa.Table) -> None:
        """Write one feature, or more if the day crosses the antimeridian."""
        lons = rows["lon"].to_numpy()
        crossings = (np.flatnonzero(np.abs(np.diff(lons)) > _HALF_TURN) + 1).tolist()
        for start, stop in pairwise([0, *crossings, len(lons)]):
            self._feature(rows.slice(start, stop - start))

    def _feature(self, rows: pa.Table) -> None:
        coordinates = [
            [lon, lat] if altitude is None else [lon, lat, altitude]
            for lat, lon, altitude in _places(rows)
        ]
        feature = geojson_feature(self._device, _times(rows), coordinates, _more(rows))
        self._write(self._separator + msgspec.json.encode(feature))
        self._separator = b",\n"

    def end(self) -> None:
        """Do nothing: the format has no element for a device."""

    def close(self) -> None:
        """Close the collection."""
        self._write(b"\n]}\n")


class CsvWriter:
    """CSV (RFC 4180): one line per fix, with all its members."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._names = list(Fix.__struct_fields__)
        self._rows([self._names])

    def _rows(self, rows: Sequence[Sequence[object]]) -> None:
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        self._stream.write(text.getvalue().encode())

    def begin(self, device: str) -> None:
        """Do nothing: each line has its device."""

    def day(self, rows: pa.Table) -> None:
        """Write one day's lines."""
        columns: list[list[object]] = [rows[name].to_pylist() for name in self._names]
        times = self._names.index("time"), self._names.index("received")
        for index in times:
            found = rows[self._names[index]].to_pylist()
            columns[index] = [None if time is None else _iso(time) for time in found]
        self._rows([[_harmless(value) for value in row] for row in zip(*columns, strict=True)])

    def end(self) -> None:
        """Do nothing: the format has no element for a device."""

    def close(self) -> None:
        """Do nothing: CSV has no end mark."""


def _harmless(value: object) -> object:
    # A spreadsheet interprets text that begins with these characters as a formula.
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@"}:
        return f"'{value}"
    return "" if value is None else value


class ParquetWriter:
    """Parquet with the columns of the history's files, as far as rows have them.

    All rows that it is given have the same schema.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._writer: pq.ParquetWriter | None = None

    def begin(self, device: str) -> None:
        """Do nothing: each row has its device."""

    def day(self, rows: pa.Table) -> None:
        """Write one day's rows."""
        if self._writer is None:
            self._writer = self._file(_stored_schema(rows.schema))
        self._writer.write_table(to_stored(rows, self._writer.schema))

    def end(self) -> None:
        """Do nothing: the format has no element for a device."""

    def close(self) -> None:
        """Write the footer."""
        if self._writer is None:
            self._writer = self._file(STORED_SCHEMA)
        self._writer.close()

    def _file(self, schema: pa.Schema) -> pq.ParquetWriter:
        return pq.ParquetWriter(self._stream, schema, compression="zstd")


def _stored_schema(rows: pa.Schema) -> pa.Schema:
    """Return the columns that rows have, and the date, as the history's files have them."""
    return pa.schema(
        [
            field if field.name == DATE else field.with_nullable(rows.field(field.name).nullable)
            for field in STORED_SCHEMA
            if field.name == DATE or field.name in rows.names
        ]
    )


WRITERS: Final[dict[str, Callable[[IO[bytes]], TrackWriter]]] = {
    "geojson": GeoJsonWriter,
    "gpx": GpxWriter,
    "kml": KmlWriter,
    "csv": CsvWriter,
    "parquet": ParquetWriter,
}
