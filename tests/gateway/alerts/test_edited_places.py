"""Places as their user has edited them, where the log does not answer."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.alerts.edited_places import EditedPlaces
from gateway.alerts.log_table import LogTable
from waylog.history.place_edits import decode_place_edit
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.topics import PLACE_EDIT_TOPIC


async def test_places_are_shown_without_their_edits_while_the_log_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    edits = LogTable("127.0.0.1:1", "test", PLACE_EDIT_TOPIC, None, decode_place_edit)
    rows = [{"place_id": "p", "lat": 47.0, "lon": 9.5, "name": None}]
    assert await EditedPlaces(edits).places("anna/phone", rows) == rows
    assert "no Kafka broker answered at 127.0.0.1:1" in caplog.text
    await edits.close()


async def test_those_who_ask_meanwhile_wait_for_the_same_answer() -> None:
    edits = LogTable("127.0.0.1:1", "test", PLACE_EDIT_TOPIC, None, decode_place_edit)
    began = time.monotonic()
    with pytest.raises(LogUnreachable):
        await edits.of("anna")
    one_s = time.monotonic() - began
    found = await asyncio.gather(
        *(edits.of(f"user{number}") for number in range(100)), return_exceptions=True
    )
    assert all(isinstance(each, LogUnreachable) for each in found)
    assert time.monotonic() - began < 10 * one_s
    await edits.close()
