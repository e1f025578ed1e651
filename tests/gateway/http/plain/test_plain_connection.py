"""Plain requests on one connection: in pieces, in pipelines, and among others."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.http.listener import HttpServer, start_http
from gateway.http.requests.services import Services
from gateway.limits.addresses import TrustedProxies
from gateway.limits.bounds import HttpLimits
from gateway.limits.turn_clock import STRANGER, PartyTurns
from tests.gateway.mqtt.in_memory import eventually
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog
from tests.late_client import TURNS, check_disconnected
from waylog.config import Endpoint
from waylog.messages import decode_fix
from waylog.network.peer_parties import party_of
from waylog.network.proxy_protocol import ProxyHeader, ProxyHeaderReader

TIME = 1_795_000_000_000


class AcknowledgingLog(MemoryLog):
    """A log that acknowledges appends in the next turn of the event loop."""

    def send(self, *arguments: object) -> None:
        super().send(*arguments)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_soon(self.acknowledge)


@asynccontextmanager
async def listening(
    folder: Path, log: MemoryLog, limits: HttpLimits | None = None, *proxies: str
) -> AsyncIterator[tuple[HttpServer, Services]]:
    async with parts(folder, log=log, limits=limits) as services:
        services.proxies = TrustedProxies(proxies)
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        yield server, services
        await server.close()


def post(number: int, more: bytes = b"", path: bytes = b"/v1/positions") -> bytes:
    body = b'{"lat":1,"lon":2,"time":%d}' % (TIME + number)
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b" % (
        *(path, len(body), more, body),
    )


async def answers(reader: asyncio.StreamReader, count: int) -> list[tuple[int, bytes]]:
    """Return status and body of the next responses."""
    found: list[tuple[int, bytes]] = []
    async with asyncio.timeout(60):
        for _ in range(count):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            found.append((int(head.split(b" ")[1]), await reader.readexactly(length)))
    return found


def times(log: MemoryLog) -> list[int]:
    return [decode_fix(value).time - TIME for _, _, value, _ in log.appended]


async def test_a_pipeline_is_answered_in_order(tmp_path: Path) -> None:
    log = MemoryLog()
    async with listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(b"".join(post(number) for number in range(50)))
        while len(log.appended) < 50:
            await asyncio.sleep(0)
        # The last is acknowledged first, and has to wait for its turn.
        log.deliveries.reverse()
        log.acknowledge()
        found = await answers(reader, 50)
        assert {status for status, _ in found} == {200}
        ids = [json.loads(body)["ids"][0] for _, body in found]
        assert ids == [decode_fix(value).id for _, _, value, _ in log.appended]
        assert times(log) == list(range(50))
        writer.close()


@pytest.mark.parametrize("step", [1, 7, 64])
async def test_requests_survive_any_split_of_the_stream(tmp_path: Path, step: int) -> None:
    log = AcknowledgingLog()
    stream = post(0) + post(1, b"X-Other: y\r\n") + post(2)
    async with listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        for start in range(0, len(stream), step):
            writer.write(stream[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)
        assert [status for status, _ in await answers(reader, 3)] == [200] * 3
        writer.close()
    assert times(log) == [0, 1, 2]


async def test_requests_that_differ_in_their_length_alone_are_all_read(tmp_path: Path) -> None:
    log = AcknowledgingLog()
    # Numbers of more, of fewer and of as many digits, with the last digit the same or another one.
    lengths = [50, 103, 113, 124, 60, 1003, 1013, 99, 100]
    async with listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        for number, length in enumerate(lengths):
            body = b'{"lat":1,"lon":2,"time":%d}' % (TIME + number)
            head = b"POST /v1/positions HTTP/1.1\r\nContent-Length: %d\r\nHost: x\r\n\r\n"
            writer.write(head % length + body.ljust(length))
        found = [status for status, _ in await answers(reader, len(lengths))]
        assert found == [200] * len(lengths)
        writer.close()
    assert times(log) == list(range(len(lengths)))


async def test_other_requests_in_the_pipeline_have_their_turn(tmp_path: Path) -> None:
    log = AcknowledgingLog()
    other = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    async with listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(post(0) + other + post(1) + other)
        found = await answers(reader, 4)
        assert [json.loads(body).get("status") for _, body in found] == [None, "ok", None, "ok"]
        writer.close()
    assert times(log) == [0, 1]


async def test_more_than_a_connection_may_have_under_way_waits(tmp_path: Path) -> None:
    log = MemoryLog()
    async with listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(b"".join(post(number) for number in range(200)))
        await eventually(lambda: len(log.appended) >= 64)
        # Time for more of them, if they did not wait.
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert len(log.appended) == 64
        while len(log.appended) < 200:
            log.acknowledge()
            await asyncio.sleep(0)
        log.acknowledge()
        assert len(await answers(reader, 200)) == 200
        writer.close()


async def test_a_client_that_closes_its_side_gets_its_answers(tmp_path: Path) -> None:
    log = MemoryLog()
    async with listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(post(0))
        writer.write_eof()
        while not log.appended:
            await asyncio.sleep(0)
        log.acknowledge()
        assert (await answers(reader, 1))[0][0] == 200
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("more", [b"", b"Cookie: a=b\r\n"], ids=["plain", "aiohttp"])
async def test_a_client_that_closes_its_side_may_wait_long_for_its_answer(
    tmp_path: Path, more: bytes
) -> None:
    log = MemoryLog()
    async with (
        asyncio.timeout(60),
        listening(tmp_path, log, HttpLimits(header_timeout_s=0.1)) as (server, _),
    ):
        address = (server.endpoint.host, server.endpoint.port)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(post(0, more))
        writer.write_eof()
        while not log.appended:
            await asyncio.sleep(0)
        for _ in range(2):
            # Until the server has looked after all its connections.
            idle, idle_writer = await asyncio.open_connection(*address)
            assert await idle.read() == b""
            idle_writer.close()
        log.acknowledge()
        assert (await answers(reader, 1))[0][0] == 200
        assert await reader.read() == b""
        writer.close()


async def test_a_client_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    log = MemoryLog()
    async with listening(tmp_path, log) as (server, _):
        _, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(post(0) + post(1)[:40])
        while not log.appended:
            await asyncio.sleep(0)
        writer.transport.abort()
        await asyncio.sleep(0.05)
        log.acknowledge()
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(post(0))
        assert (await answers(reader, 1))[0][0] == 200
        writer.close()
    assert times(log) == [0]


async def test_in_open_mode_everybody_is_who_they_say(tmp_path: Path) -> None:
    log = AcknowledgingLog()
    async with listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        for credentials in (b"YWRhOng=", b"Ym9iOng=", b"ZG90L2RvdDp4"):
            writer.write(post(1, b"Authorization: Basic %b\r\n" % credentials))
        assert [status for status, _ in await answers(reader, 3)] == [200, 200, 401]
        writer.close()
    assert [decode_fix(value).user for _, _, value, _ in log.appended if b'"lat"' in value] == [
        *("ada", "bob"),
    ]


async def test_a_failed_append_is_503(tmp_path: Path) -> None:
    log = MemoryLog()
    async with listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(post(0))
        while not log.appended:
            await asyncio.sleep(0)
        log.fail()
        ((status, body),) = await answers(reader, 1)
        assert status == 503
        assert b"not stored" in body
        writer.close()


#: How a client begins that speaks TLS.
TLS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


async def test_who_speaks_tls_is_told_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(60), listening(tmp_path, MemoryLog()) as (server, _):
        address = (server.endpoint.host, server.endpoint.port)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(TLS)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(b'{"error":"no HTTP request begins like this: TLS?"}')
        assert b"\r\nConnection: close\r\n" in answer
        assert b"Retry-After" not in answer  # it would not help
        writer.close()
        # Also behind a request that has been answered.
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n[" + TLS)
        assert [status for status, _ in await answers(reader, 1)] == [400]
        assert b"TLS?" in await reader.read()
        writer.close()


async def test_what_is_no_request_does_not_answer_the_one_before_it(tmp_path: Path) -> None:
    log = MemoryLog()
    async with asyncio.timeout(60), listening(tmp_path, log) as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(post(0) + TLS)
        while not log.appended:
            await asyncio.sleep(0)
        log.acknowledge()
        assert (await answers(reader, 1))[0][0] == 200
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()


@pytest.mark.parametrize("begin", [b"\r\nGET", b"GET", b"HEAD"])
async def test_the_beginning_of_a_request_may_come_alone(tmp_path: Path, begin: bytes) -> None:
    async with asyncio.timeout(60), listening(tmp_path, MemoryLog()) as (server, _):
        address = (server.endpoint.host, server.endpoint.port)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(begin + b" /heal")
        # By then the server has read it.
        for _ in range(2):
            other, asking = await asyncio.open_connection(*address)
            asking.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await answers(other, 1))[0][0] == 200
            asking.close()
        writer.write(b"thz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()


# --- who is asking ------------------------------------------------------------------------------


async def test_one_address_behind_a_proxy_does_not_use_up_the_share_of_another(
    tmp_path: Path,
) -> None:
    log = AcknowledgingLog()
    limits = HttpLimits(requests_per_s_per_address=0.01)  # one request at once
    async with listening(tmp_path, log, limits, "127.0.0.0/8") as (server, _):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        for number in range(30):
            writer.write(post(number, b"X-Forwarded-For: 6.6.6.6, 198.51.100.7\r\n"))
        writer.write(post(99, b"X-Forwarded-For: 198.51.100.8\r\n"))
        found = [status for status, _ in await answers(reader, 31)]
        assert found == [200] + [503] * 29 + [200]
        writer.close()


async def test_a_proxy_says_whom_it_passes_on(tmp_path: Path) -> None:
    log = AcknowledgingLog()
    limits = HttpLimits(connections_per_address_max=1)
    async with listening(tmp_path, log, limits, "127.0.0.1") as (server, services):
        services.proxy_protocol = True
        header = b"PROXY TCP4 198.51.100.7 127.0.0.1 1234 80\r\n"
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(header + post(0))
        assert (await answers(reader, 1))[0][0] == 200
        second, closing = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        closing.write(header + post(1))
        assert (await answers(second, 1))[0] == (
            503,
            b'{"error":"too many connections from your address"}',
        )
        closing.close()
        writer.close()
        # Nobody can read without credentials, from this machine or through a proxy.
        services.authenticator.open_mode = False
        third, asking = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        asking.write(header.replace(b".7", b".9"))
        asking.write(b"GET /v1/devices HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await answers(third, 1))[0][0] == 401
        asking.close()
        # A connection without the header is closed.
        fourth, without = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        without.write(post(2))
        assert await fourth.read() == b""
        without.close()


async def test_whom_a_proxy_passes_on_is_known_to_the_complete_server_too(tmp_path: Path) -> None:
    limits = HttpLimits(requests_per_s_per_address=0.01)  # one request at once
    async with (
        asyncio.timeout(60),
        listening(tmp_path, MemoryLog(), limits, "127.0.0.1") as (server, services),
    ):
        services.proxy_protocol = True

        async def ask(number: int) -> int:
            reader, writer = await asyncio.open_connection(
                server.endpoint.host, server.endpoint.port
            )
            writer.write(b"PROXY TCP4 198.51.100.%d 127.0.0.1 1234 80\r\n" % number)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            ((status, _),) = await answers(reader, 1)
            writer.close()
            return status

        assert [await ask(number) for number in (7, 7, 8)] == [200, 503, 200]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET", ProxyHeader("1.2.3.4", 32)),
        (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", ProxyHeader("2001:db8::1", 32)),
        (b"PROXY UNKNOWN\r\n", ProxyHeader(None, 15)),
        (b"PROXY TCP4 1.2.3.4", None),
        (b"PRO", None),
        (b"PROXY TCP4 x y 1 2\r\n", "no address in version 1"),
        (b"PROXY TCP4 " + b"1" * 200, "version 1 without an end"),
        (b"PROXY NONSENSE\r\n", "malformed version 1"),
        (b"GET / HTTP/1.1", "neither version 1 nor 2"),
        (b"\r\n\r\n\0\r\nQUIT\n", None),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack("!H4B4BHH", 12, *range(1, 9), 1, 2),
            ProxyHeader("1.2.3.4", 28),
        ),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00", ProxyHeader(None, 16)),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", "malformed version 2"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x02ab", "version 2 without its addresses"),
        (b"\r\n\r\n\0\r\nQUIT\n\x11\x11\x00\x00", "malformed version 2"),
    ],
)
def test_proxy_headers(data: bytes, expected: object) -> None:
    assert ProxyHeaderReader().read(data) == expected


def test_only_the_word_of_trusted_proxies_is_taken() -> None:
    proxies = TrustedProxies(["10.0.0.0/8"])
    assert proxies.client("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.2") == "1.2.3.4"
    assert proxies.client("1.2.3.4", "6.6.6.6") == "1.2.3.4"
    assert proxies.client("10.0.0.1", "nonsense") == "10.0.0.1"
    assert proxies.client("10.0.0.1", None) == "10.0.0.1"
    assert "unix" not in proxies
    with pytest.raises(ValueError, match="nonsense"):
        TrustedProxies(["nonsense"])


def test_an_address_is_an_ipv4_address_or_an_ipv6_network() -> None:
    assert party_of("1.2.3.4") == "1.2.3.4"
    assert party_of("2001:db8::1") == party_of("2001:db8::ffff")
    assert party_of("2001:db8:0:1::1") != party_of("2001:db8::1")
    assert party_of("::ffff:1.2.3.4") == "1.2.3.4"


@TURNS
async def test_a_client_that_connects_while_the_listener_stops_is_disconnected(
    tmp_path: Path, turns: int
) -> None:
    async with parts(tmp_path, log=MemoryLog()) as services:
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        address = (server.endpoint.host, server.endpoint.port)
        await check_disconnected(address, server.close, turns)


class LateTurns(PartyTurns):
    """Turns for which everybody waits while `waiting` is a list; the test ends the wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[str, Callable[[], object] | asyncio.Future[None]]] | None = None

    def may_begin(self, party: str) -> bool:
        return self.waiting is None and super().may_begin(party)

    def call_soon(self, party: str, callback: Callable[[], object] | asyncio.Future[None]) -> None:
        if self.waiting is None:
            super().call_soon(party, callback)
        else:
            self.waiting.append((party, callback))

    def go_on(self) -> None:
        waiting, self.waiting = self.waiting, None
        for party, callback in waiting or ():
            self.call_soon(party, callback)


async def test_a_request_that_waits_for_its_turn_while_the_listener_stops_is_answered(
    tmp_path: Path,
) -> None:
    log, turns = MemoryLog(), LateTurns()
    async with asyncio.timeout(60), parts(tmp_path, log=log) as services:
        services.turns = turns
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        address = (server.endpoint.host, server.endpoint.port)
        idle, idle_writer = await asyncio.open_connection(*address)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(post(1))
        while not log.appended:
            await asyncio.sleep(0)
        turns.waiting = []
        writer.write(post(2))
        while not turns.waiting:
            await asyncio.sleep(0)
        turns.waiting, waiting = None, turns.waiting
        closing = asyncio.create_task(server.close())
        assert await idle.read() == b""
        idle_writer.close()
        log.acknowledge()
        assert (await answers(reader, 1))[0][0] == 200
        turns.waiting = waiting
        turns.go_on()
        while len(log.appended) < 2:
            await asyncio.sleep(0)
        log.acknowledge()
        assert (await answers(reader, 1))[0][0] == 200
        writer.close()
        await closing


async def test_a_request_waits_for_the_turn_of_whoever_has_sent_it(tmp_path: Path) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n%b\r\n"
    ada, bob = b"Authorization: Basic YWRhOng=\r\n", b"Authorization: Basic Ym9iOng=\r\n"
    turns = LateTurns()
    async with asyncio.timeout(60), listening(tmp_path, MemoryLog()) as (server, services):
        services.turns = turns
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)

        async def party_of_request(data: bytes) -> str:
            turns.waiting = []
            writer.write(data)
            while not turns.waiting:
                await asyncio.sleep(0)
            party = turns.waiting[0][0]
            turns.go_on()
            assert (await answers(reader, 1))[0][0] == 200
            return party

        # The first one comes to aiohttp, and all others after it.
        for _ in range(2):
            for head, user in ((ada, "ada"), (bob, "bob"), (bob, "bob"), (ada, "ada")):
                assert await party_of_request(ask % head) == user
        stranger = await party_of_request(ask % b"")
        assert stranger.startswith(f"{STRANGER}127.0.0.1 ")
        assert await party_of_request(ask % ada) == "ada"
        # A request that begins in an unusual way may be somebody else's.
        assert await party_of_request(b"\r\n" + ask % ada) == stranger
        writer.close()
