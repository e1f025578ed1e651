"""Records of sources that could not be sent are found before they reach the producer."""

from __future__ import annotations

import threading

import pytest

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import Header, SourceRecord
from consumers.connect.data.schemas import STRING
from consumers.connect.errors.settings import ErrorSettings
from consumers.connect.storage.states import TaskId
from consumers.connect.tasks.converters import make_pipeline
from consumers.connect.tasks.operations import Operations
from consumers.connect.tasks.source_records import OutgoingRecord, SourceRecords

CONVERTERS = {"key.converter": "StringConverter", "value.converter": "StringConverter"}


def converted(name: str, *, tolerates_all: bool) -> OutgoingRecord | None:
    settings = ErrorSettings(tolerates_all=tolerates_all)
    operations = Operations(TaskId("in", 0), settings, threading.Event(), None)
    record = SourceRecord(
        source_partition={}, source_offset={}, topic="t", value="v", value_schema=STRING,
        headers=(Header(name, "h", STRING),),
    )  # fmt: skip
    return SourceRecords(make_pipeline(CONVERTERS, {}), operations).convert(record)


def test_a_name_of_a_header_that_is_no_text_fails_the_record() -> None:
    assert converted("\ud800", tolerates_all=True) is None
    with pytest.raises(ConnectException, match="Tolerance exceeded"):
        converted("\ud800", tolerates_all=False)
    found = converted("ä", tolerates_all=False)
    assert found is not None
    assert found.headers == [("ä", b"h")]
