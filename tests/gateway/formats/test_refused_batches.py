"""Each invalid item of a batch is kept once, with its own bytes; what is beside it is kept too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.formats import Context
from gateway.formats.by_name import PARSERS

COUNT = 300
CONTEXT = Context("ada", "phone", 1_795_000_000_000, content_type="application/json")
ITEMS: list[Any] = [{"n": f"number {n}", "lat": 100} for n in range(COUNT)]
TEXTS = [f"number {n}" for n in range(COUNT)]
BATCHES: dict[str, Any] = {
    "owntracks": ITEMS,
    "traccar": {"device_id": "phone", "location": TEXTS},
    "overland": {"locations": ITEMS},
    "phonetrack": {"points": ITEMS},
    "colota": {"location": TEXTS},
}


@pytest.mark.parametrize("name", BATCHES)
def test_each_item_is_kept_with_its_own_bytes(name: str) -> None:
    body = json.dumps(BATCHES[name]).encode()
    parsed = PARSERS[name](body, CONTEXT)
    assert len(parsed.rejected) == COUNT
    for number, rejected in enumerate(parsed.rejected):
        assert b"number %d" % number in rejected.raw
    assert sum(len(each.raw) for each in parsed.rejected) < 10 * len(body)


#: Where an envelope has its items, and an item that is accepted.
_TIME = "2026-11-01T10:00:00Z"
ENVELOPES: dict[str, tuple[str, Any]] = {
    "overland": (
        "locations",
        {"geometry": {"coordinates": [7, 50]}, "properties": {"timestamp": _TIME}},
    ),
    "traccar": ("location", {"timestamp": _TIME, "coords": {"latitude": 50, "longitude": 7}}),
}
NO_DEVICE = Context("ada", None, 1_795_000_000_000, content_type="application/json")


@pytest.mark.parametrize("name", ENVELOPES)
@pytest.mark.parametrize("count", [1, 3])
def test_what_the_envelope_says_is_kept_when_no_item_is_accepted(name: str, count: int) -> None:
    items, _ = ENVELOPES[name]
    batch: dict[str, Any] = {"device_id": "phone", "trip_name": "home"}
    batch[items] = [{"n": n, "coords": 5} for n in range(count)]
    parsed = PARSERS[name](json.dumps(batch).encode(), NO_DEVICE)
    assert parsed.rejected_at == list(range(count))
    kept = [json.loads(each.raw) for each in parsed.rejected]
    # What is kept can be sent again as it is.
    assert [each["device_id"] for each in kept] == ["phone"] * count
    assert [each.get("trip_name") for each in kept] == [None] * (count - 1) + ["home"]
    again = [PARSERS[name](each.raw, NO_DEVICE) for each in parsed.rejected]
    assert [each.rejected[0].reason for each in again] == [each.reason for each in parsed.rejected]


@pytest.mark.parametrize("name", ENVELOPES)
def test_what_cannot_be_kept_of_the_envelope_does_not_cost_the_items(name: str) -> None:
    items, item = ENVELOPES[name]
    deep: Any = "bottom"
    for _ in range(20):
        deep = [deep]
    batch = {"device_id": "phone", "deep": deep, items: [item] * COUNT}
    parsed = PARSERS[name](json.dumps(batch).encode(), NO_DEVICE)
    assert len(parsed.fixes) == COUNT
    (rejected,) = parsed.rejected
    assert "nested" in rejected.reason
    assert json.loads(rejected.raw) == {"device_id": "phone", "deep": deep}


def test_a_row_is_kept_as_json() -> None:
    body = json.dumps({"points": [[100, 7, None, True, "a'b"]]}).encode()
    (rejected,) = PARSERS["phonetrack"](body, CONTEXT).rejected
    assert json.loads(rejected.raw) == [100, 7, None, True, "a'b"]
