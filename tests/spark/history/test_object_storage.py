"""The history on an S3-compatible server and on HDFS: the same files, the same results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import waylog
from spark.fixes.staging import StagedFile, land
from spark.history.files import HistoryFiles
from spark.places.job import write_places
from spark.runtime.tasks import LocalEngine
from tests.spark.hdfs import Hdfs
from tests.spark.history.test_compaction import place_in_log, some_fixes
from tests.spark.places.test_job import table_of
from tests.spark.running import Running, append_fixes, make_fix
from tests.spark.synthetic import make_person
from waylog.cli import main
from waylog.config import ConfigError
from waylog.history.history_reader import HistoryReader
from waylog.history.storage import Storage


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Yield the URL of an empty bucket, with `{}` in place of the path."""
    pytest.importorskip("moto", reason="pip install 'waylog[test]' brings moto, an S3 server")
    from moto.server import ThreadedMotoServer

    with pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "test")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        options = f"scheme=http&endpoint_override={host}:{port}&region=us-east-1"
        Storage(f"s3://waylog?{options}&allow_bucket_creation=true").open_folder()
        try:
            yield "s3://waylog/{}?" + options
        finally:
            server.stop()


@pytest.fixture(scope="module")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """Yield an HDFS with one NameNode and two DataNodes."""
    cluster = Hdfs(tmp_path_factory.mktemp("hdfs"))
    yield cluster
    cluster.close()


@pytest.fixture(
    params=["file", "s3", pytest.param("hdfs", marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a URL for each kind of storage, with `{}` in place of the path."""
    if request.param == "file":
        return f"{tmp_path}/{{}}"
    if request.param == "s3":
        return str(request.getfixturevalue("s3"))
    return f"{request.getfixturevalue('hdfs_cluster').url}/{tmp_path.name}/{{}}"


def append(url: str, table: object, start: int = 0) -> None:
    from pyarrow import Table

    assert isinstance(table, Table)
    storage = Storage(url)
    files = HistoryFiles(storage)
    files.open()
    landed = land(table.to_batches(), storage, start, start + table.num_rows)
    files.commit([StagedFile(**row) for batch in landed for row in batch.to_pylist()])


def rows_of(url: str) -> list[dict[str, object]]:
    reader = HistoryReader(url)
    names = some_fixes(1).schema.names
    rows = [
        row
        for date in reader.periods()
        for batch in reader.scan(date)
        for row in batch.select(names).to_pylist()
    ]
    return sorted(rows, key=place_in_log)


def test_write_compact_read_and_erase(place: str) -> None:
    url = place.format("history")
    table = some_fixes(300)
    append(url, table.slice(0, 200))
    # Repeated after a crash.
    append(url, table.slice(100, 200), start=100)
    assert rows_of(url) == table.to_pylist()
    assert main(["history", "compact", "--out", url, "--all"]) == 0
    assert rows_of(url) == table.to_pylist()
    reader = HistoryReader(url)
    assert {file.span for file in reader.files()} == {None}
    assert len(reader.track("u/d2", 0, 2**60)) == 60
    history = waylog.open_history(url)
    assert history.table(["kafka_offset"], ["u/d2"], "2026-01-02", "2026-01-03").num_rows == 30
    assert history.track("u/d2").num_rows == 60
    assert history.dataset().count_rows() == 300
    assert history.duckdb().aggregate("count(*), max(lat) > 51").fetchall() == [(300, True)]
    assert history.polars().filter(pl.col("device") == "u/d2").collect().height == 60
    assert all(path.startswith(url.partition("?")[0]) for path in history.files())
    if not url.startswith("webhdfs:"):
        assert main(["history", "publish", "--out", url]) == 0
    assert main(["history", "erase", "--out", url, "--device", "u/d2", "--yes"]) == 0
    assert {row["device"] for row in rows_of(url)} == {"u/d0", "u/d1", "u/d3", "u/d4"}


def test_places(place: str) -> None:
    people = {f"u{seed}/p": make_person(seed, days=7) for seed in range(2)}
    table = table_of(people)
    url, out = place.format("people"), place.format("places")
    append(url, table.slice(0, 8000))
    write_places(LocalEngine(1), url, out)
    append(url, table.slice(8000), start=8000)
    written = write_places(LocalEngine(1), url, out)
    assert written.devices == 2
    assert written.rows == table.num_rows - 8000
    assert main(["places", "show", "--places", out]) == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_data_node_dies_and_nothing_is_lost(hdfs_cluster: Hdfs) -> None:
    url = f"{hdfs_cluster.url}/dies"
    table = some_fixes(2000)
    for start in range(0, 1000, 250):
        append(url, table.slice(start, 250), start)
    hdfs_cluster.kill_data_node()
    # The NameNode keeps naming the dead DataNode.
    for start in range(1000, 2000, 250):
        append(url, table.slice(start, 250), start)
    assert rows_of(url) == table.to_pylist()
    assert main(["history", "compact", "--out", url, "--all"]) == 0
    assert rows_of(url) == table.to_pylist()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_both_engines_write_to_hdfs(hdfs_cluster: Hdfs, log: str) -> None:
    url = f"{hdfs_cluster.url}/engines"
    fixes = [make_fix("demo/phone", 1_767_225_600_000 + each * 1000) for each in range(3000)]
    for turn, engine in enumerate(("spark", "arrow")):
        append_fixes(log, fixes[turn * 1500 : turn * 1500 + 1500])
        words = ["--engine", engine, "--once", "--bootstrap-servers", log, "--out", url]
        if engine == "spark":
            refused = Running("history", "run", *words)
            assert refused.process.wait(200) == 2
            assert "--checkpoint" in refused.said
            words += ["--checkpoint", f"{hdfs_cluster.spark_url}/checkpoint"]
        job = Running("history", "run", *words)
        assert job.process.wait(300) == 0, job.said
    assert {row["id"] for row in rows_of(url)} == {fix.id for fix in fixes}
    assert len(rows_of(url)) == len(fixes)


def test_a_scheme_that_needs_native_libraries_is_explained() -> None:
    with pytest.raises(ConfigError, match="webhdfs://"):
        Storage("hdfs://127.0.0.1:8020/history")
