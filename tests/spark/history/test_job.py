"""The history job as a real process with a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, TopicPartition

from spark.fixes.staging import FOLDER
from tests.spark.running import Running, append_fixes, append_values, make_fix, start_broker
from waylog.kafka.clients import consumer_config, ensure_topics
from waylog.kafka.polling import next_messages
from waylog.kafka.topics import ERROR
from waylog.messages import Rejected, decode_rejected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM takes ten seconds of CPU time to start, which can be minutes per test on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY_MS = 86_400_000
START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC


def history(servers: str, out: Path, *more: str) -> Running:
    return Running("history", "run", "--bootstrap-servers", servers, "--out", str(out), *more)


def read_errors(servers: str) -> list[Rejected]:
    consumer = Consumer(consumer_config(servers, "test", "test"))
    try:
        partition = TopicPartition(ERROR, 0, 0)
        consumer.assign([partition])
        end = consumer.get_watermark_offsets(partition, timeout=60)[1]
        found: list[Rejected] = []
        while len(found) < end:
            for message in next_messages(consumer, 100, 1):
                assert message.error() is None
                value = message.value()
                assert value is not None
                found.append(decode_rejected(value))
        return found
    finally:
        consumer.close()


def assert_each_once(out: Path, expected: set[str], session: SparkSession | None = None) -> None:
    """Check that every independent reader sees each id once and each record once."""
    counts = "count(*), count(distinct id), count(distinct (kafka_partition, kafka_offset))"
    with duckdb.connect() as connection:
        rows = connection.execute(f"select {counts} from '{out}/**/*.parquet'").fetchall()
    assert rows == [(len(expected), len(expected), len(expected))]
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table(["id", "time", "date"])
    assert sorted(table["id"].to_pylist()) == sorted(expected)
    assert not list((out / FOLDER).iterdir())
    if session is not None:
        frame = session.read.parquet(str(out))
        assert frame.count() == frame.select("id").distinct().count() == len(expected)


@pytest.mark.long
def test_after_kill_9_anywhere_every_reader_finds_every_fix_once(
    log: str, tmp_path: Path, session: SparkSession
) -> None:
    fixes = [
        # Late fixes of earlier days: a batch then has files of several dates.
        make_fix(f"u{number % 50}/phone", START_MS + number * 1000 - number % 3 * DAY_MS)
        for number in range(30_000)
    ]
    # Repetitions by a device, far apart and close together.
    sent = [*fixes[:15_000], *fixes[:500], *fixes[15_000:], *fixes[14_000:16_000], fixes[-1]]
    append_fixes(log, sent)
    garbage = [b"", b"null", b"{", b'{"id":"x"}', b"\xff\xfe", b'"' * 100, None]
    append_values(log, [(b"u1/phone", value) for value in garbage])
    out = tmp_path / "history"
    options = ("--once", "--batch-rows", "8000")
    job = history(log, out, *options)
    try:
        # Killed in the batch after these, or between two; test_kills.py does it often.
        job.await_line(r" batch \d+:", times=2)
    finally:
        job.kill()
    job = history(log, out, *options)
    try:
        assert job.process.wait(120) == 0, job.said
    finally:
        job.close()
    assert_each_once(out, {fix.id for fix in fixes}, session)
    errors = {error.headers["offset"] for error in read_errors(log) if error.headers}
    assert len(errors) == len(garbage)


@pytest.mark.long
def test_a_history_follows_the_log_over_a_broker_restart_and_stops_cleanly(
    tmp_path: Path,
) -> None:
    fixes = [make_fix("demo/phone", START_MS + number * 1000) for number in range(3000)]
    broker, servers = start_broker(tmp_path / "broker")
    out = tmp_path / "history"
    job: Running | None = None
    try:
        ensure_topics(servers)
        job = history(servers, out, "--trigger-seconds", "0.5")
        job.await_line("is written to")
        append_fixes(servers, fixes[:1000])
        job.await_line(r"batch \d+: 1000 fixes")
        refused = history(servers, out)
        assert refused.process.wait(200) == 2
        assert "another process is writing" in refused.said
        broker.kill()
        broker, _ = start_broker(tmp_path / "broker", int(servers.rpartition(":")[2]))
        append_fixes(servers, fixes[1000:])
        job.await_line("2000 fixes")
        assert job.terminate() == 0, job.said
        assert "Traceback" not in job.said
    finally:
        if job is not None:
            job.close()
        broker.terminate()
    assert_each_once(out, {fix.id for fix in fixes})


def test_another_log_is_not_mixed_into_a_history(log: str, tmp_path: Path) -> None:
    out = tmp_path / "history"
    name = f"2026-01-01-location-0-{0:020d}-{99:020d}.parquet"
    (out / "month=2026-01").mkdir(parents=True)
    (out / "month=2026-01" / name).touch()
    job = history(log, out, "--once")
    assert job.process.wait(200) == 1
    assert "it is another log" in job.said
