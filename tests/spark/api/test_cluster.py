"""The functions where Python's workers have nothing of Waylog but what is shipped to them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from geoservice.index.store import WORLD_PATH
from spark.runtime.jvm import find_java
from tests.spark.places.test_job import table_of
from tests.spark.running import ROOT
from tests.spark.synthetic import make_person
from waylog.history.row_layout import to_stored

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

#: Prints how many visits and places there are, an address, and what is not there.
_JOB = """
import sys
from pyspark.sql import SparkSession
from spark import favourite_places, h3_cell, reverse_geocode, stay_candidates, visits

builder = SparkSession.builder
session = builder.remote("local[2]").getOrCreate() if "--connect" in sys.argv else (
    builder.getOrCreate())
if "--add" in sys.argv:
    session.sparkContext.addPyFile("waylog-only.zip")
fixes = session.read.parquet(sys.argv[1])
candidates = stay_candidates(fixes)
index = sys.argv[2]
address = reverse_geocode("lat", "lon", None if index == "-" else index)
row = fixes.select(address["display_name"], h3_cell("lat", "lon")).first()
print("FOUND", visits(fixes).count(), favourite_places(candidates).count(), row[0], row[1])
"""


def _environment(python: Path | str) -> dict[str, str]:
    import pyspark

    home = find_java(os.environ)
    # A session of another test in this process leaves the path of Waylog there.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return inherited | {
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        # The start scripts of a Spark distribution determine this value.
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python that has this one's packages, but not Waylog."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [own] = folder.glob("lib/python*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "waylog" not in package.name and package.suffix != ".pth":
            (own / package.name).symlink_to(package)
    program = folder / "bin/python"
    tried = subprocess.run(
        [program, "-c", "import waylog"],
        cwd=folder,
        env=_environment(program),
        check=False,
        capture_output=True,
    )
    assert tried.returncode == 1
    return program


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[str]:
    """Yield the URL of a standalone master with two workers."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = _environment(python)
    jars = Path(environment["SPARK_HOME"]) / "jars"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, number: int, *words: str) -> str:
        log = folder / f"{name}-{number}.log"
        with log.open("wb") as stream:
            command = [f"{environment['JAVA_HOME']}/bin/java", "-Xmx256m", "-cp", f"{jars}/*"]
            role = f"org.apache.spark.deploy.{name}"
            process = subprocess.Popen(
                [*command, role, "--host", "127.0.0.1", "--webui-port", "0", *words],
                stdout=stream,
                stderr=stream,
                env=environment | {"SPARK_WORKER_DIR": str(folder / f"work-{number}")},
                cwd=folder,
            )
        processes.append(process)
        deadline = time.monotonic() + 120
        pattern = r"spark://127\.0\.0\.1:\d+" if name.endswith("Master") else "registered with"
        while not (found := re.search(pattern, log.read_text(errors="replace"))):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        return found[0]

    try:
        url = start("master.Master", 0, "--port", "0")
        for number in (1, 2):
            start("worker.Worker", number, "--cores", "1", "--memory", "1g", url)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(200)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with fixes, a job, and Waylog alone as a zip."""
    folder = tmp_path_factory.mktemp("job")
    people = {f"demo/phone{seed}": make_person(seed, 7) for seed in range(3)}
    pq.write_table(to_stored(table_of(people)), folder / "fixes.parquet")
    (folder / "job.py").write_text(_JOB)
    alone = folder / "waylog-only"
    for package in ("waylog", "spark", "geoservice"):
        shutil.copytree(
            ROOT / package, alone / package, ignore=shutil.ignore_patterns("__pycache__", "*.c")
        )
    shutil.make_archive(str(alone), "zip", alone)
    index = folder / "geo"
    index.mkdir()
    shutil.copy(WORLD_PATH, index / "world.idx")
    shutil.make_archive(str(index), "zip", index)
    return folder


def submit(
    files: Path, master: str, python: Path, *words: str, index: str = "-", more: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = _environment(python)
    # The driver has Waylog from here, its workers have not.
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [
            f"{environment['SPARK_HOME']}/bin/spark-submit",
            *("--master", master, "--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", "spark.executor.memory=512m", "--conf", "spark.task.maxFailures=1"),
            *words,
            *(str(files / "job.py"), str(files / "fixes.parquet"), index, more),
        ],
        env=environment,
        cwd=files,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_a_shipped_archive_has_what_workers_need(master: str, python: Path, files: Path) -> None:
    done = submit(
        files,
        master,
        python,
        *("--archives", "waylog-only.zip#waylog-only,geo.zip#geo"),
        *("--conf", "spark.executorEnv.PYTHONPATH=waylog-only"),
        index="geo/world.idx",
    )
    assert done.returncode == 0, done.stderr[-4000:]
    [found] = re.findall(r"FOUND (\d+) (\d+) (.*) (\w{15})", done.stdout)
    assert int(found[0]) > 20 and int(found[1]) > 5
    assert "Berlin" in found[2]


def test_a_zip_says_that_it_lacks_compiled_modules_on_the_driver_and_on_workers(
    master: str, python: Path, files: Path
) -> None:
    done = submit(files, master, python, "--py-files", "waylog-only.zip")
    assert done.returncode != 0
    assert "waylog-only.zip/spark/__init__.py: Python loads no compiled modules out of" in _said(
        done
    )
    done = submit(files, master, python, more="--add")
    assert done.returncode != 0
    assert "cannot import spark.api" in _said(done)
    assert "Python loads no compiled modules from it (docs/spark.md)" in _said(done)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    # spark-submit prints what the Python of the driver says on its own standard output.
    return done.stdout + done.stderr


def test_nothing_shipped_says_what_is_missing(master: str, python: Path, files: Path) -> None:
    done = submit(files, master, python)
    assert done.returncode != 0
    assert "Executors need an environment with Waylog" in _said(done)


def test_spark_connect(files: Path) -> None:
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module, reason="Spark Connect needs grpcio and grpcio-status")
    done = subprocess.run(
        [sys.executable, "job.py", "fixes.parquet", "-", "--connect"],
        env=_environment(sys.executable) | {"PYTHONPATH": str(ROOT)},
        cwd=files,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert re.search(r"FOUND \d+ \d+ .*Berlin", done.stdout)
