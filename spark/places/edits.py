"""Names and labels that users gave to places: topic `place-edit`, where the newest record wins.

An edit applies to the place with its id or, if there is none, to the nearest place within 100 m of
its position, so that it survives new computations of places.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import numpy as np

from spark.fixes.fixes import distances_m

#: Metres from the position of an edit within which the nearest place is the one it applies to.
NEAR_M: Final = 100.0


class PlaceEdit(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """An edit of a place by a user: a record of topic `place-edit`, key `device` LF `place_id`."""

    device: str
    place_id: str
    lat: float
    lon: float
    time: int  # of the edit, ms since 1970
    name: str | None = None
    label: str | None = None  # home, work or none

    @property
    def key(self) -> bytes:
        """The record's key."""
        return f"{self.device}\n{self.place_id}".encode()


def apply_edits(rows: list[dict[str, Any]], edits: Iterable[PlaceEdit]) -> None:
    """Apply a user's edits to the rows of one device's places."""
    for edit in sorted(edits, key=lambda each: each.time):
        row = _meant(rows, edit)
        if row is None:
            continue
        row["named_by"] = "user"
        if edit.name is not None:
            row["name"] = edit.name
        if edit.label is not None:
            label = None if edit.label == "none" else edit.label
            if label is not None:
                for other in rows:
                    if other["label"] == label:
                        other["label"], other["confidence"] = None, None
            row["label"], row["confidence"] = label, None if label is None else 1.0


def _meant(rows: list[dict[str, Any]], edit: PlaceEdit) -> dict[str, Any] | None:
    for row in rows:
        if row["place_id"] == edit.place_id:
            return row
    if not rows:
        return None
    distances = distances_m(
        edit.lat,
        edit.lon,
        np.array([row["lat"] for row in rows]),
        np.array([row["lon"] for row in rows]),
    )
    nearest = int(np.argmin(distances))
    return rows[nearest] if distances[nearest] <= NEAR_M else None
