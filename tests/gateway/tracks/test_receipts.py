"""The process that answers receipts: what it reads is bounded, however large a day is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.tracks import receipts_process
from gateway.tracks.asking import AnswerUnavailable
from gateway.tracks.receipts import ReceiptQuestion, Receipts
from gateway.tracks.receipts_process import Answerer
from tests.consumers.forwarding.running import Platform
from tests.waylog.audit.running import DAY, NOON_MS, AuditedLog, counts_of, make_fix
from waylog.audit.days import Day, parse_day
from waylog.audit.facts import AddressFact
from waylog.forwarding.definition import Progress
from waylog.forwarding.keys import FORWARDING_KEY, forwarding_keys
from waylog.kafka.topics import ERROR
from waylog.messages import Rejected, encode
from waylog.observability.telemetry import now_ms


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditedLog]:
    running = AuditedLog(tmp_path)
    yield running
    running.close()


def the_day() -> Day:
    return parse_day(DAY, "UTC", now_ms())


def ask(answerer: Answerer, device: str, address: AddressFact | None = None) -> dict[str, Any]:
    question = ReceiptQuestion(device, the_day(), address)
    receipt: dict[str, Any] = msgspec.json.decode(answerer.answer(msgspec.json.encode(question)))
    return receipt


def names_of(receipt: dict[str, Any]) -> list[str]:
    return [each["name"] for each in receipt["readers"]]


def answerer_of(log: AuditedLog) -> Answerer:
    return Answerer(log.servers, str(log.history), "resolver", ())


def test_of_a_large_day_the_history_is_counted_and_the_rest_is_read(
    log: AuditedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixes = [make_fix(f"user{number % 3}/phone", number) for number in range(90)]
    log.append(fixes)
    log.write_history()
    log.append([make_fix("user1/phone", 100), make_fix("user1/phone", 101)])
    log.lose(fixes[1])
    whole = ask(answerer_of(log), "user1/phone")
    assert whole["acknowledged"] == 32
    assert counts_of(whole, "history") == {"taken": 29, "missing": 1, "overdue": 2}
    assert whole["unknown"] == []
    monkeypatch.setattr(receipts_process, "RECORDS_MAX", 20)
    bounded = ask(answerer_of(log), "user1/phone")
    # What the history lacks is not known, and not made up; the newest fixes are there.
    assert bounded["acknowledged"] == 31
    assert counts_of(bounded, "history") == {"taken": 29, "overdue": 2}
    assert "were added" in bounded["unknown"][0]
    assert "too many to be read for this answer" in bounded["unknown"][1]
    assert bounded["last_received"] == whole["last_received"]


def test_without_a_history_a_large_day_is_read_in_part(
    log: AuditedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(make_fix("ada/phone", number) for number in range(50))
    rejected = Rejected(reason="bad", source="osmand", time=0, raw=b"", device="ada/phone")
    log.append_values(ERROR, [(b"ada/phone", encode(rejected), NOON_MS)] * 30)
    monkeypatch.setattr(receipts_process, "RECORDS_MAX", 20)
    receipt = ask(Answerer(log.servers, "", "resolver", ()), "ada/phone")
    assert (receipt["acknowledged"], receipt["refused"]) == (20, [])
    assert any("the newest of them are left out" in each for each in receipt["unknown"])
    assert any("topic error has 30 records" in each for each in receipt["unknown"])
    monkeypatch.setattr(receipts_process, "RECORDS_MAX", 50)
    receipt = ask(Answerer(log.servers, "", "resolver", ()), "ada/phone")
    assert (receipt["acknowledged"], receipt["unknown"]) == (50, [])
    assert receipt["refused"][0]["count"] == 30


def test_groups_are_asked_every_few_seconds_at_most(
    log: AuditedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_process, "_FRESH_S", 3600.0)
    log.append([make_fix("ada/phone", 1), make_fix("ben/phone", 1)])
    answerer = answerer_of(log)
    address = AddressFact("ada/phone", "x", NOON_MS, NOON_MS)
    first = ask(answerer, "ada/phone", address)
    assert names_of(first) == ["history"] and first["resolved"]["fix_id"] == "x"
    log.commit("connect-files", log.ends())
    log.append([make_fix("ada/phone", 2)])
    # The same question has the same answer; another one sees the offsets of before.
    assert ask(answerer, "ada/phone", address) == first
    assert names_of(ask(answerer, "ben/phone")) == ["history"]
    monkeypatch.setattr(receipts_process, "_FRESH_S", 0.0)
    later = ask(answerer, "ada/phone")
    assert (later["acknowledged"], later["resolved"]) == (2, None)
    assert counts_of(later, "connect-files") == {"taken": 1, "overdue": 1}


@pytest.fixture
def forwardings(
    log: AuditedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Platform]:
    """Yield forwardings without a worker, and the key to them."""
    platform = Platform(log.servers, tmp_path)
    monkeypatch.setenv(FORWARDING_KEY, str(platform.key_file))
    monkeypatch.setattr(receipts_process, "_FRESH_S", 0.0)
    forwarding_keys.cache_clear()  # this process has looked for a key before
    try:
        yield platform
    finally:
        platform.close()
        ring = forwarding_keys(log.servers)
        assert ring is not None
        ring.close()
        forwarding_keys.cache_clear()


def test_how_far_forwardings_are_is_read_on_from_answer_to_answer(
    log: AuditedLog, forwardings: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append([make_fix("ada/phone", number) for number in range(10)])
    (partition,) = [each for each, end in log.ends().items() if end]
    forwardings.put("ada", 1, "https://example.org/", created=1, since=1)
    for offset in range(9):
        forwardings.put_progress("ada", 1, partition, Progress(offset=offset))
    monkeypatch.setattr(receipts_process, "RECORDS_MAX", 5)
    answerer = answerer_of(log)
    early = ask(answerer, "ada/phone")
    assert early["forwardings"] is None
    assert any("4 records that tell how far forwardings are" in each for each in early["unknown"])
    assert ask(answerer, "ben/phone")["forwardings"] == []
    monkeypatch.setattr(receipts_process, "RECORDS_MAX", 1000)

    def told() -> dict[str, int]:
        (found,) = ask(answerer, "ada/phone")["forwardings"]
        return {each: found[each] for each in ("sent", "waiting", "unknown")}

    assert told() == {"sent": 8, "waiting": 2, "unknown": 0}
    forwardings.put_progress("ada", 1, partition, Progress(offset=9, error="down", error_time=1))
    assert told() == {"sent": 9, "waiting": 1, "unknown": 0}
    # It goes on with the group, whose offsets are those of before the progress was read.
    forwardings.put_progress("ada", 1, partition, Progress(offset=9, live=True))
    assert told() == {"sent": 9, "waiting": 0, "unknown": 1}
    log.commit("forwarding", {partition: 10})
    assert told() == {"sent": 10, "waiting": 0, "unknown": 0}
    forwardings.remove("ada", 1)
    assert ask(answerer, "ada/phone")["forwardings"] == []


def test_a_history_that_is_written_later_is_found(
    log: AuditedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_process, "_FRESH_S", 0.0)
    log.append([make_fix("ada/phone", 1)])
    answerer = answerer_of(log)
    early = ask(answerer, "ada/phone")
    assert counts_of(early, "history") == {"overdue": 1}
    assert "has no file yet" in early["unknown"][0]
    log.write_history()
    assert counts_of(ask(answerer, "ada/phone"), "history") == {"taken": 1}


def test_a_log_that_comes_back_is_asked_again(
    log: AuditedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_process, "_FRESH_S", 0.0)
    log.append([make_fix("ada/phone", 1)])
    answerer = answerer_of(log)
    assert ask(answerer, "ada/phone")["acknowledged"] == 1
    log.broker.kill()
    with monkeypatch.context() as patch, pytest.raises(AnswerUnavailable):
        patch.setattr("waylog.audit.log_reader._TIMEOUT_S", 1.0)
        ask(answerer, "ada/phone")
    log.broker.start()
    assert ask(answerer, "ada/phone")["acknowledged"] == 1


async def test_the_process_says_why_it_cannot_answer() -> None:
    receipts = Receipts("127.0.0.1:1")
    try:
        for _ in range(2):
            with pytest.raises(AnswerUnavailable, match="no Kafka broker answers"):
                await receipts.of_device("ada/phone", the_day(), None, "ada")
    finally:
        await receipts.close()
