"""The HTTP server for metrics, and the metrics themselves."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import FETCH, OFFSET_COMMIT, PRODUCE
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body
from tests.broker_core.server.topics import all_open, create_topic, start_coordinators
from tests.late_client import TURNS, check_disconnected

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def broker(start: Start) -> Broker:
    return await start(metrics_listener="127.0.0.1:0", metrics_hosts="broker-1.example")


def asked(broker: Broker, path: str = "/metrics") -> bytes:
    """Return a request with the metrics token."""
    token = (broker.config.log_dir / "metrics.token").read_text().strip()
    return f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


async def get(broker: Broker, request: bytes | None = None) -> str:
    assert broker.metrics_endpoint is not None
    reader, writer = await asyncio.open_connection(
        broker.metrics_endpoint.host, broker.metrics_endpoint.port
    )
    writer.write(asked(broker) if request is None else request)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer.decode()


async def values(broker: Broker) -> dict[tuple[str, ...], float]:
    """Fetch all values, by name and labels."""
    head, _, body = (await get(broker)).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    return {
        (sample.name.removeprefix("waylog_broker_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


async def test_what_goes_in_and_out_is_counted_by_topic(broker: Broker, connect: Connect) -> None:
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    batch = bytes(build_batch([(1, None, b"one", ()), (1, None, b"two", ())]))
    await client.call(PRODUCE, 8, produce_body("t", batch))
    await client.call(FETCH, 11, fetch_body("t", 0))
    found = await values(broker)
    assert found["topic_messages_in_total", "t"] == 2
    assert found["topic_bytes_in_total", "t"] == len(batch)
    assert found["topic_bytes_out_total", "t"] == len(batch)
    assert found["log_size_bytes", "t"] == len(batch)
    assert found["partitions",] == 1
    assert found["connections", "PLAINTEXT"] == 1
    assert found["flush_seconds_count",] >= 1
    assert found["process_resident_memory_bytes",] > 0


async def test_a_request_that_waits_has_its_time_elsewhere(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    await client.call(FETCH, 11, fetch_body("t", 0, max_wait_ms=200))
    found = await values(broker)
    assert found["request_seconds_count", "Fetch"] == 1
    assert found["request_part_seconds_total", "Fetch", "remote"] > 0.15
    parts = [
        found["request_part_seconds_total", "Fetch", part]
        for part in ("queue", "local", "remote", "response")
    ]
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(found["request_seconds_sum", "Fetch"])
    assert found["request_bytes_total", "Fetch"] > 10


async def test_the_lag_of_a_group_is_known(broker: Broker, connect: Connect) -> None:
    await start_coordinators(broker)
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    batch = bytes(build_batch([(1, None, b"x", ())] * 5))
    await client.call(PRODUCE, 8, produce_body("t", batch))
    part = {"partition_index": 0, "committed_offset": 2, "committed_metadata": None}
    body = {
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [part]}],
        "generation_id_or_member_epoch": -1,
        "member_id": "",
    }
    await client.call(OFFSET_COMMIT, 5, body)
    found = await values(broker)
    assert found["group_lag", "g", "t"] == 3


@pytest.mark.parametrize("path", ["/metrics", "/"])
async def test_many_partitions_are_looked_at_beside_other_work(start: Start, path: str) -> None:
    broker = await start(metrics_listener="127.0.0.1:0", replica_lag_time_max_ms="3600000")
    create_topic(broker, "t", 1000, {})
    await all_open(broker, "t")
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        answer = asyncio.create_task(get(broker, asked(broker, path)))
        most = 0
        while not answer.done():
            earlier = calls
            await asyncio.sleep(0)
            most = max(most, calls - earlier)
    finally:
        sys.setprofile(before)
    assert "1000" in await answer
    # As many turns of the event loop as there are hundreds of partitions.
    assert most < 3000


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", "200"),
        (b"GET / HTTP/1.1\r\n\r\n", "401"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "401"),
        (b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer wlm_x\r\n\r\n", "401"),
        (b"GET /metrics HTTP/1.1\r\nAuthorization: Basic \xff\r\n\r\n", "401"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"nonsense\r\n\r\n", "405"),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:9404\r\n\r\n", "200"),
        (b"GET /healthz HTTP/1.1\r\nhost: LOCALHOST\r\n\r\n", "200"),
        (b"GET /healthz HTTP/1.1\r\nHost: broker-1.example:9404\r\n\r\n", "200"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", "421"),
        (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", "421"),
    ],
)
async def test_other_requests_have_an_answer(
    broker: Broker, request_text: bytes, status: str
) -> None:
    assert (await get(broker, request_text)).split(" ")[1] == status


async def test_a_request_without_end_is_given_up(broker: Broker) -> None:
    assert await get(broker, b"GET /metrics HTTP/1.1\r\n" + b"x" * 20_000) == ""


async def test_without_a_listener_nothing_is_counted(start: Start) -> None:
    broker = await start()
    assert broker.network.metrics is None
    assert broker.metrics_endpoint is None


async def test_whoever_reads_the_counts_shows_the_token(broker: Broker) -> None:
    file = broker.config.log_dir / "metrics.token"
    assert file.stat().st_mode & 0o077 == 0
    assert (await get(broker, asked(broker, "/"))).split(" ")[1] == "200"
    # A browser sends this after it has asked its user for a name and a password.
    basic = base64.b64encode(f"anybody:{file.read_text().strip()}".encode()).decode()
    request = f"GET /metrics HTTP/1.1\r\nAuthorization: Basic {basic}\r\n\r\n"
    assert "waylog_broker_partitions" in await get(broker, request.encode())
    refused = await get(broker, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert "WWW-Authenticate: Basic" in refused and "waylog_broker" not in refused


async def test_an_operator_may_have_the_counts_told_to_everybody(start: Start) -> None:
    broker = await start(metrics_listener="127.0.0.1:0", metrics_access="public")
    assert "waylog_broker_partitions" in await get(broker, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_brokers_of_a_machine_share_a_token(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "metrics.token"
    file.write_text("a token of the operator\n")
    broker = await start(metrics_listener="127.0.0.1:0", metrics_token_file=str(file))
    request = b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer a token of the operator\r\n\r\n"
    assert "waylog_broker_partitions" in await get(broker, request)


async def test_a_token_that_is_too_short_ends_the_start(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "metrics.token"
    file.write_text("short\n")
    with pytest.raises(OSError, match=r"metrics.token.file: .* holds no token"):
        await start(metrics_listener="127.0.0.1:0", metrics_token_file=str(file))


@TURNS
async def test_a_client_that_connects_while_the_metrics_stop_is_disconnected(
    broker: Broker, turns: int
) -> None:
    endpoint, server = broker.metrics_endpoint, broker.metrics_server
    assert endpoint is not None
    assert server is not None
    await check_disconnected((endpoint.host, endpoint.port), server.close, turns)
