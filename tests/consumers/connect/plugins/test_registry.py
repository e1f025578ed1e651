"""Connectors by the names that configurations give them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from consumers.connect.file.file_sink import FileStreamSinkConnector
from consumers.connect.plugins.registry import BUILT_IN, ConnectorRegistry, UnknownConnector

_MODULE = """
from consumers.connect.plugins.connector import SourceConnector
from consumers.connect.plugins.source_task import SourceTask

class NothingTask(SourceTask):
    def start(self, properties): ...
    def poll(self): ...
    def stop(self): ...

class NothingConnector(SourceConnector):
    kafka_name = "com.example.nothing.NothingSourceConnector"
    task_class = NothingTask
    def start(self, properties): ...
    def task_configs(self, max_tasks): return [{}]

class Other: ...
"""


def install(folder: Path, module: str, points: str, source: str = _MODULE) -> None:
    """Make a package that is found as an installed one is."""
    (folder / f"{module}.py").write_text(source)
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[waylog.connect]\n{points}\n")


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "FileStreamSinkConnector",
        "FileStreamSink",
        " FileStreamSink ",
        "consumers.connect.file.file_sink.FileStreamSinkConnector",
    ],
)
def test_a_connector_of_kafka_is_found_by_all_its_names(name: str) -> None:
    found = ConnectorRegistry().find(name)
    assert found.name == "org.apache.kafka.connect.file.FileStreamSinkConnector"
    assert found.connector is FileStreamSinkConnector
    assert not found.is_source


def test_an_unknown_connector_is_told_which_there_are() -> None:
    with pytest.raises(UnknownConnector, match=r"FileStreamSource.*FileStreamSink"):
        ConnectorRegistry().find("JdbcSink")


@pytest.mark.parametrize(
    "name",
    [
        *("Nothing", "NothingConnector", "registry_plugin.NothingConnector"),
        *("com.example.nothing.NothingSourceConnector", "NothingSource", "none"),
    ],
)
def test_a_plugin_is_found_by_its_entry_point(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "registry_plugin", "none = registry_plugin:NothingConnector")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        found = ConnectorRegistry().find(name)
        assert found.name == "com.example.nothing.NothingSourceConnector"
        assert found.is_source
        assert len(ConnectorRegistry().all()) == len(BUILT_IN) + 1
    finally:
        sys.modules.pop("registry_plugin", None)


@pytest.mark.parametrize(
    "points", ["a = broken_plugin:Other", "a = broken_plugin:Missing", "a = no_such_module:X"]
)
def test_a_plugin_that_cannot_be_loaded_is_left_out(
    points: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    install(tmp_path, "broken_plugin", points)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        registry = ConnectorRegistry()
        assert len(registry.all()) == len(BUILT_IN)
        assert len(registry.all()) == len(BUILT_IN)
        assert "left out" in caplog.text
        assert len(caplog.records) == 1
    finally:
        sys.modules.pop("broken_plugin", None)
