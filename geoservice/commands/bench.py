"""Benchmark of lookups, in comparison with other common reverse geocoders.

It measures processor time on one core and keeps the best of several rounds. All subjects take turns
in the same run, so that load on the machine affects them equally. Points lie around objects of the
index.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import random
import re
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from geoservice.index.format import TOWN_COLUMNS
from geoservice.index.street_format import OBJECT_COLUMNS, OBJECTS
from geoservice.reverse.address_bytes import AddressBytes
from geoservice.reverse.geocoder import Geocoder

POINTS: Final = 20_000
ROUNDS: Final = 5
_JITTER_DEGREES: Final = 2e-4  # at most 22 m of latitude
_SINGLES: Final = 2_000
_HTTP_SINGLES: Final = 1_000
_HTTP_BATCH: Final = 100
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")

Points = tuple["array[float]", "array[float]"]


class Measured(msgspec.Struct):
    """One row of the result."""

    name: str
    cpu_us: float  # per point
    points: int  # per call
    note: str = ""

    @property
    def rate(self) -> float:
        """Points per second on one core."""
        return 1e6 / self.cpu_us


def measure(index: Path | None, nominatim: str | None = None) -> list[Measured]:
    """Measure all rows; `nominatim` is the address of a server with the same data.

    Raises IndexUnavailable.
    """
    geocoder = Geocoder.open(index)
    lats, lons = points_of(geocoder)
    subjects = [*_ours(geocoder), *_peers()]
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, size, call in subjects:
            count = POINTS if size > 1 else _SINGLES
            began = time.process_time()
            for start in range(0, count, size):
                call(lats[start : start + size], lons[start : start + size])
            used = (time.process_time() - began) * 1e6 / count
            best[name] = min(used, best.get(name, used))
    rows = [Measured(name, round(best[name], 3), size) for name, size, _ in subjects]
    rows += _over_http(index, lats, lons)
    if nominatim is not None:
        rows.append(_nominatim(nominatim, lats, lons))
    return rows


def points_of(geocoder: Geocoder) -> Points:
    """Return points around the objects, or around the towns of the world; the same each time."""
    columns: Sequence[str]
    if geocoder.streets is not None:
        table, columns = geocoder.index.integers(OBJECTS), OBJECT_COLUMNS
    else:
        table, columns = geocoder.index.towns, TOWN_COLUMNS
    width, at_lat, at_lon = len(columns), columns.index("lat"), columns.index("lon")
    chosen = random.Random(1)
    lats, lons = array("d"), array("d")
    for _ in range(POINTS):
        row = chosen.randrange(len(table) // width) * width
        lat = table[row + at_lat] / 1e7 + chosen.uniform(-1, 1) * _JITTER_DEGREES
        lon = table[row + at_lon] / 1e7 + chosen.uniform(-1, 1) * _JITTER_DEGREES
        lats.append(min(90.0, max(-90.0, lat)))
        lons.append(min(180.0, max(-180.0, lon)))
    return lats, lons


Subject = tuple[str, int, Callable[[Any, Any], object]]


def _ours(geocoder: Geocoder) -> Iterator[Subject]:
    addresses = AddressBytes(geocoder)
    yield "waylog: one point, result", 1, lambda lat, lon: geocoder.reverse(lat[0], lon[0])
    yield "waylog: batch, results", 1000, geocoder.reverse_batch
    yield "waylog: batch, finished address bytes", 1000, addresses.batch
    streets = geocoder.streets
    search: Callable[[Any, Any], object] = (
        streets.find_batch if streets is not None else geocoder.index.world.reverse_batch
    )
    yield "waylog: batch, the search alone", 1000, search


def _peers() -> Iterator[Subject]:
    """Yield reverse geocoders of PyPI that are installed. They know towns but no streets."""
    if importlib.util.find_spec("reverse_geocoder") is not None:
        import reverse_geocoder

        # Use one process, as our geocoder does.
        rg = reverse_geocoder.RGeocoder(mode=1, verbose=False)
        yield "reverse_geocoder: one point", 1, lambda lat, lon: rg.query([(lat[0], lon[0])])
        yield (
            "reverse_geocoder: batch",
            1000,
            lambda lat, lon: rg.query(list(zip(lat, lon, strict=True))),
        )
    if importlib.util.find_spec("reverse_geocode") is not None:
        import reverse_geocode

        yield (
            "reverse_geocode: one point",
            1,
            lambda lat, lon: reverse_geocode.get((lat[0], lon[0])),
        )
        yield (
            "reverse_geocode: batch",
            1000,
            lambda lat, lon: reverse_geocode.search(list(zip(lat, lon, strict=True))),
        )


def _over_http(index: Path | None, lats: Sequence[float], lons: Sequence[float]) -> list[Measured]:
    """Measure the server's processor time, without that of the client."""
    with _server(index) as (process, address):
        connection = http.client.HTTPConnection(address, timeout=60)

        def ask(method: str, path: str, body: bytes | None = None) -> None:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise RuntimeError(f"{path} was answered with {response.status}")

        paths = [f"/reverse?lat={lats[n]:.6f}&lon={lons[n]:.6f}" for n in range(_HTTP_SINGLES)]
        bodies = [
            msgspec.json.encode([[lats[n], lons[n]] for n in range(start, start + _HTTP_BATCH)])
            for start in range(0, POINTS, _HTTP_BATCH)
        ]
        rounds: dict[str, list[float]] = {"single": [], "batch": []}
        for _ in range(ROUNDS):
            began = _cpu_s(process.pid)
            for path in paths:
                ask("GET", path)
            middle = _cpu_s(process.pid)
            for body in bodies:
                ask("POST", "/reverse/batch", body)
            rounds["single"].append((middle - began) * 1e6 / len(paths))
            rounds["batch"].append((_cpu_s(process.pid) - middle) * 1e6 / POINTS)
        connection.close()
        resident = _resident_mb(process.pid)
    note = f"server: {resident:.0f} MB resident"
    return [
        Measured("waylog: GET /reverse", round(min(rounds["single"]), 1), 1, note),
        Measured("waylog: POST /reverse/batch", round(min(rounds["batch"]), 2), _HTTP_BATCH, note),
    ]


@contextmanager
def _server(index: Path | None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = ["geo", "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "waylog.cli", *words, *(["--index", str(index)] if index else [])],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if match := re.search(r"geocoder ready http=(\S+)", line):
                yield process, match[1]
                return
        raise RuntimeError("the server did not start")
    finally:
        process.terminate()
        process.communicate()


def _nominatim(url: str, lats: Sequence[float], lons: Sequence[float]) -> Measured:
    """Measure the elapsed time: the processor time of Nominatim's processes cannot be read here."""
    address = url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(address, timeout=60)
    count = 200
    began = time.monotonic()
    for n in range(count):
        path = f"/reverse?format=jsonv2&addressdetails=1&lat={lats[n]:.6f}&lon={lons[n]:.6f}"
        connection.request("GET", path)
        connection.getresponse().read()
    seconds = time.monotonic() - began
    connection.close()
    return Measured("Nominatim: GET /reverse", round(seconds * 1e6 / count, 1), 1, "by the clock")


def _cpu_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
