"""A history whose server is away: one line, a status by which it starts again, no loss."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import reserved_ports
from tests.spark.history.test_compaction import append, some_fixes
from tests.spark.running import Running, append_fixes, make_fix
from waylog.cli import main
from waylog.history.history_reader import HistoryReader
from waylog.history.storage import Storage
from waylog.history.storage_errors import StorageUnavailable, shown_url, unavailable

START_MS = 1_767_225_600_000


@contextmanager
def answering(status: int, content: bytes) -> Iterator[tuple[str, list[str]]]:
    """Serve the same answer to all; yield the address, and the requests that came."""
    asked: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            serving.join()


def remote_exception(name: str) -> bytes:
    return json.dumps({"RemoteException": {"exception": name, "message": "said so"}}).encode()


@pytest.mark.parametrize("engine", ["arrow", "spark"])
def test_a_job_ends_with_1_and_writes_when_its_server_is_there(
    engine: str, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto = pytest.importorskip("moto.server")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (port,) = reserved_ports(1)
    url = (
        f"s3://away-{engine}/history?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        "&allow_bucket_creation=true"
    )
    fixes = [make_fix("demo/phone", START_MS + number * 1000) for number in range(20)]
    append_fixes(log, fixes)
    words = ("history", "run", "--bootstrap-servers", log, "--out", url)
    more = ("--checkpoint", str(tmp_path / "checkpoint")) if engine == "spark" else ()
    job = Running(*words, "--engine", engine, *more, environment=dict(os.environ))
    try:
        assert job.process.wait(60) == 1, job.said
    finally:
        job.close()
    assert job.said == (
        f"waylog history: s3://away-{engine}/history: no connection to 127.0.0.1:{port}; is it "
        "running, and is the address right?\n"
    )
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        job = Running(*words, "--engine", "arrow", "--once", environment=dict(os.environ))
        try:
            assert job.process.wait(60) == 0, job.said
        finally:
            job.close()
        assert sum(batch.num_rows for batch in HistoryReader(url).scan("2026-01-01")) == 20
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("status", "content", "told"),
    [
        (404, b"<html>", "HTTP Error 404: Not Found"),
        (200, b"<html>", "what answers there is no WebHDFS"),
        (403, remote_exception("AccessControlException"), "has the account .* the right"),
    ],
)
def test_what_asking_again_does_not_change_is_told_soon(
    status: int, content: bytes, told: str
) -> None:
    with answering(status, content) as (address, asked):
        storage = Storage(f"webhdfs://{address}/history")
        with pytest.raises(StorageUnavailable, match=f"^webhdfs://{address}/history: .*{told}"):
            storage.list_files()
        assert len(asked) == (3 if status == 404 else 1)


def test_a_missing_folder_is_no_trouble_of_the_server() -> None:
    with answering(404, remote_exception("FileNotFoundException")) as (address, asked):
        storage = Storage(f"webhdfs://{address}/history")
        assert not storage.is_there()
        assert storage.list_files() == []
        assert len(asked) == 2


def test_secrets_are_not_shown() -> None:
    assert shown_url("s3://key:secret@bucket/a?session_token=x") == "s3://bucket/a"
    assert shown_url("/a?b") == "/a?b"
    error = unavailable("s3://key:secret@bucket/a", OSError("AWS Error ACCESS_DENIED during x"))
    assert str(error) == (
        "s3://bucket/a: AWS Error ACCESS_DENIED during x; has the account that the environment "
        "names the right to do this?"
    )


def test_an_erasure_that_does_not_reach_the_places_says_that_not_all_is_erased(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = reserved_ports(1)
    append(tmp_path / "history", some_fixes(50))
    places = f"webhdfs://127.0.0.1:{port}/places"
    words = ["history", "erase", "--out", str(tmp_path / "history"), "--places", places]
    assert main([*words, "--device", "u/d2"]) == 1
    assert "this can not be undone" in capsys.readouterr().err
    assert main([*words, "--device", "u/d2", "--yes"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"waylog history: {places}: 127.0.0.1:{port}: Connection refused; ")
    assert said.endswith("; not all is erased: say it again\n")
