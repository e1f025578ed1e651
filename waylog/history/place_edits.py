"""What users say of their places: topic `place-edit`, where the newest record of a place wins.

A place gets a name or a label, is taken for a part of another one, or is left out. An edit applies
to the place with its id or, if there is none, to the nearest place within 100 m of its position, so
that it survives new computations of places. The job applies edits to what it has found, and the
gateway to what the job has written, so that an edit is seen at once: twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from waylog.great_circle import distance_m

#: Metres from the position of an edit within which the nearest place is the one it applies to.
NEAR_M: Final = 100.0
#: A place that may not be left out: what friends are told is blurred around it.
_KEPT_LABEL: Final = "home"
_PLACES_IN_ANOTHER_MAX: Final = 1000


class PlaceEdit(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """An edit of a place by a user: a record of topic `place-edit`, key `device` LF `place_id`."""

    device: str
    place_id: str
    lat: float
    lon: float
    time: int  # of the edit, ms since 1970
    name: str | None = None
    label: str | None = None  # home, work or none
    merged_into: str | None = None  # id of the place that this one is a part of
    deleted: bool = False
    #: What the place was called when it was edited, to speak of one that is left out.
    known_as: str | None = None

    @property
    def key(self) -> bytes:
        """The record's key."""
        return f"{self.device}\n{self.place_id}".encode()


#: Return the edit of a record's value; raises MALFORMED.
decode_place_edit: Final = msgspec.json.Decoder(PlaceEdit).decode


def apply_edits(
    rows: list[dict[str, Any]], edits: Iterable[PlaceEdit], *, by_id: bool = False
) -> dict[str, str]:
    """Apply a user's edits to the rows of one device's places.

    Returns the ids of places that are parts of others, with the ids of these. `by_id`: not to a
    place that is only near, since the rows have been edited before and may lack the one that is
    meant. O(edits * places).
    """
    ordered = sorted(edits, key=lambda each: each.time)
    meant = [(edit, row) for edit in ordered if (row := _meant(rows, edit, by_id)) is not None]
    for edit, row in meant:
        _name(row, edit)
    parts = _parts(rows, ordered, meant)
    by_place = {row["place_id"]: row for row in rows}
    gone = {each for each in parts if each in by_place}
    for part in gone:
        _add(by_place[parts[part]], by_place[part])
    gone |= {
        row["place_id"]
        for edit, row in meant
        if edit.deleted and row["label"] != _KEPT_LABEL and row["place_id"] not in parts.values()
    }
    rows[:] = [row for row in rows if row["place_id"] not in gone]
    return parts


def _name(row: dict[str, Any], edit: PlaceEdit) -> None:
    if edit.name is not None or edit.label is not None:
        row["named_by"] = "user"
    if edit.name is not None:
        row["name"] = edit.name
    if edit.label is not None:
        # Others keep the label: a person may have several homes, and friends are told nothing
        # precise of one until its user says that it is none.
        label = None if edit.label == "none" else edit.label
        row["label"] = label
        if "confidence" in row:
            row["confidence"] = None if label is None else 1.0


def _parts(
    rows: list[dict[str, Any]],
    ordered: Iterable[PlaceEdit],
    meant: Iterable[tuple[PlaceEdit, dict[str, Any]]],
) -> dict[str, str]:
    """Return where each place belongs that is a part of another one: to one that there is."""
    there = {row["place_id"] for row in rows}
    kept = {row["place_id"] for row in rows if row["label"] == _KEPT_LABEL}
    said = {edit.place_id: edit.merged_into for edit in ordered if edit.merged_into is not None}
    # The place may have another id by now.
    said |= {
        row["place_id"]: edit.merged_into
        for edit, row in meant
        if edit.merged_into not in (None, row["place_id"])
    }
    parts = {}
    for part in said.keys() - kept:
        end: str | None = part
        for _ in range(min(len(said), _PLACES_IN_ANOTHER_MAX)):
            further = said.get(end) if end not in kept and end is not None else None
            if further is None:
                break
            end = further
        if end is not None and end in there and end != part and (end in kept or end not in said):
            parts[part] = end
    return parts


def _add(row: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add the time at a part of a place to the place."""
    for name in ("visits", "dwell_s"):
        row[name] = (row[name] or 0) + (part[name] or 0)
    for name, choose in (("first", min), ("last", max), ("days", max)):
        known = [each for each in (row.get(name), part.get(name)) if each is not None]
        if known and name in row:
            row[name] = choose(known)
    if row.get("profile") and part.get("profile"):
        row["profile"] = [a + b for a, b in zip(row["profile"], part["profile"], strict=True)]


def _meant(rows: list[dict[str, Any]], edit: PlaceEdit, by_id: bool) -> dict[str, Any] | None:
    for row in rows:
        if row["place_id"] == edit.place_id:
            return row
    if by_id or not rows:
        return None
    away = [distance_m(edit.lat, edit.lon, row["lat"], row["lon"]) for row in rows]
    nearest = min(range(len(rows)), key=away.__getitem__)
    return rows[nearest] if away[nearest] <= NEAR_M else None
