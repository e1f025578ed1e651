"""The log of a broker whose clients choose names that look like its lines."""

from __future__ import annotations

import asyncio
import re
import struct
from pathlib import Path
from typing import Any

from broker_core.protocol import definitions as api
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.encoder import encode
from broker_core.protocol.schema import AnyApi
from tests.broker_core.server.raw_client import RawClient, produce_body
from tests.contract.broker_process import BrokerProcess
from waylog.config import parse_endpoint

_FORGED = "x\n2026-01-01 00:00:00 INFO    broker_core: forged \x1b[2J"
_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+ +[\w.]+: .*\n")


async def call(
    client: RawClient, served: AnyApi, version: int, body: dict[str, Any]
) -> dict[str, Any]:
    """Send a request with a client id that looks like a line of the log."""
    name = _FORGED.encode()
    header = struct.pack(">hhih", served.key, version, 1, len(name)) + name
    header += b"\0" if served.is_flexible(version) else b""
    frame = header + encode(served.request_plan(version), body)
    client.writer.write(struct.pack(">i", len(frame)) + frame)
    _, answer = await client.receive(served, version)
    return answer


async def test_names_that_clients_choose_are_no_lines_of_the_log(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    client = await RawClient.connect(parse_endpoint(broker.start()))
    records = bytes(build_batch([(1000, b"k", b"v", ())]))
    for _ in range(100):
        answer = await call(client, api.PRODUCE, 8, produce_body(_FORGED, records))
        assert answer["responses"][0]["partition_responses"][0]["error_code"]
    asked = {
        "group_id": _FORGED,
        "member_id": _FORGED,
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    async with asyncio.timeout(60):
        while (await call(client, api.CONSUMER_GROUP_HEARTBEAT, 1, asked))["error_code"]:
            # The group's coordinator is not ready yet.
            await call(client, api.FIND_COORDINATOR, 3, {"key": _FORGED, "key_type": 0})
    await client.close()
    assert broker.stop() == 0
    said = [line for line in broker.output if "forged" in line]
    assert any("is refused" in line for line in said)
    assert any("joins" in line for line in said)
    assert len(said) < 10
    for line in broker.output:
        assert _LINE.fullmatch(line), line
        assert line.rstrip("\n").isprintable()
        assert "broker_core: forged" not in line or r"\n2026-01-01" in line
