"""One address against the limits of the MQTT listener: its connections, and its guesses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import trustme
import uvloop

from gateway.limits.addresses import Addresses, TrustedProxies
from gateway.limits.bounds import HttpLimits
from gateway.limits.failed_logins import FailedLogins, TooManyFailedLogins
from gateway.limits.token_buckets import TokenBuckets
from gateway.mqtt.listening.listener import MqttServer, start_mqtt
from gateway.mqtt.listening.scram import mechanisms_over
from gateway.mqtt.packets.encoder import encode_publish
from gateway.mqtt.settings import Settings
from gateway.users.auth import Authenticator
from gateway.users.database import UserStore
from tests.attacks.workers import workers
from tests.consumers.running import Broker
from tests.gateway.mqtt.in_memory import Addresses as AddressView
from tests.gateway.mqtt.in_memory import Locations, MemoryLog, Push, eventually
from tests.gateway.mqtt.listening import test_enhanced as scram
from tests.ports import reserved_ports
from waylog.config import Endpoint

STRANGER, NEIGHBOUR = "203.0.113.9", "198.51.100.7"
RATE_EXCEEDED, WRONG, SERVER_UNAVAILABLE = 0x9F, 0x86, 0x88
LIMITS = HttpLimits(failures_per_minute_per_address=5.0, connections_per_address_max=3)


def counts() -> FailedLogins:
    """Return counts that time does not take back, however long a test lasts."""
    return FailedLogins(LIMITS, TokenBuckets(clock=lambda: 1.0))


@pytest.fixture
def users(tmp_path: Path) -> Iterator[UserStore]:
    store = UserStore(tmp_path / "users.db")
    yield store
    store.close()


@contextlib.asynccontextmanager
async def listening(
    users: UserStore,
    addresses: Addresses,
    failed_logins: FailedLogins | None = None,
    proxies: tuple[str, ...] = ("127.0.0.1/32",),
    settings: Settings | None = None,
) -> AsyncIterator[MqttServer]:
    failed_logins = counts() if failed_logins is None else failed_logins
    authenticator = Authenticator(users, failed_logins=failed_logins)
    server = await start_mqtt(
        Endpoint("127.0.0.1", 0),
        submitter=MemoryLog(),
        authenticator=authenticator,
        address_view=AddressView(),
        location_view=Locations(),
        pusher=Push(),
        mechanisms=mechanisms_over(users, open_mode=False),
        addresses=addresses,
        failed_logins=failed_logins,
        proxies=TrustedProxies(proxies),
        settings=settings,
    )
    try:
        yield server
    finally:
        await server.close()
        authenticator.close()


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def connect(user: str, password: str) -> bytes:
    body = b"\0\4MQTT\5\xc2\0\0\0" + text("c") + text(user) + text(password)
    return bytes([0x10, len(body)]) + body


class Through:
    """A connection through a trusted proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def come(cls, server: MqttServer, address: str, first: bytes = b"") -> Through:
        through = cls(*await asyncio.open_connection("127.0.0.1", server.endpoint.port))
        header = f"PROXY TCP4 {address} 127.0.0.1 40000 1883\r\n".encode()
        # In two pieces, as a header may arrive in parts.
        through.writer.write(header[:10])
        await asyncio.sleep(0)
        through.writer.write(header[10:] + first)
        return through

    async def code(self) -> int | None:
        """Return the code of the CONNACK; None if there is none."""
        async with asyncio.timeout(60):
            head = await self.reader.read(4)
        return head[3] if head[:1] == b"\x20" else None

    def close(self) -> None:
        self.writer.close()


async def attempt(server: MqttServer, address: str, user: str, password: str) -> int | None:
    through = await Through.come(server, address, connect(user, password))
    code = await through.code()
    through.close()
    await eventually(lambda: server.gauge("connections") == 0)
    return code


async def test_who_guesses_is_not_verified_any_more_and_nobody_else_notices(
    users: UserStore,
) -> None:
    token = users.add("ada")
    assert token is not None
    failed_logins = counts()
    async with listening(users, Addresses(LIMITS), failed_logins) as server:
        assert await attempt(server, STRANGER, "ada", token) == 0
        codes = [await attempt(server, STRANGER, "ada", f"wl_guess{n}") for n in range(7)]
        assert codes == [WRONG] * 5 + [RATE_EXCEEDED] * 2
        # The HTTP listener uses the same counters.
        failed_logins.require_room(NEIGHBOUR)
        with pytest.raises(TooManyFailedLogins):
            failed_logins.require_room(STRANGER)
        # Verified clients are still served, whoever guesses from the same address.
        assert await attempt(server, STRANGER, "ada", token) == 0
        assert await attempt(server, NEIGHBOUR, "ada", token) == 0
        assert server.counters["guesses_refused"] == 2


async def test_where_nobody_can_be_authenticated_not_each_attempt_is_logged(
    users: UserStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(users, Addresses(LIMITS)) as server:
        users.close()

        async def come(number: int) -> None:
            through = await Through.come(server, f"203.0.113.{number}", connect("ada", "wl_guess"))
            assert await through.code() == SERVER_UNAVAILABLE
            through.close()

        await asyncio.gather(*(come(number) for number in range(200)))
    lines = [each for each in caplog.messages if each.startswith("nobody can be authenticated")]
    assert 0 < len(lines) < 200


async def test_guesses_over_http_count_for_mqtt(users: UserStore) -> None:
    failed_logins = counts()
    async with listening(users, Addresses(LIMITS), failed_logins) as server:
        for _ in range(5):
            failed_logins.wrong(STRANGER)
        assert await attempt(server, STRANGER, "ada", "a password") == RATE_EXCEEDED


async def test_wrong_proofs_count_as_wrong_passwords_do(users: UserStore) -> None:
    users.add("ada")
    addresses = Addresses(LIMITS)
    async with listening(users, addresses) as server:
        for _ in range(5):
            through = await Through.come(server, STRANGER)
            client = scram.Client(through.reader, through.writer)
            assert (await client.prove("ada", "wl_guess")).code == 0x87
            through.close()
        through = await Through.come(server, STRANGER)
        client = scram.Client(through.reader, through.writer)
        assert (await client.connect(b"n,,n=ada,r=abcdefgh")).code == RATE_EXCEEDED
        through.close()


async def test_an_address_has_its_share_of_connections_and_no_more(users: UserStore) -> None:
    token = users.add("ada")
    assert token is not None
    addresses = Addresses(LIMITS)
    async with listening(users, addresses) as server:
        silent = [await Through.come(server, STRANGER) for _ in range(3)]
        await eventually(lambda: server.gauge("connections") == 3)
        refused = await Through.come(server, STRANGER, connect("ada", token))
        assert await refused.code() is None
        refused.close()
        other = await Through.come(server, NEIGHBOUR, connect("ada", token))
        assert await other.code() == 0
        other.close()
        silent.pop().close()
        await eventually(lambda: server.gauge("connections") == 2)
        again = await Through.come(server, STRANGER, connect("ada", token))
        assert await again.code() == 0
        for each in (*silent, again):
            each.close()


class Strangers(Addresses):
    """Counts the machine's own connections like a stranger's, for tests."""

    def connect(self, address: str) -> bool:
        return super().connect(STRANGER)

    def disconnect(self, address: str) -> None:
        super().disconnect(STRANGER)


async def test_connections_count_before_tls_has_begun(users: UserStore) -> None:
    token = users.add("ada")
    assert token is not None
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with listening(users, Strangers(LIMITS), proxies=()) as server:
        await server.start_tls(Endpoint("127.0.0.1", 0), context)
        port = server.tls_endpoint.port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        with pytest.raises((OSError, EOFError)):
            await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
            )
        for _, writer in silent:
            writer.transport.abort()
            writer.close()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError, EOFError):
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
                    )
                    break
        writer.write(connect("ada", token))
        assert (await reader.read(4))[3] == 0
        writer.close()
        await eventually(lambda: server.gauge("connections") == 0)


async def test_a_direct_client_of_a_proxys_address_needs_no_header(users: UserStore) -> None:
    token = users.add("ada")
    assert token is not None
    async with listening(users, Addresses(LIMITS)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port)
        writer.write(connect("ada", token))
        assert (await reader.read(4))[3] == 0
        writer.close()


async def has_ended(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection on which nothing arrives."""
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionResetError):
            return await reader.read(1) == b""
    return True


async def test_a_header_has_to_come_soon_and_a_client_behind_it_stays(users: UserStore) -> None:
    token = users.add("ada")
    assert token is not None
    settings = Settings(connect_timeout_s=0.3)
    async with listening(users, Addresses(LIMITS), settings=settings) as server:
        through = await Through.come(server, STRANGER, connect("ada", token))
        assert await through.code() == 0
        silent, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port)
        writer.write(b"PROXY TCP4 203.0.")
        assert await has_ended(silent)
        writer.close()
        through.writer.write(b"\xc0\0")
        async with asyncio.timeout(60):
            while b"\xd0\0" not in await through.reader.read(100):
                assert not through.reader.at_eof()
        through.close()


async def test_what_is_no_header_ends_the_connection_of_a_proxy(users: UserStore) -> None:
    settings = Settings(connect_timeout_s=600)
    async with listening(users, Addresses(LIMITS), settings=settings) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await has_ended(reader)
        writer.close()


async def test_who_does_not_begin_with_tls_is_cut(users: UserStore) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    settings = Settings(connect_timeout_s=0.3)
    async with listening(users, Addresses(LIMITS), proxies=(), settings=settings) as server:
        await server.start_tls(Endpoint("127.0.0.1", 0), context)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.tls_endpoint.port)
        assert await has_ended(reader)
        writer.close()
        await eventually(lambda: server.gauge("connections") == 0)


def encrypted(authority: trustme.CA) -> tuple[ssl.MemoryBIO, ssl.MemoryBIO, ssl.SSLObject]:
    """Return a TLS client without a socket: incoming bytes, outgoing bytes, and the client."""
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    return coming, going, trusting.wrap_bio(coming, going, server_hostname="localhost")


async def through_haproxy(
    port: int, authority: trustme.CA, header: bytes, pieces: int, packet: bytes
) -> bytes:
    """Return the answer to a packet that is sent over TLS after a PROXY header.

    With one piece it has arrived before the connection is accepted.
    """
    connection = socket.create_connection(("127.0.0.1", port))
    coming, going, client = encrypted(authority)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    first = header + going.read()
    if pieces == 1:
        connection.sendall(first)
        first = b""
    reader, writer = await asyncio.open_connection(sock=connection)
    size = -(-len(first) // pieces)
    try:
        for start in range(0, len(first), size or 1):
            writer.write(first[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.do_handshake()
                    break
                writer.write(going.read())
                data = await reader.read(65536)
                if not data:
                    return b""
                coming.write(data)
            client.write(packet)
            writer.write(going.read())
            while True:
                with contextlib.suppress(ssl.SSLWantReadError):
                    return client.read(100)
                data = await reader.read(65536)
                if not data:
                    return b""
                coming.write(data)
    except OSError:  # the server has closed it with unread data
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("pieces", [1, 3, 40])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_proxy_in_front_of_tls_names_its_clients(
    users: UserStore, loop: Callable[[], asyncio.AbstractEventLoop], pieces: int
) -> None:
    token = users.add("ada")
    assert token is not None
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    header = f"PROXY TCP4 {STRANGER} 127.0.0.1 40000 8883\r\n".encode()

    async def attack() -> None:
        failed_logins = counts()
        async with listening(users, Addresses(LIMITS), failed_logins) as server:
            await server.start_tls(Endpoint("127.0.0.1", 0), context)
            port = server.tls_endpoint.port
            wrong = connect("ada", "wl_guess")
            for _ in range(5):
                failed_logins.wrong(STRANGER)
            answer = await through_haproxy(port, authority, header, pieces, wrong)
            assert answer[3] == RATE_EXCEEDED
            # Through the same proxy come another client, and the proxy's own health checks.
            other = header.replace(STRANGER.encode(), NEIGHBOUR.encode())
            answer = await through_haproxy(port, authority, other, pieces, wrong)
            assert answer[3] == WRONG
            for own in (b"PROXY UNKNOWN\r\n", b""):
                answer = await through_haproxy(port, authority, own, pieces, connect("ada", token))
                assert answer[3] == 0
            assert await through_haproxy(port, authority, b"GET / ", pieces, wrong) == b""
            await eventually(lambda: server.gauge("connections") == 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(attack())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connections_by_tls_are_counted_until_they_are_over_and_no_longer(
    users: UserStore, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    token = users.add("ada")
    assert token is not None
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def come() -> None:
        async with listening(users, Strangers(LIMITS), proxies=()) as server:
            await server.start_tls(Endpoint("127.0.0.1", 0), context)
            port = server.tls_endpoint.port
            packet = connect("ada", token)
            for _ in range(2 * LIMITS.connections_per_address_max):
                with contextlib.suppress(ssl.SSLError):  # of a client that does not trust us
                    await through_haproxy(port, stranger, b"", 1, packet)
                answer = await through_haproxy(port, authority, b"", 1, packet)
                assert answer[3] == 0
                await eventually(lambda: server.gauge("connections") == 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(come())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_goes_with_the_end_of_the_handshake_leaves_nothing_behind(
    users: UserStore, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    def come_and_go(port: int, reset: bool) -> None:
        """Send the end of the handshake, a first packet and close_notify in one segment."""
        coming, going, client = encrypted(authority)
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            while True:
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.do_handshake()
                    break
                connection.sendall(going.read())
                coming.write(connection.recv(65536))
            client.write(connect("ada", "wl_guess"))
            with contextlib.suppress(ssl.SSLWantReadError):
                client.unwrap()
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(going.read())

    async def attack() -> None:
        settings = Settings(connect_timeout_s=0.3)
        async with listening(users, Strangers(LIMITS), proxies=(), settings=settings) as server:
            await server.start_tls(Endpoint("127.0.0.1", 0), context)
            port = server.tls_endpoint.port
            for number in range(2 * LIMITS.connections_per_address_max):
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(come_and_go, port, number % 2 == 1)
                await eventually(lambda: server.gauge("connections") == 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(attack())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_all_that_comes_with_the_end_of_the_handshake_is_read_in_order(
    users: UserStore, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    token = users.add("ada")
    assert token is not None
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    # More than one read returns.
    publish = encode_publish(5, "owntracks/ada/phone", b"x" * 10_000, 1, False, False, 1)
    packets = connect("ada", token) + 100 * publish

    async def come() -> None:
        async with listening(users, Addresses(LIMITS), proxies=()) as server:
            await server.start_tls(Endpoint("127.0.0.1", 0), context)
            for _ in range(5):
                port = server.tls_endpoint.port
                answer = await through_haproxy(port, authority, b"", 1, packets)
                assert answer[:1] == b"\x20"
                assert answer[3] == 0
                await eventually(lambda: server.gauge("connections") == 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(come())


def listeners(port: int) -> int:
    """Return the number of sockets that listen on a port of 127.0.0.1."""
    listening = f"0100007F:{port:04X} 00000000:0000 0A"
    return Path("/proc/net/tcp").read_text(encoding="ascii").count(listening)


async def test_every_worker_listens_for_tls_and_knows_a_proxys_clients(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    (port,) = reserved_ports(1)
    options = (
        *("--mqtts", f"127.0.0.1:{port}", "--tls-key", str(tmp_path / "key.pem")),
        *("--tls-certificate", str(tmp_path / "certificate.pem")),
        *("--trusted-proxy", "127.0.0.1/32", "--proxy-protocol"),
    )
    with workers(tmp_path, gateway_broker.address, 3, *options) as running:
        assert listeners(port) == 3
        packet = connect("ada", running.user("ada").token)
        header = f"PROXY TCP4 {STRANGER} 127.0.0.1 40000 8883\r\n".encode()
        # The system distributes the connections, so that each worker gets some.
        for _ in range(25):
            answer = await through_haproxy(port, authority, header, 1, packet)
            assert answer[3] == 0
