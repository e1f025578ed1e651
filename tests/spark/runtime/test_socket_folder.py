"""Spark refuses to start with a folder for its sockets that is too long."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from spark.runtime.socket_folder import FOLDER_CHARACTERS_MAX, socket_folder


@pytest.mark.parametrize("length", range(30, 70, 1))
def test_the_folder_is_never_too_long_for_spark(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="w") as short:
        base = Path(short) / ("x" * (length - len(short) - 1))
        base.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(base))
        folder = socket_folder()
        assert len(str(folder)) <= FOLDER_CHARACTERS_MAX == 61
        assert folder.stat().st_mode & 0o077 == 0
        assert (folder.parent == base) is (length <= 39)
        folder.rmdir()
