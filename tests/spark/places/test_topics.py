"""Places and edits in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.places.schema import FILE, PLACES_SCHEMA
from spark.places.topics import append_edit, publish_places, read_edits
from tests.consumers.running import Broker
from tests.odd_records import MALFORMED_VALUES
from waylog.config import ConfigError
from waylog.history.place_edits import PlaceEdit
from waylog.history.storage import Storage
from waylog.kafka.clients import ensure_topics
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import LOCATION, PLACE, PLACE_EDIT, VALUE_KEY_TOPIC
from waylog.sealing.value_encryption import ensure_master_key, load_master_key
from waylog.sealing.value_keys import KeyRing


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


def test_nothing_is_written_in_the_clear_beside_sealed_values(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    try:
        ensure_topics(broker.address)
        ensure_topics(broker.address, [VALUE_KEY_TOPIC])
        ensure_master_key(tmp_path / "master.key")
        ring = KeyRing(broker.address, load_master_key(tmp_path / "master.key"))
        ring.seal_value(LOCATION, b"{}", b"ada/phone")
        ring.close()
        edit = PlaceEdit(device="ada/phone", place_id="1", lat=1, lon=1, time=1, name="Home")
        with pytest.raises(ConfigError, match="values are sealed"):
            append_edit(broker.address, edit)
        storage = Storage(str(tmp_path / "places"))
        storage.open_folder()
        storage.write_parquet(FILE, PLACES_SCHEMA.empty_table())
        with pytest.raises(ConfigError, match="values are sealed"):
            publish_places(broker.address, storage.url, ["ada/phone"])
        assert not list(read_topic(broker.address, PLACE_EDIT))
        assert not list(read_topic(broker.address, PLACE))
    finally:
        broker.process.stop()
