"""Damaged files: the broker names the file, and does not start as if it were absent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker_core.protocol.definitions import INIT_PRODUCER_ID
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient
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
    client = await RawClient.connect(broker.endpoint)
    await client.call(
        INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000}
    )
    await client.close()
    await broker.close()
    logs = tmp_path / "logs"
    right = (logs / name).read_bytes()
    (logs / name).write_bytes(content)
    before = sorted(each.name for each in logs.iterdir())
    with pytest.raises(ConfigError, match=name):
        await start()
    assert sorted(each.name for each in logs.iterdir()) == before
    assert (logs / name).read_bytes() == content
    # With the file restored the broker starts: the failed start released its directory lock.
    (logs / name).write_bytes(right)
    again = await start()
    assert again.topics.get("t") is not None
