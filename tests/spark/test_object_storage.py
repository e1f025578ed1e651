"""The history on an S3-compatible server: the same files, the same answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark.history_files import HistoryFiles
from spark.landing import LandedFile, land
from spark.places_job import write_places
from spark.tasks import LocalEngine
from tests.spark.synthetic import make_person
from tests.spark.test_compaction import place_in_log, some_fixes
from tests.spark.test_places_job import table_of
from waylog.cli import main
from waylog.history_reader import HistoryReader
from waylog.storage import Storage

pytest.importorskip("moto", reason="pip install 'waylog[test]' brings moto, an S3 server for tests")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of an empty bucket; `{}` in it is where a path goes."""
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


def append(url: str, table: object, start: int = 0) -> None:
    from pyarrow import Table

    assert isinstance(table, Table)
    storage = Storage(url)
    files = HistoryFiles(storage)
    files.open()
    landed = land(table.to_batches(), storage, start, start + table.num_rows)
    files.commit([LandedFile(**row) for batch in landed for row in batch.to_pylist()])


def rows_of(url: str) -> list[dict[str, object]]:
    reader = HistoryReader(url)
    names = some_fixes(1).schema.names
    rows = [
        row
        for date in reader.dates()
        for batch in reader.scan(date)
        for row in batch.select(names).to_pylist()
    ]
    return sorted(rows, key=place_in_log)


def test_write_compact_read_and_erase(bucket: str) -> None:
    url = bucket.format("history")
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
    assert main(["history", "erase", "--out", url, "--device", "u/d2", "--yes"]) == 0
    assert {row["device"] for row in rows_of(url)} == {"u/d0", "u/d1", "u/d3", "u/d4"}


def test_places(bucket: str) -> None:
    people = {f"u{seed}/p": make_person(seed, days=7) for seed in range(2)}
    table = table_of(people)
    url, out = bucket.format("people"), bucket.format("places")
    append(url, table.slice(0, 8000))
    write_places(LocalEngine(1), url, out)
    append(url, table.slice(8000), start=8000)
    written = write_places(LocalEngine(1), url, out)
    assert written.devices == 2
    assert written.rows == table.num_rows - 8000
    assert main(["places", "show", "--places", out]) == 0
