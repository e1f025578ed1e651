"""Real tracks: those of GeoLife, which are not part of the project."""

from __future__ import annotations

import gzip
from datetime import datetime
from itertools import islice
from pathlib import Path

import pytest

from tests.consumers.streams.harness import BEGIN, make_fix
from waylog.messages import Fix

GEOLIFE = Path(__file__).parents[4] / "shared/data/tracks/geolife_dev.csv.gz"


def geolife(fixes_max: int, users: tuple[str, ...] = (), *, every: int = 1) -> dict[str, list[Fix]]:
    """Return fixes of each device, in the order of time; skips the test without the file."""
    if not GEOLIFE.exists():
        pytest.skip(f"needs GeoLife tracks (uid,lat,lon,alt_ft,ts) in {GEOLIFE}")
    tracks: dict[str, list[Fix]] = {}
    with gzip.open(GEOLIFE, "rt") as lines:
        next(lines)
        for line in islice(lines, 0, None, every):
            user, lat, lon, _, moment = line.split(",")
            if users and user not in users:
                continue
            device = f"u{user}/phone"
            own = tracks.setdefault(device, [])
            if len(own) < fixes_max:
                time = datetime.fromisoformat(moment.strip()).timestamp() - BEGIN / 1000
                own.append(make_fix(time, float(lat), float(lon), device=device))
    return tracks
