"""The thread that follows the erasures, when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.odd_records import MALFORMED_VALUES
from tests.spark.running import start_broker
from waylog.history.erasures import (
    ErasureLog,
    Erasures,
    append_erasures,
    read_erasures,
)
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.topics import ERASURE


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    broker, servers = start_broker(tmp_path / "broker")
    yield servers
    broker.terminate()


def test_an_erasure_that_could_not_be_taken_is_taken_again(
    servers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append_erasures(servers, ["ada/phone"], 1000)
    append_records(servers, [(ERASURE, b"empty", b"")])
    append_erasures(servers, ["ben/phone"], 1000)
    take = Erasures.take
    failures = [MemoryError(), MemoryError()]
    taken: list[bytes | None] = []

    def take_later(self: Erasures, value: bytes | None) -> object:
        if failures and not value:
            raise failures.pop()
        taken.append(value)
        return take(self, value)

    monkeypatch.setattr(Erasures, "take", take_later)
    log = ErasureLog(servers)
    try:
        assert log.wait(30.0)
        assert log.erasures.known() == {"ada/phone": 1000, "ben/phone": 1000}
        assert taken[1:2] == [b""]
    finally:
        log.close()
    assert caplog.text.count("reading topic erasure failed; it is tried again\nTraceback") == 1


def test_records_that_are_no_erasures_are_left_out(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    append_erasures(servers, ["ada/phone"], 1000)
    odd = (*MALFORMED_VALUES, b'{"device":"eve/phone","before":%d}' % (1 << 63))
    append_records(servers, [(ERASURE, b"eve/phone", value) for value in odd])
    append_erasures(servers, ["ben/phone"], 1000)
    known = {"ada/phone": 1000, "ben/phone": 1000}
    log = ErasureLog(servers)
    try:
        assert log.wait(30.0)
        assert log.erasures.known() == known
    finally:
        log.close()
    assert [record.getMessage() for record in caplog.records] == len(odd) * [
        "a record of topic erasure is no erasure of ours"
    ]
    assert read_erasures(servers).known() == known
