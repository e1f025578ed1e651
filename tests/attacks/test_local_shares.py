"""Another account of the machine opens idle connections to every port."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.protocol.definitions import API_VERSIONS
from gateway.http.listener import start_http
from gateway.limits.bounds import HttpLimits
from gateway.mqtt.settings import Settings
from tests.attacks.strangers import FRIEND, STRANGER, Idler, Wish, connect_as, needs_root
from tests.broker_core.server.raw_client import request_frame
from tests.certificates import Certificates
from tests.consumers.running import await_condition
from tests.contract.broker_process import BrokerProcess
from tests.end_to_end.running import Platform as RunningPlatform
from tests.end_to_end.running import start_platform
from tests.gateway.mqtt.in_memory import Platform, eventually
from tests.gateway.parts import parts
from waylog.config import Endpoint
from waylog.network.connection_pool import ConnectionPool
from waylog.network.free_ports import FreePorts
from waylog.network.peer_parties import ClientIdentifier

pytestmark = needs_root

TIMEOUT_S = 60.0
#: Files that a process may open (the usual default), and its connections: half of them.
FILES = 1024
ROOM = FILES // 2
#: More connections than there are files.
MANY = 1100
OWNER = 0
KAFKA = request_frame(API_VERSIONS, 0, {})
ANSWERS = {
    "http": b"HTTP/1.1 200",
    "websocket": b"HTTP/1.1 101",
    "mqtt": b"\x20\x02\0\0",
    "mqtts": b"\x20\x02\0\0",
    "metrics": b"HTTP/1.1 200",
    "geocoder": b"HTTP/1.1 200",
    "kafka": KAFKA[8:12],
}


def http_request(path: str, *more: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *more]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def mqtt_connect(user: str, password: str) -> bytes:
    words = [each.encode() for each in ("shares", user, password)]
    texts = b"".join(len(each).to_bytes(2, "big") + each for each in words)
    body = b"\0\x04MQTT\x04\xc2\0\x3c" + texts
    assert len(body) < 128
    return bytes([0x10, len(body)]) + body + 2 * b"\xc0\0"  # the answers have eight bytes


class Ports:
    """The ports of a platform."""

    def __init__(self, platform: RunningPlatform, mqtts: int) -> None:
        self.platform = platform
        words = " ".join(" ".join(each["argv"]) for each in platform.processes().values())
        properties = next(platform.data.glob("broker/*/server.properties")).read_text()
        (metrics,) = re.findall(r"metrics\.listener=127\.0\.0\.1:(\d+)", properties)
        (geocoder,) = set(re.findall(r"--listen 127\.0\.0\.1:(\d+)", words))
        self.of = {"mqtts": mqtts, "metrics": int(metrics), "geocoder": int(geocoder)}
        for name in ("http", "mqtt", "kafka"):
            self.of[name] = int(getattr(platform, name).rpartition(":")[2])
        self.of["websocket"] = self.of["http"]
        token = platform.demo_token
        login = base64.b64encode(f"demo:{token}".encode()).decode()
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        self._requests = {
            "http": http_request("/v1/devices", f"Authorization: Basic {login}"),
            "websocket": http_request("/v1/ws", f"Authorization: Basic {login}", *upgrade, key),
            "mqtt": mqtt_connect("demo", token),
            "mqtts": mqtt_connect("demo", token),
            "metrics": http_request("/healthz"),
            "geocoder": http_request("/reverse?lat=47.14&lon=9.52"),
            "kafka": KAFKA,
        }

    def unanswered(self, account: int, *names: str) -> dict[str, bytes]:
        """Return the answers of these ports to an account that are not the expected ones."""
        wishes = [Wish(self.of[each], self._requests[each], tls=each == "mqtts") for each in names]
        answers = zip(names, connect_as(account, *wishes), strict=True)
        return {name: answer for name, answer in answers if ANSWERS[name] not in answer[:12]}

    def files(self, process: str) -> int:
        """Return the number of files that a process has open."""
        pid = self.platform.processes()[process]["pid"]
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    folder = tmp_path_factory.mktemp("platform")
    pem = Certificates(folder).broker
    mqtts = FreePorts().settle(Endpoint("127.0.0.1", 0))
    tls = f"--mqtts {mqtts} --tls-certificate {pem} --tls-key {pem}"
    options = ("--no-history", f"--gateway-options={tls}")
    platform = start_platform(folder / "data", *options, files=FILES)
    try:
        yield Ports(platform, mqtts.port)
    finally:
        platform.stop()


EVERYBODYS = ("http", "websocket", "mqtt", "mqtts", "metrics", "geocoder")


@pytest.mark.parametrize("attacked", ["http", "mqtt", "mqtts", "metrics", "geocoder", "kafka"])
def test_idle_connections_of_one_account_keep_nobody_else_off_a_port(
    ports: Ports, attacked: str
) -> None:
    process = {"metrics": "broker", "geocoder": "geo", "kafka": "broker"}.get(attacked, "gateway-1")
    before = ports.files(process)
    with Idler(STRANGER, [ports.of[attacked]], MANY):
        assert ports.unanswered(OWNER, "kafka", *EVERYBODYS) == {}
        assert ports.unanswered(FRIEND, *EVERYBODYS) == {}
        assert ports.files(process) < before + ROOM
    await_condition(lambda: ports.files(process) <= before + 8, TIMEOUT_S, "nothing is left over")


def test_connections_to_all_ports_of_a_process_are_of_one_pool(ports: Ports) -> None:
    attacked = [ports.of[each] for each in ("http", "mqtt", "mqtts")]
    with Idler(STRANGER, attacked, ROOM):
        assert ports.unanswered(OWNER, "kafka", *EVERYBODYS) == {}
        assert ports.unanswered(FRIEND, *EVERYBODYS) == {}


def test_requests_that_never_come_whole_keep_nobody_else_off(ports: Ports) -> None:
    head = http_request("/v1/devices", "X-Long: " + 4000 * "x")
    with Idler(STRANGER, [ports.of["http"]], MANY, request=head[:-2]):
        assert ports.unanswered(OWNER, *EVERYBODYS) == {}
        assert ports.unanswered(FRIEND, *EVERYBODYS) == {}


async def test_what_an_account_does_not_send_to_its_end_takes_no_room_from_others(
    tmp_path: Path,
) -> None:
    limits = HttpLimits(partial_bytes_max=1_000_000, partial_bytes_each_max=500_000)
    body = b"[" + 15_990 * b" " + b"malformed"
    request = b"POST /v1/positions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
    part = request[:15_000]
    parties = ClientIdentifier().open()
    async with parts(tmp_path, limits=limits) as services:
        services.connections = ConnectionPool(1000, parties.of)
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        port = server.endpoint.port
        with await asyncio.to_thread(Idler, STRANGER, [port], 200, request=part):
            friend = await asyncio.to_thread(Idler, FRIEND, [port], 3, request=part)
            with friend:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.1)  # so that the request arrives in two parts
                writer.write(request[len(part) :])
                async with asyncio.timeout(TIMEOUT_S):
                    assert await reader.readline() == b"HTTP/1.1 400 Bad Request\r\n"
                writer.close()
                assert await asyncio.to_thread(friend.stop) == 3
        await server.close()
    parties.close()


async def test_what_an_account_does_not_send_of_a_connect_takes_no_room_from_others() -> None:
    settings = Settings(incomplete_bytes_max=100_000, incomplete_bytes_per_user_max=50_000)
    parties = ClientIdentifier().open()
    pool = ConnectionPool(1000, parties.of)
    # A CONNECT of 30,032 bytes, of which 20,000 are sent.
    part = b"\x10\xb0\xea\x01\0\4MQTT\4\x84\0\0\x75\x30".ljust(20_000, b"x")
    async with Platform().listening(settings, connections=pool) as platform:
        port = platform.server.endpoint.port
        counters, shares = platform.server.counters, platform.server.router.accounts.incomplete
        with await asyncio.to_thread(Idler, STRANGER, [port], 20, request=part):
            await eventually(lambda: counters["incomplete_beyond_share"] == 20 - 2)
            assert shares.used == shares.held_by(f"uid {STRANGER}") > 0
            with await asyncio.to_thread(Idler, FRIEND, [port], 1, request=part) as friend:
                await eventually(lambda: shares.held_by(f"uid {FRIEND}") > 0)
                assert await asyncio.to_thread(friend.stop) == 1
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(part)
            await eventually(lambda: shares.held_by("address 127.0.0.1") > 0)
            writer.close()
        await eventually(lambda: shares.used == 0)
    parties.close()


def test_an_account_that_is_alone_has_most_of_a_port(ports: Ports) -> None:
    """A reverse proxy, for example, has an account of its own and serves all users."""
    with Idler(FRIEND, [ports.of["http"]], MANY) as proxy:
        assert proxy.stop() >= 0.7 * ROOM


def test_max_connections_of_a_broker_are_shared_between_accounts(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, max_connections="200")
    broker.start()
    try:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with Idler(STRANGER, [port], 300) as idler:
            assert all(connect_as(FRIEND, *3 * [Wish(port, KAFKA)]))
            assert all(connect_as(OWNER, *3 * [Wish(port, KAFKA)]))
            assert 100 <= idler.stop() <= 150
        said = [line for line in broker.output if "is refused" in line]
        assert len(said) == 1
        assert f"uid {STRANGER} is refused, which has its share" in said[0]
    finally:
        broker.stop()
