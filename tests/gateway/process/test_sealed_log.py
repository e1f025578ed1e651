"""A writer that has no master key, and a log whose values are sealed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.consumers.running import Broker, Process
from tests.consumers.test_without_the_key import MISSING, Log
from tests.gateway.bridge.test_bridge import own_listener
from tests.ports import reserved_ports
from waylog.forwarding.definition import Forwarding, encode, record_key
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import ADDRESS, FORWARDING, LOCATION, VALUE_KEY
from waylog.sealing.sealing import ENVIRONMENT
from waylog.sealing.value_encryption import ensure_master_key

GPX = b"""<gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>
<trkpt lat="47.1" lon="9.5"><time>2024-05-01T10:00:00Z</time></trkpt></trkseg></trk></gpx>"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    broker = Broker(tmp_path)
    try:
        log = Log(broker.address, tmp_path / "master.key")
        yield log
        log.close()
    finally:
        broker.process.stop()


@pytest.fixture
def start(log: Log, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Give a function that starts a gateway; what still runs at the end is stopped."""
    started: list[Process] = []

    def begin(*words: str, environment: dict[str, str] | None = None) -> Process:
        process = Process(
            *("gateway", "--bootstrap-servers", log.servers, "--mqtt", "none"),
            *("--http", f"127.0.0.1:{reserved_ports(1)[0]}", "--data", str(tmp_path), *words),
            environment=environment,
        )
        started.append(process)
        return process

    yield begin
    for each in started:
        each.stop()


def test_a_gateway_does_not_write_in_the_clear_beside_sealed_values(
    log: Log, start: Callable[..., Process]
) -> None:
    log.send(1)
    process = start()
    assert process.wait() == 2, process.output
    assert MISSING in process.output
    assert "Traceback" not in process.output
    process = start(environment=log.has_key)
    process.wait_for("gateway ready")
    assert process.stop() == 0


def test_sealed_forwardings_ask_for_no_key(log: Log, start: Callable[..., Process]) -> None:
    forwarding = Forwarding(name="n", kind="webhook", url="https://example.org", created=1, since=1)
    log.sealed(encode(forwarding), FORWARDING, record_key("ann", "one"))
    assert list(read_topic(log.servers, VALUE_KEY))
    process = start()
    process.wait_for("gateway ready")
    assert process.stop() == 0


def test_a_replay_into_the_log_is_refused(log: Log, tmp_path: Path) -> None:
    log.send(1)
    track = tmp_path / "walk.gpx"
    track.write_bytes(GPX)
    words = ("replay", "--via", "kafka", "--bootstrap-servers", log.servers, str(track))
    process = Process(*words)
    assert process.wait() == 2, process.output
    assert MISSING in process.output
    assert "Traceback" not in process.output
    other = tmp_path / "other.key"
    ensure_master_key(other)
    process = Process(*words, environment={ENVIRONMENT: str(other)})
    assert process.wait() == 2, process.output
    assert "Traceback" not in process.output
    assert len(list(read_topic(log.servers, LOCATION))) == 1
    process = Process(*words, environment=log.has_key)
    assert process.wait() == 0, process.output
    assert len(log.opened(LOCATION)) == 2


async def test_a_bridge_ends_with_a_line_when_sealing_begins(log: Log, tmp_path: Path) -> None:
    async with own_listener(tmp_path) as port:
        process = Process(
            *("bridge", "--mqtt", f"127.0.0.1:{port}", "--addresses", "all"),
            *("--bootstrap-servers", log.servers, "--data", str(tmp_path)),
        )
        try:
            await asyncio.to_thread(process.wait_for, "bridge ready")
            log.append(log.sealed(b"{}", ADDRESS), ADDRESS)
            assert await asyncio.to_thread(process.wait) == 2, process.output
        finally:
            await asyncio.to_thread(process.stop)
    assert MISSING in process.output
    assert "Traceback" not in process.output
