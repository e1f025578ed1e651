"""The real disk of a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.environment import SystemDisk


def test_a_file_that_cannot_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="directory"):
        SystemDisk().replace(tmp_path / "taken", b"content")
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]
