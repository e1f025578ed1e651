"""Export of all fixes of devices to files in common formats.

Rows are written as they are read, one device and day (or compacted month) after the other. So a
year takes no more memory than a month. Each day is a segment of its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import IO, Any, Final, Protocol
from xml.sax.saxutils import escape

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark.fixes.schema import DAY_MS, HISTORY_SCHEMA
from waylog.history.history_reader import HistoryReader, device_runs

_ATTEMPTS: Final = 3


class TrackWriter(Protocol):
    """A writer of the days of devices; the days of a device are consecutive."""

    def begin(self, device: str) -> None:
        """Start a device; the following days belong to it."""

    def day(self, rows: pa.Table) -> None:
        """Write one day of HISTORY_SCHEMA rows, ascending by time; never empty."""

    def end(self) -> None:
        """End the device."""

    def close(self) -> None:
        """End the file."""


def devices_of(reader: HistoryReader, user: str) -> list[str]:
    """Return the devices of a user that occur in the history."""
    found: set[str] = set()
    for file in reader.files():
        with reader.storage.open_input(file.path) as stream:
            parquet = pq.ParquetFile(stream, read_dictionary=["device"])
            runs = device_runs(parquet)
            if runs is not None:
                found.update(run.device for run in runs)
            else:
                for batch in parquet.iter_batches(columns=["device"], use_threads=False):
                    found.update(batch["device"].dictionary.to_pylist())
    return sorted(device for device in found if device.startswith(f"{user}/"))


def days_of(reader: HistoryReader, device: str, from_ms: int, to_ms: int) -> Iterator[pa.Table]:
    """Yield the fixes of a device with from_ms <= time <= to_ms, day by day."""
    for period in reader.periods():
        rows = _period(reader, period, device, from_ms, to_ms)
        days = np.floor_divide(rows["time"].to_numpy(), DAY_MS)
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), rows.num_rows]
        for start, stop in pairwise(cuts):
            if start < stop:
                yield rows.slice(start, stop - start)


def _period(reader: HistoryReader, period: str, device: str, from_ms: int, to_ms: int) -> pa.Table:
    for attempt in range(_ATTEMPTS):
        try:
            batches = [
                _own(batch, device, from_ms, to_ms) for batch in reader.scan(period, [device])
            ]
            table = pa.Table.from_batches(batches, HISTORY_SCHEMA)
            return table.sort_by([("time", "ascending"), ("kafka_offset", "ascending")])
        except FileNotFoundError:
            # A compaction has replaced files since the reader listed them.
            if attempt == _ATTEMPTS - 1:
                raise
            reader.refresh()
    raise AssertionError


def _own(batch: pa.RecordBatch, device: str, from_ms: int, to_ms: int) -> pa.RecordBatch:
    within = pc.and_(pc.greater_equal(batch["time"], from_ms), pc.less_equal(batch["time"], to_ms))
    own = batch.filter(pc.and_(pc.equal(batch["device"], device), within))
    return own.select(HISTORY_SCHEMA.names).cast(HISTORY_SCHEMA)


def export(
    reader: HistoryReader, devices: Sequence[str], writer: TrackWriter, from_ms: int, to_ms: int
) -> int:
    """Write all fixes of some devices; return their number."""
    count = 0
    for device in devices:
        writer.begin(device)
        for rows in days_of(reader, device, from_ms, to_ms):
            writer.day(rows)
            count += rows.num_rows
        writer.end()
    writer.close()
    return count


def _iso(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class GpxWriter:
    """GPX 1.1: one track per device, one segment per day.

    Speed and course are in TrackPointExtension v2.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._write = stream.write
        self._write(
            b'<?xml version="1.0" encoding="UTF-8"?>\n'
            b'<gpx version="1.1" creator="Waylog" xmlns="http://www.topografix.com/GPX/1/1" '
            b'xmlns:gpxtpx="http://www.garmin.com/xmlschemas/TrackPointExtension/v2">\n'
        )

    def begin(self, device: str) -> None:
        """Open the device's track."""
        self._write(f"<trk><name>{escape(device)}</name>\n".encode())

    def day(self, rows: pa.Table) -> None:
        """Write one segment."""
        lines = ["<trkseg>"]
        for row in rows.select(["time", "lat", "lon", "altitude", "speed", "course"]).to_pylist():
            elevation = "" if row["altitude"] is None else f"<ele>{row['altitude']:g}</ele>"
            measured = "".join(
                f"<gpxtpx:{name}>{row[name]:g}</gpxtpx:{name}>"
                for name in ("speed", "course")
                if row[name] is not None
            )
            if measured:
                measured = (
                    "<extensions><gpxtpx:TrackPointExtension>"
                    f"{measured}</gpxtpx:TrackPointExtension></extensions>"
                )
            lines.append(
                f'<trkpt lat="{row["lat"]:.7f}" lon="{row["lon"]:.7f}">'
                f"{elevation}<time>{_iso(row['time'])}</time>{measured}</trkpt>"
            )
        lines.append("</trkseg>\n")
        self._write("\n".join(lines).encode())

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
        self._write(
            b'<?xml version="1.0" encoding="UTF-8"?>\n'
            b'<kml xmlns="http://www.opengis.net/kml/2.2" '
            b'xmlns:gx="http://www.google.com/kml/ext/2.2"><Document>\n'
        )

    def begin(self, device: str) -> None:
        """Open the device's folder."""
        self._write(f"<Folder><name>{escape(device)}</name>\n".encode())

    def day(self, rows: pa.Table) -> None:
        """Write one track."""
        times = rows["time"].to_pylist()
        lines = [f"<Placemark><name>{_iso(times[0])[:10]}</name><gx:Track>"]
        lines += [f"<when>{_iso(time)}</when>" for time in times]
        lines += [
            f"<gx:coord>{lon:.7f} {lat:.7f} {altitude or 0:g}</gx:coord>"
            for lat, lon, altitude in zip(
                *(rows[name].to_pylist() for name in ("lat", "lon", "altitude")), strict=True
            )
        ]
        lines.append("</gx:Track></Placemark>\n")
        self._write("\n".join(lines).encode())

    def end(self) -> None:
        """Close the folder."""
        self._write(b"</Folder>\n")

    def close(self) -> None:
        """Close the document."""
        self._write(b"</Document></kml>\n")


class GeoJsonWriter:
    """GeoJSON (RFC 7946): one feature per device and day, with its times in `coordTimes`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._write = stream.write
        self._device = ""
        self._separator = b"\n"
        self._write(b'{"type":"FeatureCollection","features":[')

    def begin(self, device: str) -> None:
        """Set the device of the next features."""
        self._device = device

    def day(self, rows: pa.Table) -> None:
        """Write one feature; a single point is a Point (section 3.1.4)."""
        values = (rows[name].to_pylist() for name in ("lat", "lon", "altitude"))
        coordinates = [
            [lon, lat] if altitude is None else [lon, lat, altitude]
            for lat, lon, altitude in zip(*values, strict=True)
        ]
        single = len(coordinates) == 1
        feature: dict[str, Any] = {
            "type": "Feature",
            "geometry": {
                "type": "Point" if single else "LineString",
                "coordinates": coordinates[0] if single else coordinates,
            },
            "properties": {
                "device": self._device,
                "coordTimes": [_iso(time) for time in rows["time"].to_pylist()],
                "accuracies": rows["accuracy"].to_pylist(),
                "speeds": rows["speed"].to_pylist(),
            },
        }
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
        self._names = [name for name in HISTORY_SCHEMA.names if not name.startswith("kafka_")]
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
            columns[index] = [_iso(time) for time in rows[self._names[index]].to_pylist()]
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
    """Parquet with all members of a fix, with the schema of the history."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._writer = pq.ParquetWriter(stream, HISTORY_SCHEMA, compression="zstd")

    def begin(self, device: str) -> None:
        """Do nothing: each row has its device."""

    def day(self, rows: pa.Table) -> None:
        """Write one day's rows."""
        self._writer.write_table(rows)

    def end(self) -> None:
        """Do nothing: the format has no element for a device."""

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


WRITERS: Final[dict[str, Callable[[IO[bytes]], TrackWriter]]] = {
    "geojson": GeoJsonWriter,
    "gpx": GpxWriter,
    "kml": KmlWriter,
    "csv": CsvWriter,
    "parquet": ParquetWriter,
}
