"""The first commands of docs/connect.md, on a platform as `waylog up` starts it."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.connect.test_standalone import FILE_SINK, FILE_SOURCE
from tests.consumers.running import WAYLOG, Process, await_condition
from tests.docs.test_documents import ROOT, platform, shell_lines
from tests.end_to_end.running import Platform
from tests.ports import reserved_ports

__all__ = ["platform"]

WAIT_S = 60
#: Of the section `Trying it`: two files, the worker, two questions; the topic, and the worker of
#: Kafka's quick start.
LINES = shell_lines(ROOT / "docs" / "connect.md")[:7]
#: As the page writes them.
KAFKA, REST = "127.0.0.1:9092", "127.0.0.1:8083"

# config/connect-standalone.properties of Apache Kafka, without its comments.
STANDALONE = """\
bootstrap.servers=localhost:9092
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true
offset.storage.file.filename=/tmp/connect.offsets
offset.flush.interval.ms=10000
"""


class Folder:
    """The folder in which the commands are given, with a free port for the REST interface."""

    def __init__(self, path: Path, platform: Platform) -> None:
        self.path = path
        self.rest = f"127.0.0.1:{reserved_ports(1)[0]}"
        self._platform = platform

    def run(self, line: str) -> str:
        """Run a line of the page; return what it prints."""
        script = line.replace(KAFKA, self._platform.kafka).replace(REST, self.rest)
        return subprocess.run(
            ["bash", "-ec", script], cwd=self.path, timeout=WAIT_S, check=True, text=True,
            stdout=subprocess.PIPE,
        ).stdout  # fmt: skip

    @contextmanager
    def worker(self, line: str) -> Iterator[Process]:
        """Run the line that starts a worker, which is stopped at the end."""
        program, *words = shlex.split(line)
        assert program == "waylog"
        worker_properties = self.path / words[2]
        with worker_properties.open("a") as file:
            file.write(f"listeners=http://{self.rest}\n")
        running = Process(
            *words,
            program=("sh", "-c", 'cd "$0" && exec "$@"', str(self.path), *WAYLOG),
            environment={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            running.wait_for(f"connect worker ready http://{self.rest}")
            yield running
            assert running.stop() == 0
        finally:
            running.stop()

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file, none before it is there."""
        path = self.path / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def folder(platform: Platform, tmp_path: Path) -> Folder:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt-get install curl")
    return Folder(tmp_path, platform)


def test_what_arrives_is_written_to_a_file_and_the_connector_is_paused(
    platform: Platform, folder: Folder
) -> None:
    *files, start, status, pause, _, _ = LINES
    for line in files:
        folder.run(line)
    with folder.worker(start):
        token = base64.b64encode(f"demo:{platform.demo_token}".encode()).decode()
        fix = urllib.request.Request(
            f"{platform.url}/v1/positions",
            b'{"lat":47.141,"lon":9.5209}',
            {"Authorization": f"Basic {token}"},
        )
        with urllib.request.urlopen(fix, timeout=WAIT_S) as answer:
            (identity,) = json.load(answer)["ids"]

        def written() -> list[dict[str, Any]]:
            return [json.loads(line) for line in folder.lines("fixes.jsonl")]

        await_condition(lambda: identity in {each["id"] for each in written()}, WAIT_S, "the fix")

        def states() -> set[str]:
            told = json.loads(folder.run(status))["fixes"]["status"]
            return {each["state"] for each in (told["connector"], *told["tasks"])}

        await_condition(lambda: states() == {"RUNNING"}, WAIT_S, "all run")
        folder.run(pause)
        await_condition(lambda: states() == {"PAUSED"}, WAIT_S, "all are paused")


def test_the_quick_start_of_kafka_goes_on_as_the_page_says(
    platform: Platform, folder: Folder
) -> None:
    *_, create, start = LINES
    program, *words = shlex.split(create)
    assert program == "waylog"
    platform.waylog(*words, "--bootstrap-servers", platform.kafka)
    own = STANDALONE.replace("localhost:9092", platform.kafka).replace("/tmp/", f"{folder.path}/")
    for name, text in zip(shlex.split(start)[3:], (own, FILE_SOURCE, FILE_SINK), strict=True):
        (folder.path / name).write_text(text)
    (folder.path / "test.txt").write_text("foo\nbar\n")
    with folder.worker(start):
        await_condition(
            lambda: folder.lines("test.sink.txt") == ["foo", "bar"], WAIT_S, "both lines"
        )
