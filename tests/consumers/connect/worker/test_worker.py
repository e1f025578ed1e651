"""A worker whose plugins hang: nobody else waits for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from consumers.connect.configuration.variables import NO_VARIABLES
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.plugins import registry
from consumers.connect.plugins.connector import SourceConnector
from consumers.connect.plugins.source_task import SourceTask
from consumers.connect.storage.offset_file import OffsetFile
from consumers.connect.worker import in_thread, standalone, worker
from consumers.connect.worker.standalone import StandaloneWorker
from consumers.connect.worker.worker_settings import worker_settings

_GO_ON = threading.Event()


class HangingConnector(SourceConnector):
    """Hangs where its properties say."""

    task_class = SourceTask

    def start(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._hang("start")

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        self._hang("task_configs")
        return []

    def stop(self) -> None:
        self._hang("stop")

    def _hang(self, where: str) -> None:
        if self._properties["hangs"] == where:
            assert _GO_ON.wait(60)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    reference = f"{__name__}:HangingConnector"
    monkeypatch.setitem(registry.BUILT_IN, "com.example.HangingConnector", reference)
    monkeypatch.setattr(registry, "_load", lambda _reference: HangingConnector)
    monkeypatch.setattr(in_thread, "ANSWER_S", 0.3)
    monkeypatch.setattr(worker, "CONNECTOR_STOP_S", 0.3)
    monkeypatch.setattr(standalone, "CONNECTOR_STOP_S", 0.3)
    _GO_ON.clear()
    return {
        "bootstrap.servers": "127.0.0.1:9",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(tmp_path / "offsets"),
    }


@pytest.mark.parametrize("hangs", ["start", "task_configs", "stop"])
async def test_a_connector_that_hangs_can_be_deleted(
    settings: dict[str, str], hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hangs == "stop":
        monkeypatch.setattr(in_thread, "ANSWER_S", 60.0)
    parsed = worker_settings(settings, NO_VARIABLES)
    made = StandaloneWorker(
        parsed, NO_VARIABLES, OffsetFile(parsed.offset_file), worker_id="w", cluster_id="c"
    )
    config = {"name": "bad", "connector.class": "Hanging", "hangs": hangs}
    creating = made.run("bad", made.herder.put("bad", config, may_replace=False))
    if hangs == "stop":
        await creating
    else:
        with pytest.raises(ConnectException, match="has not been done within"):
            await creating
    await made.run("bad", made.herder.delete("bad"))
    assert made.herder.connectors() == []
    await made.close()
    _GO_ON.set()


async def test_a_worker_ends_while_an_operation_hangs(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_thread, "ANSWER_S", 60.0)
    parsed = worker_settings(settings, NO_VARIABLES)
    made = StandaloneWorker(
        parsed, NO_VARIABLES, OffsetFile(parsed.offset_file), worker_id="w", cluster_id="c"
    )
    config = {"name": "bad", "connector.class": "Hanging", "hangs": "start"}
    made.run_later("bad", made.herder.put("bad", config, may_replace=False))
    await made.close()
    _GO_ON.set()
