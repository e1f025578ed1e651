"""The job, its JVM and the broker are killed at random moments: nothing is lost or duplicated.

`WAYLOG_KILLS` is the number of kills (50), `WAYLOG_SEED` the random seed (printed).
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest

from spark.fixes.log_fixes import read_fixes
from spark.fixes.log_source import OffsetRange, open_log
from tests.spark.history.test_job import START_MS, history
from tests.spark.running import Running, append_fixes, child_jvm, make_fix, start_broker
from waylog.cli import main
from waylog.history.history_reader import HistoryReader
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import LOCATION

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("WAYLOG_KILLS", "50"))
SEED = int(os.environ.get("WAYLOG_SEED", str(random.randrange(1 << 32))))

Record = tuple[int, int, str]


class Sender:
    """A thread that appends fixes continuously, each once, even while the broker is killed."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._stopping = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            numbers = range(self.sent, self.sent + 2000)
            append_fixes(
                self._servers,
                (
                    make_fix(f"u{each % 40}/p", START_MS + each * 1000 - each % 3 * 86_400_000)
                    for each in numbers
                ),
            )
            self.sent += 2000

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.sent


def log_records(servers: str) -> list[Record]:
    offsets = open_log(servers)
    try:
        marks = offsets.watermarks(LOCATION, 10)
    finally:
        offsets.close()
    return sorted(
        (partition, offset, identity)
        for partition, own in marks.items()
        for batch in read_fixes(servers, LOCATION, OffsetRange(partition, own.low, own.high))
        for offset, identity in zip(
            batch["kafka_offset"].to_pylist(), batch["id"].to_pylist(), strict=True
        )
    )


@pytest.mark.parametrize(
    ("engine", "packing"),
    [("arrow", False), ("arrow", True), pytest.param("spark", False, marks=pytest.mark.spark)],
)
def test_nothing_is_lost_or_doubled_for_any_reader(
    tmp_path: Path, engine: str, packing: bool
) -> None:
    print(f"WAYLOG_SEED={SEED} WAYLOG_KILLS={KILLS}")
    dice = random.Random(SEED)
    broker, servers = start_broker(tmp_path / "broker")
    port = int(servers.rpartition(":")[2])
    out = tmp_path / "history"
    words = ["--engine", engine, "--trigger-seconds", "0.3", "--batch-rows", "3000"]
    if packing:
        # Days and months are compacted continuously, and that process is killed with the job.
        words += ["--compact-interval", "0.5", "--compact-settled", "0"]
    job: Running | None = None
    killed = {"job": 0, "jvm": 0, "broker": 0}
    try:
        ensure_topics(servers)
        sender = Sender(servers)
        for _ in range(KILLS):
            if job is None or job.process.poll() is not None:
                job = history(servers, out, *words)
            # A moment between the start and a few seconds of work.
            time.sleep(dice.uniform(0.5, 12 if engine == "spark" else 3))
            victim = dice.choice(["job", "job", "broker", *(["jvm"] if engine == "spark" else [])])
            if victim == "broker":
                broker.kill()
                broker, _ = start_broker(tmp_path / "broker", port)
            elif victim == "jvm":
                jvm = child_jvm(job.process.pid)
                if jvm is not None:
                    os.kill(jvm, signal.SIGKILL)
                    # Its supervisor would start it again.
                    assert job.process.wait(120) == 1
                job.close()
            else:
                job.kill()
            killed[victim] += 1
        sent = sender.stop()
        if job is not None:
            job.close()
        last = history(servers, out, "--engine", engine, "--once")
        assert last.process.wait(600) == 0, last.said
        expected = log_records(servers)
        if packing:
            reader = HistoryReader(str(out))
            found = [
                (row["kafka_partition"], row["kafka_offset"], row["id"])
                for period in reader.periods()
                for batch in reader.scan(period)
                for row in batch.select(["kafka_partition", "kafka_offset", "id"]).to_pylist()
            ]
            assert sorted(found) == expected
            # Clean up after kills, for readers that do not use the manifest.
            assert main(["history", "compact", "--out", str(out), "--all"]) == 0
    finally:
        if job is not None:
            job.close()
        broker.close()
    print(f"{sent} fixes, kills {killed}")
    assert len(expected) == sent
    names = ["kafka_partition", "kafka_offset", "id"]
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table(names)
    columns = (table[name].to_pylist() for name in names)
    assert sorted(zip(*columns, strict=True)) == expected
    with duckdb.connect() as connection:
        rows = connection.sql(f"select {', '.join(names)} from '{out}/*/*.parquet'").fetchall()
    assert sorted(rows) == expected
    if engine == "spark":
        from spark.runtime.session import open_session

        frame = open_session("check").read.parquet(str(out)).select(*names)
        assert sorted(tuple(row) for row in frame.collect()) == expected
