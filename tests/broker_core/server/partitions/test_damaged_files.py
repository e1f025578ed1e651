"""Damaged files: the broker names the file, and does not start as if it were absent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker_core.server.runtime import Broker
from tests.broker_core.server.topics import create_topic
from waylog.config import ConfigError

Start = Callable[..., Awaitable[Broker]]


@pytest.mark.parametrize("content", [b"", b"\xff\x00{garbage", b"[]", b'{"topics": {"t": {}}}'])
@pytest.mark.parametrize("name", ["topics.json", "producer_ids", "meta.properties"])
async def test_a_damaged_file_is_named_and_nothing_is_changed(
    start: Start, tmp_path: Path, name: str, content: bytes
) -> None:
    broker = await start()
    create_topic(broker, "t", 1, {})
    await broker.close()
    path = tmp_path / "logs" / name
    # The first two are there only before the first start of this version.
    right = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    before = {each: each.stat().st_mtime_ns for each in path.parent.rglob("*")}
    with pytest.raises(ConfigError, match=name):
        await start()
    assert {each: each.stat().st_mtime_ns for each in path.parent.rglob("*")} == before
    assert path.read_bytes() == content
    # With the file restored the broker starts: the failed start released its directory lock.
    if right is None:
        path.unlink()
    else:
        path.write_bytes(right)
    again = await start()
    assert again.topics.get("t") is not None
