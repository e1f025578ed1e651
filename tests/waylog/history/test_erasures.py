"""The thread that follows the erasures, when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying_threads import assert_process_ends
from tests.spark.running import start_broker
from waylog.history.erasures import ErasureLog, Erasures, append_erasures, append_records
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


def test_a_thread_that_follows_erasures_takes_its_process_with_it() -> None:
    assert_process_ends(
        """
        from waylog.history import erasures
        erasures.check_allowed = die
        log = erasures.ErasureLog("127.0.0.1:1")
        """,
        "erasures",
    )
