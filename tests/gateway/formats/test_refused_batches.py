"""Each invalid item of a batch is kept once, with its own bytes only."""

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
