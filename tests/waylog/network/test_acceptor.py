"""Connections are accepted quickly, none is lost, and nobody waits behind those that have gone."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import resource
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.ports import reserved_ports
from waylog.config import Endpoint
from waylog.network.acceptor import Acceptor
from waylog.network.bind_addresses import bind_addresses

_ENDPOINT = Endpoint("127.0.0.1", 0)


@pytest.fixture(autouse=True, scope="module")
def no_garbage() -> None:
    """Close what the tests before have left open, so that it does not end while files are counted.

    A Kafka client closes its connections when it is collected.
    """
    gc.collect()


class Echo(asyncio.Protocol):
    """Returns what it is sent; `made` counts the connections."""

    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        type(self).made += 1
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@pytest.fixture
def echo() -> type[Echo]:
    class Own(Echo):
        made = 0

    return Own


@asynccontextmanager
async def accepting(echo: type[Echo]) -> AsyncIterator[tuple[Acceptor, tuple[str, int]]]:
    acceptor = Acceptor(echo)
    acceptor.bind(_ENDPOINT, reuse_port=False)
    acceptor.listen()
    try:
        yield acceptor, ("127.0.0.1", acceptor.address.port)
    finally:
        await acceptor.close()
        await asyncio.sleep(0)


@pytest.fixture
def two_addresses() -> None:
    if set(bind_addresses(Endpoint("", 0))) != {"0.0.0.0", "::"}:
        pytest.skip("needs IPv4 and IPv6: all interfaces are one address here")


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all connections that wait in the kernel be accepted in one iteration of the loop."""
    monkeypatch.setattr("waylog.network.acceptor._TURN_S", 60.0)
    monkeypatch.setattr("waylog.network.acceptor._TURN_S_MAX", 60.0)
    monkeypatch.setattr("waylog.network.acceptor._WAITING_MAX", 1_000)


#: Standard input, output and errors.
_STANDARD_FILES = 3


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let the process open no file, whatever it closes meanwhile; those that are open stay so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for standard in range(_STANDARD_FILES):
        os.fstat(standard)  # it is open
    # Threads of other tests may poll: poll(2) refuses more files than the limit.
    resource.setrlimit(resource.RLIMIT_NOFILE, (_STANDARD_FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


async def echoed(address: tuple[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"here")
    try:
        return await reader.readexactly(4)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_every_connection_is_served_with_its_peers_name(echo: type[Echo]) -> None:
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        assert await asyncio.gather(*(echoed(address) for _ in range(100))) == [b"here"] * 100
        assert echo.made == 100


async def test_many_connections_are_accepted_in_one_iteration(echo: type[Echo]) -> None:
    async with accepting(echo) as (_, address):
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection(address))
            iterations = 0
            while echo.made < 200:
                iterations += 1
                await asyncio.sleep(0)
            assert iterations < 150


async def test_what_has_connected_has_turns_of_the_loop_between_those_that_wait(
    echo: type[Echo],
) -> None:
    async with accepting(echo) as (_, address):
        with ExitStack() as stack:
            for _ in range(400):
                stack.enter_context(socket.create_connection(address))
            seen = set()
            while echo.made < 400:
                await asyncio.sleep(0)
                seen.add(echo.made)
            # Nobody accepts four hundred in a millisecond.
            assert len(seen) > 2


async def test_the_longer_an_iteration_was_the_more_is_accepted_within_bounds(
    echo: type[Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0

    def monotonic() -> float:
        nonlocal now
        now += 0.000_2  # what it takes to accept a connection
        return now

    monkeypatch.setattr("waylog.network.acceptor.time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr("waylog.network.acceptor._WAITING_MAX", 1_000)
    async with accepting(echo) as (_, address):
        with ExitStack() as stack:
            for _ in range(340):
                stack.enter_context(socket.create_connection(address))
            accepted = []
            for seconds in (*[0.0] * 12, 0.01, 10.0):
                now += seconds
                before = open_files()
                await asyncio.sleep(0)
                accepted.append(open_files() - before)
            # It has never accepted before: it begins with the most.
            assert 90 <= max(accepted[:3]) <= 101
            assert 1 <= min(accepted[9:12]) <= max(accepted[9:12]) <= 6
            assert 20 <= accepted[12] <= 30
            assert 30 < accepted[13] <= 101


@pytest.mark.usefixtures("long_turns")
async def test_few_of_those_that_wait_get_a_transport_in_an_iteration_in_order() -> None:
    order: list[int] = []

    class Noting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            order.append(transport.get_extra_info("peername")[1])

    async with accepting(cast(type[Echo], Noting)) as (_, address), asyncio.timeout(60):
        with ExitStack() as stack:
            ports = []

            def connect() -> None:
                client = stack.enter_context(socket.create_connection(address))
                ports.append(client.getsockname()[1])

            for _ in range(200):
                connect()
            while len(order) < len(ports):
                before = len(order)
                await asyncio.sleep(0)
                assert len(order) - before <= 40
                if len(ports) < 220:
                    connect()  # and more come in the meantime
            assert order == ports


@pytest.mark.usefixtures("long_turns")
async def test_not_too_many_wait_outside_the_kernel(
    echo: type[Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.acceptor._WAITING_MAX", 10)
    monkeypatch.setattr("waylog.network.acceptor._MADE_MAX", 5)
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        with ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(address))
            before, most = open_files(), 0
            while echo.made < 100:
                await asyncio.sleep(0)
                most = max(most, open_files() - before - echo.made)
            # Some have a transport whose protocol has not been told.
            assert 5 < most <= 30


@pytest.mark.usefixtures("long_turns")
async def test_without_files_those_who_left_go_first(
    echo: type[Echo], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.departing_clients._SERVED_MAX", 1)
    monkeypatch.setattr("waylog.network.departing_clients._LONG_S", 3_600.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        with ExitStack() as stack:
            for _ in range(10):
                client = stack.enter_context(socket.create_connection(address))
                client.sendall(b"last")
                client.shutdown(socket.SHUT_WR)
            before = open_files()
            while open_files() - before < 10:
                await asyncio.sleep(0)
            stays = stack.enter_context(socket.create_connection(address))
            with socket.socket() as next_file:
                free = next_file.fileno()
            made = echo.made
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                while echo.made == made:
                    await asyncio.sleep(0)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            stays.sendall(b"here")
            stays.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(stays, 10) == b"here"
            assert "no connection can be accepted now" not in caplog.text


@pytest.mark.usefixtures("long_turns")
async def test_who_leaves_while_it_waits_gets_no_transport(echo: type[Echo]) -> None:
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        before = open_files()
        clients = [socket.create_connection(address) for _ in range(100)]
        while open_files() - before < 200:
            await asyncio.sleep(0)
        for client in clients:
            reset(client)
        assert await echoed(address) == b"here"
        assert echo.made < 80


@pytest.mark.usefixtures("long_turns")
async def test_who_waits_is_told_when_it_closes(echo: type[Echo]) -> None:
    async with accepting(echo) as (acceptor, address), asyncio.timeout(60):
        before = open_files()
        with ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(address))
            while open_files() - before < 200:
                await asyncio.sleep(0)
            await acceptor.close()
            assert echo.made == 100


@pytest.mark.usefixtures("two_addresses")
async def test_all_addresses_of_a_host_are_served(echo: type[Echo]) -> None:
    acceptor = Acceptor(echo)
    [port] = reserved_ports(1)
    acceptor.bind(Endpoint("", port), reuse_port=False)
    acceptor.listen()
    async with asyncio.timeout(60):
        for host in ("127.0.0.1", "::1"):
            assert await echoed((host, port)) == b"here"
        await acceptor.close()


async def test_clients_whose_protocol_fails_are_disconnected_and_keep_nobody_waiting(
    echo: type[Echo], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("waylog.network.departing_clients._LONG_S", 3_600.0)
    failures = 0

    def make() -> Echo:
        nonlocal failures
        if failures < 20:
            failures += 1
            raise LookupError
        return echo()

    async with accepting(cast(type[Echo], make)) as (_, address), asyncio.timeout(60):
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            clients = []
            for _ in range(21):
                client = stack.enter_context(socket.create_connection(address))
                client.sendall(b"last")
                client.shutdown(socket.SHUT_WR)
                client.setblocking(False)
                clients.append(client)
            for client in clients[:20]:
                with suppress(ConnectionResetError):
                    assert await loop.sock_recv(client, 10) == b""
            assert await loop.sock_recv(clients[20], 10) == b"last"
    assert "an accepted connection" in caplog.text


async def test_no_transport_is_made_of_a_connection_that_has_been_reset(echo: type[Echo]) -> None:
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        for _ in range(200):
            connection = socket.create_connection(address)
            connection.sendall(b"never mind")
            reset(connection)
        assert await echoed(address) == b"here"
        assert echo.made == 1


async def test_who_closed_its_side_before_it_was_accepted_is_answered(echo: type[Echo]) -> None:
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        with socket.create_connection(address) as connection:
            connection.sendall(b"last")
            connection.shutdown(socket.SHUT_WR)
            connection.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(connection, 10) == b"last"


async def test_who_asked_for_nothing_and_left_is_not_served(echo: type[Echo]) -> None:
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        for _ in range(200):
            socket.create_connection(address).close()
        assert await echoed(address) == b"here"
        assert echo.made == 1


async def test_who_leaves_waits_for_those_who_stay(
    echo: type[Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.departing_clients._SERVED_MAX", 16)
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        with ExitStack() as stack:
            for _ in range(100):
                leaving = stack.enter_context(socket.create_connection(address))
                leaving.sendall(b"last")
                leaving.shutdown(socket.SHUT_WR)
            assert await echoed(address) == b"here"
            # Those before are under way; they do not end here, where nobody closes them.
            assert echo.made <= 40


async def test_what_waits_takes_few_of_the_processs_files(echo: type[Echo]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        acceptor = Acceptor(echo)
        acceptor.bind(_ENDPOINT, reuse_port=False)
        acceptor.listen()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with ExitStack() as stack:
        for number in range(800):
            client = stack.enter_context(
                socket.create_connection(("127.0.0.1", acceptor.address.port))
            )
            if number % 2:
                client.sendall(b"last")
                client.shutdown(socket.SHUT_WR)
        before = open_files()
        most = 0
        while echo.made < 400:
            await asyncio.sleep(0)
            most = max(most, open_files() - before - echo.made)
        # Half of the files are for connections, and the others for three listeners and the rest.
        assert 3 * most < 512
        await acceptor.close()


async def test_all_who_leave_are_answered_as_soon_as_those_before_them_have_gone(
    echo: type[Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.departing_clients._LONG_S", 3_600.0)
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        with ExitStack() as stack:
            clients = []
            for _ in range(50):
                client = stack.enter_context(socket.create_connection(address))
                client.sendall(b"last")
                client.shutdown(socket.SHUT_WR)
                client.setblocking(False)
                clients.append(client)
            loop = asyncio.get_running_loop()
            for client in clients:
                assert await loop.sock_recv(client, 10) == b"last"


async def test_addresses_are_served_in_turn(
    echo: type[Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.acceptor._TURN_S", 1.0)
    monkeypatch.setattr("waylog.network.acceptor._TURN_S_MAX", 1.0)
    monkeypatch.setattr("waylog.network.acceptor._WAITING_MAX", 1000)
    order: list[str] = []

    class Noting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            order.append(transport.get_extra_info("peername")[0])

    async with accepting(cast(type[Echo], Noting)) as (_, address), asyncio.timeout(60):
        with ExitStack() as stack:
            for host in ["127.0.0.2"] * 300 + ["127.0.0.3"]:
                stack.enter_context(socket.create_connection(address, source_address=(host, 0)))
            while len(order) < 301:
                await asyncio.sleep(0)
    assert order.index("127.0.0.3") <= 1


async def test_the_kernel_takes_little_of_what_a_client_does_not_read(echo: type[Echo]) -> None:
    size = 8 * 1024 * 1024

    class Lavish(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = made[0] = cast(asyncio.Transport, transport)
            self.transport.write(bytes(size))

    made: dict[int, asyncio.Transport] = {}
    async with accepting(cast(type[Echo], Lavish)) as (_, address), asyncio.timeout(60):
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            client.connect(address)
            client.setblocking(False)
            while 0 not in made or not made[0].get_write_buffer_size():
                await asyncio.sleep(0.01)
            # It opens its window by reading much, and then reads no more.
            loop = asyncio.get_running_loop()
            received = 0
            while received < size // 8:
                received += len(await loop.sock_recv(client, 64 * 1024))
            await asyncio.sleep(0.2)
            left = size - received - made[0].get_write_buffer_size()
            assert left < 600_000
        made[0].abort()


async def test_nobody_who_was_accepted_is_forgotten_when_it_closes(echo: type[Echo]) -> None:
    # It closes before it has accepted any, when it has just accepted some, and later.
    for iterations in range(8):
        acceptor = Acceptor(echo)
        acceptor.bind(_ENDPOINT, reuse_port=False)
        acceptor.listen()
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(socket.create_connection(("127.0.0.1", acceptor.address.port)))
            for _ in range(iterations):
                await asyncio.sleep(0)
            await acceptor.close()
            made = echo.made
            for _ in range(5):
                await asyncio.sleep(0)
            assert echo.made == made
    assert echo.made


async def test_without_files_it_pauses_and_says_so_once(
    echo: type[Echo], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.acceptor._PAUSE_S", 0.05)
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.socket()) for _ in range(3)]
            with no_more_files():
                for client in clients:
                    client.connect(address)
                spent = time.thread_time()
                while "no connection can be accepted now" not in caplog.text:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
                assert time.thread_time() - spent < 0.15
                assert not echo.made
                assert caplog.text.count("no connection can be accepted now") == 1
            while echo.made < 3:
                await asyncio.sleep(0.01)


async def test_without_files_it_does_not_try_again_before_a_pause(
    echo: type[Echo], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.acceptor._PAUSE_S", 3_600.0)
    async with accepting(echo) as (_, address), asyncio.timeout(60):
        with socket.socket() as client:
            with no_more_files():
                client.connect(address)
                while "no connection can be accepted now" not in caplog.text:
                    await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0)
            assert not echo.made


@pytest.mark.usefixtures("two_addresses")
async def test_without_files_it_pauses_at_all_addresses(
    echo: type[Echo], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.acceptor._PAUSE_S", 3_600.0)
    [port] = reserved_ports(1)
    acceptor = Acceptor(echo)
    acceptor.bind(Endpoint("", port), reuse_port=False)
    acceptor.listen()
    async with asyncio.timeout(60):
        with socket.socket() as one, socket.socket(socket.AF_INET6) as other:
            with no_more_files():
                one.connect(("127.0.0.1", port))
                other.connect(("::1", port))
                while "no connection can be accepted now" not in caplog.text:
                    await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0)
            assert not echo.made
            await acceptor.close()


@pytest.mark.usefixtures("two_addresses")
@pytest.mark.parametrize("taken", ["0.0.0.0", "::"])
async def test_if_one_address_of_a_host_is_in_use_none_stays_bound(taken: str) -> None:
    family = socket.AF_INET6 if ":" in taken else socket.AF_INET
    # A port of an outgoing connection could be taken at the other address.
    [port] = reserved_ports(1)
    with socket.create_server((taken, port), family=family):
        acceptor = Acceptor(Echo)
        with pytest.raises(OSError, match=re.escape(f"cannot listen on {Endpoint(taken, port)}")):
            acceptor.bind(Endpoint("", port), reuse_port=False)
        again = Acceptor(Echo)
        [free] = {"0.0.0.0", "::"} - {taken}
        again.bind(Endpoint(free, port), reuse_port=False)
        await again.close()


def test_an_address_in_use_is_named() -> None:
    async def bind() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: address alr"):
                Acceptor(Echo).bind(Endpoint("127.0.0.1", port), reuse_port=False)

    asyncio.run(bind())
