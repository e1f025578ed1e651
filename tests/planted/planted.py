"""Processes in which one step of the background work fails once, when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.running import Process

_SITE = Path(__file__).with_name("site")


class PlantedProcess(Process):
    """A `waylog` command that fails in a step, `MODULE:CLASS.METHOD:EXCEPTION`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str, *words: str
    ) -> None:
        self._trigger = tmp_path / "now"
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONPATH", str(_SITE), prepend=":")
            patch.setenv("WAYLOG_PLANT", step)
            patch.setenv("WAYLOG_PLANT_NOW", str(self._trigger))
            super().__init__(*words)

    def kill(self) -> None:
        """Kill it, if it runs."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def fail_now(self) -> None:
        """Fail in that step, the next time that it is taken."""
        self._trigger.touch()

    @property
    def has_ended(self) -> bool:
        """Tell whether the process is gone."""
        return self._process.poll() is not None


#: Starts `waylog WORDS`, with the step that fails: (step, *words).
StartPlanted = Callable[..., PlantedProcess]
