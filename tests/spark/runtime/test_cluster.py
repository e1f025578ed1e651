"""The jobs on a standalone Spark cluster: master, worker and executors in separate processes."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.runtime.jvm import find_java
from tests.spark.history.test_compaction import rows_of
from tests.spark.history.test_job import START_MS, history
from tests.spark.running import append_fixes, make_fix
from waylog.cli import main

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a standalone master with one worker."""
    import pyspark

    java = find_java(os.environ) / "bin" / "java"
    jars = Path(pyspark.__file__).parent / "jars"
    environment = os.environ | {
        "JAVA_HOME": str(java.parents[1]),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        # The start scripts of a Spark distribution determine this value.
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path),
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> str:
        log = tmp_path / f"{name}.log"
        with log.open("wb") as stream:
            command = [str(java), "-Xmx256m", "-cp", f"{jars}/*"]
            role = f"org.apache.spark.deploy.{name}"
            process = subprocess.Popen(
                [*command, role, "--host", "127.0.0.1", "--webui-port", "0", *words],
                stdout=stream,
                stderr=stream,
                env=environment,
            )
        processes.append(process)
        deadline = time.monotonic() + 120
        pattern = r"spark://127\.0\.0\.1:\d+" if name.endswith("Master") else "registered with"
        while not (found := re.search(pattern, log.read_text(errors="replace"))):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        return found[0]

    try:
        url = start("master.Master", "--port", "0")
        start("worker.Worker", "--cores", "2", "--memory", "1g", url)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(200)


def test_the_jobs_run_on_a_cluster(log: str, master: str, tmp_path: Path) -> None:
    out, places = tmp_path / "history", tmp_path / "places"
    devices = [f"demo/phone{number}" for number in range(8)]
    append_fixes(
        log, [make_fix(each, START_MS + n * 120_000) for n in range(100) for each in devices]
    )
    job = history(log, out, "--once", "--master", master)
    assert job.process.wait(400) == 0, job.said
    assert len(rows_of(out)) == 800
    words = ["--out", str(out), "--all", "--engine", "spark", "--master", master]
    assert main(["history", "compact", *words]) == 0
    assert len(rows_of(out)) == 800
    words = ["--history", str(out), "--out", str(places), "--master", master]
    assert main(["places", "run", "--once", *words]) == 0
    assert (places / "places.parquet").exists()
