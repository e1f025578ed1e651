"""Garbage at all three ports: the platform serves on, memory stays flat, refusals have reasons."""

from __future__ import annotations

import base64
import json
import random
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.running import Platform

HUGE = 2**31 - 1
MEBIBYTE = 1024 * 1024


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def send(endpoint: str, data: bytes, wait_s: float = 0.5) -> bytes:
    """Send bytes on a new connection; return what came back until it was closed or timed out."""
    answer = b""
    with socket.create_connection(address_of(endpoint), timeout=wait_s) as connection:
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                answer += part
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass
    return answer


def resident(platform: Platform) -> dict[str, int]:
    """Return the resident bytes of the processes that listen."""
    return {
        name: int(Path(f"/proc/{each['pid']}/statm").read_text().split()[1]) * 4096
        for name, each in platform.processes().items()
        if name in ("broker", "gateway-1")
    }


def post(platform: Platform, path: str, body: bytes, password: str) -> tuple[int, bytes]:
    request = urllib.request.Request(platform.url + path, body, method="POST")
    credentials = base64.b64encode(f"demo:{password}".encode()).decode()
    request.add_header("Authorization", f"Basic {credentials}")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def assert_serves(platform: Platform, device: str) -> None:
    """Check that a fix sent now is acknowledged."""
    fix = {"device": device, "lat": 47.141, "lon": 9.5209}
    status, body = post(platform, "/v1/positions", json.dumps(fix).encode(), platform.demo_token)
    assert status == 200, body
    assert json.loads(body)["accepted"] == 1


def kafka_garbage() -> list[bytes]:
    def frame(body: bytes) -> bytes:
        return struct.pack(">i", len(body)) + body

    def header(key: int, version: int) -> bytes:
        return struct.pack(">hhih", key, version, 7, 4) + b"evil"

    return [
        struct.pack(">i", HUGE),
        struct.pack(">i", -1),
        struct.pack(">i", 100_000_000),  # announced but never sent
        frame(header(3, 1) + struct.pack(">i", HUGE)),  # topics of a metadata request
        frame(header(0, 7) + struct.pack(">hhii", -1, -1, 1000, HUGE)),
        frame(header(1, 4) + b"\xff" * 200),
        frame(header(999, 0)),
        frame(header(18, 99)),
        frame(b"\x00"),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ]


def mqtt_garbage() -> list[bytes]:
    return [
        b"\x10\xff\xff\xff\x7f",  # CONNECT of 256 MB
        b"\x10\xff\xff\xff\xff\xff",  # a remaining length that never ends
        b"\x30\x05\x00\x03abc",  # PUBLISH before CONNECT
        b"\x20\x02\x00\x00",  # a CONNACK from a client
        b"\x10\x0c\x00\x04MQTT\x63\x02\x00\x3c\x00\x00",  # a protocol level that does not exist
        b"\x10\x10\x00\x04MQTT\x04\x82\x00\x3c\x00\x02ab\xff\xff",  # a truncated user name
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ]


def http_garbage() -> list[bytes]:
    return [
        b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(50_000)) + b"\r\n",
        b"\x00\x01\x02\x03" * 100,
        b"POST /owntracks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"FFFFFFFFFFFFFFF\r\n",
    ]


def test_the_platform_serves_on_whatever_is_thrown_at_it(
    platform_starter: Callable[..., Platform],
) -> None:
    platform = platform_starter("--no-history")
    assert_serves(platform, "before")
    before = resident(platform)
    source = random.Random(7)

    for endpoint, frames in (
        (platform.kafka, kafka_garbage()),
        (platform.mqtt, mqtt_garbage()),
        (platform.http, http_garbage()),
    ):
        for garbage in [*frames, *(source.randbytes(source.randint(1, 4000)) for _ in range(20))]:
            send(endpoint, garbage)
        # Many idle connections at once, each announcing more than it sends.
        opening = {
            platform.kafka: struct.pack(">i", 50_000_000),
            platform.mqtt: b"\x10\xff\xff\x7f",
        }
        idle = [socket.create_connection(address_of(endpoint)) for _ in range(100)]
        for connection in idle:
            connection.sendall(opening.get(endpoint, b"POST /owntracks HTTP/1.1\r\n"))
        assert_serves(platform, "meanwhile")
        for connection in idle:
            connection.close()

    assert_serves(platform, "after")
    after = resident(platform)
    for name, size in after.items():
        assert size - before[name] < 30 * MEBIBYTE, f"{name} grew by {size - before[name]} bytes"
    assert all(each["restarts"] == 0 for each in platform.processes().values())


def test_each_refusal_is_explained(platform_starter: Callable[..., Platform]) -> None:
    platform = platform_starter("--no-history")

    status, body = post(platform, "/v1/positions", b'{"lat":1,"lon":2}', "wrong password")
    assert status == 401
    assert json.loads(body)["error"]

    # A fix that can never be accepted goes to topic `error`: an app would repeat it for ever.
    status, body = post(platform, "/v1/positions", b'{"lat": 91, "lon"', platform.demo_token)
    assert status in (200, 400)
    status, body = post(platform, "/owntracks", b"{broken", platform.demo_token)
    assert status == 200, body
    deadline = time.monotonic() + 60
    reasons: list[str] = []
    while time.monotonic() < deadline and len(reasons) < 2:
        printed = platform.waylog(
            "consume", "error", "--from", "beginning", "--exit",
            "--bootstrap-servers", platform.kafka,
        )  # fmt: skip
        reasons = [json.loads(line)["reason"] for line in printed.splitlines()]
    assert len(reasons) >= 2
    assert all(reasons)
    assert platform.demo_token not in printed
