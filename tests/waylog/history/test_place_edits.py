"""What users say of their places."""

from __future__ import annotations

from typing import Any

from waylog.history.place_edits import PlaceEdit, apply_edits


def row(place_id: str, label: str | None = None) -> dict[str, Any]:
    return {
        "place_id": place_id, "lat": float(place_id), "lon": 9.0, "label": label, "name": None,
        "confidence": None if label is None else 0.9, "named_by": None, "visits": 1, "dwell_s": 60,
    }  # fmt: skip


def edit(place_id: str, time: int = 1, **members: Any) -> PlaceEdit:
    at = float(place_id)
    return PlaceEdit(device="a/b", place_id=place_id, lat=at, lon=9.0, time=time, **members)


def test_another_home_leaves_the_first_one_a_home() -> None:
    # Friends would be told the first one exactly.
    rows = [row("1", "home"), row("2"), row("3", "work"), row("4")]
    apply_edits(rows, [edit("2", label="home"), edit("4", label="work")])
    assert [each["label"] for each in rows] == ["home", "home", "work", "work"]
    assert [each["confidence"] for each in rows] == [0.9, 1.0, 0.9, 1.0]


def test_a_home_is_none_only_once_its_user_says_so() -> None:
    rows = [row("1", "home"), row("2")]
    apply_edits(rows, [edit("1", deleted=True)])
    assert [each["place_id"] for each in rows] == ["1", "2"]
    apply_edits(rows, [edit("1", label="none", deleted=True)])
    assert [each["place_id"] for each in rows] == ["2"]
