"""The history job without Spark, as a real process with a real broker."""

from __future__ import annotations

import queue
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from spark.fixes.log_fixes import read_fixes
from spark.history import arrow
from spark.history.job import HistoryJob, HistorySettings
from tests.consumers.running import await_condition
from tests.spark.history.test_job import DAY_MS, START_MS, assert_each_once, history, read_errors
from tests.spark.running import append_fixes, append_values, make_fix
from waylog.history.history_reader import HistoryReader
from waylog.kafka.clients import client_config
from waylog.kafka.topics import ERROR
from waylog.messages import encode
from waylog.process.watchdog import ProgressWatchdog

pytestmark = pytest.mark.timeout(300)

ARROW = ("--engine", "arrow")


def test_after_kill_9_anywhere_every_reader_finds_every_fix_once(log: str, tmp_path: Path) -> None:
    fixes = [
        make_fix(f"u{number % 50}/phone", START_MS + number * 1000 - number % 3 * DAY_MS)
        for number in range(9_000)
    ]
    append_fixes(log, [*fixes[:5_000], *fixes[:500], *fixes[5_000:], fixes[-1]])
    future = make_fix("u1/phone", START_MS + 3 * DAY_MS)
    future.received = START_MS
    garbage = [b"{", None, encode(future), encode(make_fix("u2/phone", 1000))]
    append_values(log, [(b"u1/phone", value) for value in garbage])
    out = tmp_path / "history"
    for batches in (1, 2):
        job = history(log, out, *ARROW, "--once", "--batch-rows", "2000")
        try:
            job.await_line(r" batch \d+:", times=batches)
        finally:
            job.kill()
    job = history(log, out, *ARROW, "--once", "--batch-rows", "2000")
    assert job.process.wait(120) == 0, job.said
    assert_each_once(out, {fix.id for fix in fixes})
    errors = read_errors(log)
    assert len({error.headers["offset"] for error in errors if error.headers}) == len(garbage)
    assert sum("implausible time" in error.reason for error in errors) >= 2
    # Everything is written: the next run ends at once.
    again = history(log, out, *ARROW, "--once")
    assert again.process.wait(200) == 0
    assert "stopped: 0 fixes in 0 files" in again.said


def test_an_unreadable_record_that_topic_error_has_no_room_for_stops_nothing(
    log: str, tmp_path: Path
) -> None:
    admin = AdminClient(client_config(log, "test"))
    change = ConfigEntry("max.message.bytes", "600", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, ERROR, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(60)
    large = random.Random(1).randbytes(10_000)
    append_values(log, [(b"u1/phone", value) for value in (b"{", large, b"[")])
    append_fixes(log, [make_fix("u1/phone", START_MS)])
    job = history(log, tmp_path / "history", *ARROW, "--once")
    assert job.process.wait(200) == 0, job.said
    assert "stopped: 1 fixes in 1 files" in job.said
    errors = read_errors(log)
    assert sorted(error.raw for error in errors) == [b"", b"[", b"{"]
    assert sum("(raw: none of 10000 bytes" in error.reason for error in errors) == 1


def test_it_follows_the_log_and_keeps_places(log: str, tmp_path: Path) -> None:
    out, places = tmp_path / "history", tmp_path / "places"
    fixes = [make_fix("demo/phone", START_MS + number * 120_000) for number in range(2000)]
    words = ("--trigger-seconds", "0.2", "--places", str(places), "--places-interval", "0.5")
    job = history(log, out, *ARROW, *words)
    try:
        job.await_line("is written to")

        def await_total(pattern: str, total: int) -> None:
            # What has just been appended may be in two batches.
            def is_reached() -> bool:
                return sum(map(int, re.findall(pattern, job.said))) == total

            await_condition(is_reached, 120, f"{total} by {pattern}")

        append_fixes(log, fixes[:1000])
        await_total(r"batch \d+: (\d+) fixes", 1000)
        await_total(r"1 places of 1 devices, (\d+) new fixes", 1000)
        append_fixes(log, fixes[1000:])
        await_total(r"1 places of 1 devices, (\d+) new fixes", 2000)
        assert job.terminate() == 0, job.said
        assert "Traceback" not in job.said
        assert "ERROR" not in job.said
    finally:
        job.close()
    assert_each_once(out, {fix.id for fix in fixes})


def test_places_that_could_not_be_computed_are_tried_without_a_new_fix(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_fixes(log, [make_fix("demo/phone", START_MS)])
    tries: queue.SimpleQueue[float] = queue.SimpleQueue()

    def fail(*_arguments: object) -> None:
        tries.put(time.monotonic())
        raise ValueError("a bug")

    monkeypatch.setattr("spark.places.job.write_places", fail)
    # As in a process that somebody watches.
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    settings = HistorySettings(
        log, str(tmp_path / "history"), engine="arrow", trigger_s=0.1,
        places=str(tmp_path / "places"), places_interval_s=0.01,
    )  # fmt: skip
    job = HistoryJob(settings)
    running = threading.Thread(target=job.run)
    running.start()
    try:
        for _ in range(3):
            tries.get(timeout=60)
    finally:
        job.stop()
        running.join()
    assert job.total.rows == 1
    # What has reported its progress has ended with it.
    await_condition(
        lambda: "watchdog" not in {each.name for each in threading.enumerate()}, 60, "its end"
    )


def test_each_part_of_a_batch_that_is_read_is_progress(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_fixes(log, [make_fix("demo/phone", START_MS)])
    steps, seen = 0, list[int]()

    class Watchdog(ProgressWatchdog):
        def advanced(self) -> None:
            nonlocal steps
            super().advanced()
            steps += 1

    def in_parts(*arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_fixes(*arguments):
            yield batch
            for _ in range(3):
                seen.append(steps)
                yield batch.slice(0, 0)
        seen.append(steps)

    monkeypatch.setattr(arrow, "read_fixes", in_parts)
    monkeypatch.setattr("spark.history.job.ProgressWatchdog", Watchdog)
    out = str(tmp_path / "history")
    assert HistoryJob(HistorySettings(log, out, engine="arrow", once=True)).run().rows == 1
    assert len(set(seen)) == 4


def test_what_is_over_is_packed_while_it_goes_on(log: str, tmp_path: Path) -> None:
    out = tmp_path / "history"
    fixes = [make_fix("demo/phone", START_MS + number * 120_000) for number in range(2000)]
    words = ("--trigger-seconds", "0.2", "--compact-interval", "0.5", "--compact-settled", "0")
    job = history(log, out, *ARROW, *words)
    try:
        job.await_line("is written to")
        append_fixes(log, fixes[:1000])
        job.await_line(r" 2026-01: \d+ fixes")
        append_fixes(log, fixes[1000:])
        job.await_line(r" 2026-01: 2000 fixes")
        assert job.terminate() == 0, job.said
        assert "Traceback" not in job.said
        assert "ERROR" not in job.said
    finally:
        job.close()
    reader = HistoryReader(str(out))
    assert reader.periods() == ["2026-01"]
    track = reader.track("demo/phone", 0, 2**62)
    assert [row.time for row in track] == [fix.time for fix in fixes]


@pytest.mark.long
@pytest.mark.spark
def test_both_engines_take_turns(log: str, tmp_path: Path) -> None:
    out = tmp_path / "history"
    fixes = [make_fix("demo/phone", START_MS + number * 1000) for number in range(9000)]
    for turn, engine in enumerate(("arrow", "spark", "arrow")):
        append_fixes(log, fixes[turn * 3000 : turn * 3000 + 3000])
        job = history(log, out, "--engine", engine, "--once", "--batch-rows", "1700")
        assert job.process.wait(200) == 0, job.said
        assert_each_once(out, {fix.id for fix in fixes[: turn * 3000 + 3000]})
