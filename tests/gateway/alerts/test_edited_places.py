"""Places as their user has edited them, where the log does not answer."""

from __future__ import annotations

import pytest

from gateway.alerts.edited_places import EditedPlaces
from gateway.alerts.log_table import LogTable
from waylog.history.place_edits import decode_place_edit
from waylog.kafka.topics import PLACE_EDIT_TOPIC


async def test_places_are_shown_without_their_edits_while_the_log_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    edits = LogTable("127.0.0.1:1", "test", PLACE_EDIT_TOPIC, None, decode_place_edit)
    rows = [{"place_id": "p", "lat": 47.0, "lon": 9.5, "name": None}]
    assert await EditedPlaces(edits).places("anna/phone", rows) == rows
    assert "no Kafka broker answered at 127.0.0.1:1" in caplog.text
    await edits.close()
