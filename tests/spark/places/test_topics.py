"""Places and edits in the log."""

from __future__ import annotations

import pytest

from spark.places.topics import append_edit, read_edits
from tests.odd_records import MALFORMED_VALUES
from waylog.history.place_edits import PlaceEdit
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.topics import PLACE_EDIT


def test_records_that_are_no_edits_hide_none(log: str, caplog: pytest.LogCaptureFixture) -> None:
    edits = [
        PlaceEdit(device=device, place_id="1", lat=1, lon=1, time=1, name="Home")
        for device in ("ada/phone", "ben/phone")
    ]
    append_edit(log, edits[0])
    append_records(
        log,
        [(PLACE_EDIT, b"odd %d" % number, value) for number, value in enumerate(MALFORMED_VALUES)],
    )
    append_edit(log, edits[1])
    assert sorted(read_edits(log), key=lambda edit: edit.device) == edits
    assert caplog.text.count("a record of place-edit is no edit") == len(MALFORMED_VALUES)
