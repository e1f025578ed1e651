"""A batch job for topology `trips`: a search for stays over each track of the history."""

from __future__ import annotations

from typing import Any

import duckdb

from tests.consumers.streams.trips.truth import Spot, comparable, trips


def trips_of(history: duckdb.DuckDBPyConnection, zone: str) -> dict[str, Any]:
    """Return for each device its trips and the totals of its days, as `comparable` does."""
    rows = history.execute(
        "select device, moment, lat, lon, coalesce(accuracy, 10) as accuracy from taken "
        "where coalesce(accuracy, 10) between 0 and 100 order by device, moment"
    ).fetchall()
    tracks: dict[str, list[Spot]] = {}
    for device, *spot in rows:
        tracks.setdefault(device, []).append(Spot(*spot))
    return {device: comparable(trips(spots, zone)) for device, spots in tracks.items()}
