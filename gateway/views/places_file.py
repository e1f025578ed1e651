"""`python -m gateway.views.places_file WHERE [homes]`: prints favourite places, or homes, as JSON.

The places are grouped by user. WHERE is a local file, or the URL of a remote folder, which need not
have any places yet.

It is a separate process because reading Parquet takes as much memory as a gateway, and is needed
once a day.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

FILE_NAME: Final = "places.parquet"
COLUMNS: Final = (
    *("user", "device", "place_id", "lat", "lon", "label", "name"),
    *("visits", "dwell_s", "address", "radius_m", "first", "last", "named_by"),
    *("confidence", "roles"),
)


_OF_HOMES: Final = ("user", "device", "place_id", "lat", "lon", "label", "dwell_s")


def _rows(where: str) -> list[dict[str, Any]]:
    from pyarrow import parquet

    if urlsplit(where).scheme in ("", "file"):
        # Not memory-mapped: the job replaces the file.
        with Path(where).open("rb") as file:
            rows: list[dict[str, Any]] = parquet.read_table(file, use_threads=False).to_pylist()
        return rows
    # Imported late: the gateway imports this module, but does not need the code that reads Parquet.
    from waylog.history.storage import Storage

    storage = Storage(where)
    if not storage.exists(FILE_NAME):
        return []
    rows = storage.read_parquet(FILE_NAME).to_pylist()
    return list(rows)


def read(where: str, *, homes_only: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Return the places of each user, those with the most time spent there first."""
    rows = _rows(where)
    by_user: dict[str, list[dict[str, Any]]] = {}
    columns = _OF_HOMES if homes_only else COLUMNS
    for row in rows:
        if homes_only and row.get("label") != "home":
            continue
        place = {name: row.get(name) for name in columns}
        by_user.setdefault(str(place["user"]), []).append(place)
    for places in by_user.values():
        places.sort(key=lambda place: (-(place["dwell_s"] or 0), str(place["place_id"])))
    return by_user


if __name__ == "__main__":
    try:
        json.dump(read(sys.argv[1], homes_only="homes" in sys.argv[2:]), sys.stdout)
        sys.stdout.flush()
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
    # Arrow's threads that are still starting while the interpreter shuts down abort the process.
    # All output is written, so it exits without that.
    os._exit(0)
