"""Packing beside a job: a round that fails is logged, and the next one comes."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from spark.history import periodic_compaction
from spark.history.health.thread_steps import ThreadSteps
from spark.history.periodic_compaction import PeriodicCompaction
from tests.consumers.running import await_condition
from tests.dying_threads import assert_process_ends
from waylog.history.history_reader import MANIFEST


def test_a_torn_manifest_delays_packing_until_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    packed = threading.Event()
    monkeypatch.setattr(PeriodicCompaction, "_compact", lambda _self: packed.set())
    manifest = tmp_path / MANIFEST
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text("{ torn")
    day = tmp_path / "month=2026-01"
    day.mkdir()
    (day / "2026-01-01-location-0-0-9.parquet").touch()
    stopping = threading.Event()
    upkeep = PeriodicCompaction(str(tmp_path), 0.01, 0.0, stopping, ThreadSteps())
    thread = threading.Thread(target=upkeep.run)
    thread.start()
    try:
        await_condition(lambda: "packing the history failed" in caplog.text, 60, "a line")
        manifest.unlink()
        assert packed.wait(60)
    finally:
        stopping.set()
        thread.join()
    assert caplog.text.count("packing the history failed; it is tried again") == 1


def test_a_process_that_packs_and_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = tmp_path / "python"
    hanging.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/started\nexec sleep 600\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    monkeypatch.setattr(periodic_compaction, "_IDLE_MAX_S", 0.7)
    day = tmp_path / "month=2026-01"
    day.mkdir()
    (day / "2026-01-01-location-0-0-9.parquet").touch()
    stopping = threading.Event()
    upkeep = PeriodicCompaction(str(tmp_path), 0.01, 0.0, stopping, ThreadSteps())
    thread = threading.Thread(target=upkeep.run)
    thread.start()
    try:
        ended = "packing has done nothing for 1 s: it is ended"
        await_condition(lambda: caplog.text.count(ended) == 2, 60, "two lines")
    finally:
        stopping.set()
        thread.join()
    for process in (tmp_path / "started").read_text().split():
        assert not Path(f"/proc/{process}").exists()


def test_a_packing_thread_takes_its_job_with_it(log: str, tmp_path: Path) -> None:
    assert_process_ends(
        f"""
        from spark.history import periodic_compaction
        from spark.history.job import HistoryJob, HistorySettings
        periodic_compaction.HistoryReader = die
        words = dict(engine="arrow", compact_interval_s=0.01)
        HistoryJob(HistorySettings("{log}", "{tmp_path}/history", **words)).run()
        """,
        "upkeep",
    )
