"""The cost of a broker with many partitions, and whether all of them come back."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.protocol import definitions as api
from broker_core.protocol.batch_builder import build_batch
from tests.broker_core.server.raw_client import RawClient, produce_body
from tests.contract.broker_process import BrokerProcess
from waylog.config import parse_endpoint

_TOPICS, _PARTITIONS = 10, 1000
_RESIDENT_MIB_MAX = 150
#: A log that is written keeps its file open until it is flushed and was idle for a minute.
_FILES_MAX = _TOPICS * _PARTITIONS + 100
_BATCH = 50


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


async def write_into_all(client: RawClient) -> None:
    """Write one record into each partition."""
    batch = bytes(build_batch([(int(time.time() * 1000), b"k", b"v" * 100, ())]))
    for topic in range(_TOPICS):
        for start in range(0, _PARTITIONS, _BATCH):
            for index in range(start, start + _BATCH):
                client.send(api.PRODUCE, 9, produce_body(f"t{topic}", batch, partition=index))
            for _ in range(_BATCH):
                _, answer = await client.receive(api.PRODUCE, 9)
                (part,) = answer["responses"][0]["partition_responses"]
                assert not part["error_code"]


@pytest.fixture
def few_files() -> Iterator[None]:
    """Set the usual soft limit of a login or a service; a broker raises it by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard <= _FILES_MAX:
        pytest.skip(f"a process may open {hard} files here: ulimit -Hn {2 * _FILES_MAX} is needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
async def test_ten_thousand_partitions_have_bounded_memory_and_files(
    tmp_path: Path, few_files: None
) -> None:
    broker = BrokerProcess(tmp_path, log_flush_interval_messages=str(2**31))
    client = await RawClient.connect(parse_endpoint(broker.start()))
    for topic in range(_TOPICS):
        asked = {
            "name": f"t{topic}", "num_partitions": _PARTITIONS, "replication_factor": 1,
            "assignments": [], "configs": [],
        }  # fmt: skip
        body = {"topics": [asked], "timeout_ms": 60_000, "validate_only": False}
        answer = await client.call(api.CREATE_TOPICS, 5, body)
        assert not answer["topics"][0]["error_code"]
    await write_into_all(client)
    await client.close()

    def check() -> None:
        assert resident_mib(broker.pid) < _RESIDENT_MIB_MAX
        assert len(list(Path(f"/proc/{broker.pid}/fd").iterdir())) < _FILES_MAX

    check()
    assert broker.stop() == 0
    for end in (broker.stop, broker.kill):
        client = await RawClient.connect(parse_endpoint(broker.start()))
        check()
        asked_ends = {
            "name": f"t{_TOPICS - 1}",
            "partitions": [
                {"partition_index": index, "current_leader_epoch": -1, "timestamp": -1}
                for index in range(_PARTITIONS)
            ],
        }
        ends = await client.call(api.LIST_OFFSETS, 6, {"topics": [asked_ends]})
        assert {each["offset"] for each in ends["topics"][0]["partitions"]} == {1}
        await client.close()
        end()
