"""Accounts that may connect, as found by netlink and by /proc/net/tcp."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from broker_core.configuration.listeners import ListenerConfig, SecurityProtocol
from broker_core.protocol.definitions import API_VERSIONS
from broker_core.server.network.limits import ConnectionLimits
from broker_core.server.network.listener import Listener
from broker_core.server.network.local_accounts_guard import LocalAccountsGuard
from broker_core.server.network.request import AnyRequest
from broker_core.server.network.request_turns import RequestTurns
from broker_core.server.network.session import ListenerSecurity
from tests.broker_core.server.raw_client import RawClient
from tests.event_loops import on_both_event_loops
from waylog.config import Endpoint
from waylog.network.acceptor import Acceptor
from waylog.network.local_peers.connection_ends import ESTABLISHED, FIN_WAIT_2, ConnectionEnds
from waylog.network.local_peers.netlink import SocketDiagnosis, SocketOwner
from waylog.network.local_peers.peers import LocalAddresses, LocalPeers
from waylog.network.local_peers.tables import SocketTables


@contextlib.asynccontextmanager
async def by_netlink() -> AsyncIterator[LocalPeers]:
    peers = LocalPeers.open()
    yield peers
    await peers.close()


@contextlib.asynccontextmanager
async def by_tables() -> AsyncIterator[LocalPeers]:
    peers = LocalPeers(None, SocketTables(), LocalAddresses(None))
    yield peers
    await peers.close()


OpenPeers = Callable[[], contextlib.AbstractAsyncContextManager[LocalPeers]]


async def judged(
    peers: LocalPeers,
    allowed: frozenset[int],
    clients: int,
    *,
    leave: bool = False,
    reset: bool = False,
    shut_down: bool = False,
) -> list[bool]:
    """Return the decisions about connections of this process, which may close before them.

    The system has no addresses for a connection that was reset. With `shut_down` they close their
    side only.
    """
    guard = LocalAccountsGuard("L", "somebody", allowed, peers)
    decisions: list[bool | asyncio.Future[bool]] = []
    writers: list[asyncio.StreamWriter] = []
    transports: list[asyncio.BaseTransport] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            try:
                decisions.append(guard.admits(transport))
            except Exception as error:
                failures.append(error)
            transports.append(transport)

        def eof_received(self) -> bool:
            return True

    failures: list[Exception] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Accepted, "127.0.0.1", 0)
    for _ in range(clients):
        if leave:
            with socket.create_connection(server.sockets[0].getsockname()) as client:
                if reset:
                    lingering = struct.pack("ii", 1, 0)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
        else:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writers.append(writer)
            if shut_down:
                writer.write_eof()
    try:
        async with asyncio.timeout(60):
            while len(decisions) < clients and not failures:
                await asyncio.sleep(0.01)
            assert not failures
            found = [each if isinstance(each, bool) else await each for each in decisions]
    finally:
        for writer in writers:
            writer.close()
        for transport in transports:
            transport.close()
        server.close()
    return found


def test_a_system_that_tells_nobodys_account_lets_no_broker_start() -> None:
    program = (
        "import asyncio, os, resource\n"
        "from waylog.network.local_peers.peers import LocalPeers\n"
        "async def main():\n"
        # Nothing more can be opened: neither a netlink socket nor a table.
        "    lowest = os.dup(0)\n"
        "    os.close(lowest)\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))\n"
        "    LocalPeers.open()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "ConfigError: local.accounts: this system does not tell whose a connection is" in (
        done.stderr
    )
    assert "waylog up --local-accounts all" in done.stderr


@pytest.mark.parametrize(("account", "is_served"), [(0, True), (1, False)])
@on_both_event_loops
async def test_requests_wait_until_the_tables_have_told_the_account(
    account: int, is_served: bool
) -> None:
    peers = LocalPeers(None, SocketTables(), LocalAddresses(None))
    handled: list[AnyRequest] = []
    guard = LocalAccountsGuard("L", "", frozenset({os.geteuid() + account}), peers)
    limits = ConnectionLimits(10)
    config = ListenerConfig("L", SecurityProtocol.PLAINTEXT, Endpoint("127.0.0.1", 0), None)
    listener = Listener(
        handled.append,
        ListenerSecurity(config, None, config.endpoint),
        limits,
        turns=RequestTurns(asyncio.get_running_loop(), time.monotonic),
        acceptor=Acceptor,
        frame_bytes_max=1 << 20,
        login_bytes_max=1 << 20,
        idle_ms_max=60_000,
        setup_ms_max=60_000,
        pending_max=10,
        guard=guard,
    )
    endpoint = listener.bind(config.endpoint)
    listener.serve()
    client = await RawClient.connect(endpoint)
    try:
        client.send(API_VERSIONS, 0, {})
        if is_served:
            async with asyncio.timeout(60):
                while not handled:
                    await asyncio.sleep(0.01)
        else:
            assert await client.is_closed_by_peer()
            assert (len(handled), limits.refused) == (0, 1)
    finally:
        await client.close()
        await listener.close()
        await peers.close()


@pytest.mark.parametrize("open_peers", [by_netlink, by_tables])
@on_both_event_loops
async def test_an_account_that_is_named_is_let_in_and_another_is_not(
    open_peers: OpenPeers,
) -> None:
    async with open_peers() as peers:
        assert await judged(peers, frozenset({os.geteuid()}), 20) == [True] * 20
        assert await judged(peers, frozenset({os.geteuid() + 1}), 20) == [False] * 20


@pytest.mark.parametrize("open_peers", [by_netlink, by_tables])
@pytest.mark.parametrize("reset", [False, True])
@on_both_event_loops
async def test_who_has_gone_already_is_not_let_in(open_peers: OpenPeers, reset: bool) -> None:
    everybody = frozenset({0, os.geteuid()})
    async with open_peers() as peers:
        assert await judged(peers, everybody, 20, leave=True, reset=reset) == [False] * 20


class Kernel:
    """Gives the same answer to all questions about sockets, or raises it."""

    def __init__(self, answer: SocketOwner | OSError | None) -> None:
        self._answer = answer

    def peer_of(self, ends: ConnectionEnds) -> SocketOwner | None:
        if isinstance(self._answer, OSError):
            raise self._answer
        return self._answer

    def close(self) -> None:
        pass


class SlowKernel:
    """A Kernel whose answer comes a little later."""

    def __init__(self, answer: SocketOwner | OSError | None) -> None:
        self._answer = answer

    def peer_of(self, ends: ConnectionEnds) -> asyncio.Future[SocketOwner | None]:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[SocketOwner | None] = loop.create_future()
        if isinstance(self._answer, OSError):
            loop.call_soon(told.set_exception, self._answer)
        else:
            loop.call_soon(told.set_result, self._answer)
        return told


def told(answer: SocketOwner | OSError | None, *, soon: bool = False) -> LocalPeers:
    if soon:
        return LocalPeers(None, cast(SocketTables, SlowKernel(answer)), LocalAddresses(None))
    return LocalPeers(cast(SocketDiagnosis, Kernel(answer)), None, LocalAddresses(None))


SYN_SENT = 2


@pytest.mark.parametrize(
    ("answer", "is_let_in"),
    [
        (SocketOwner(ESTABLISHED, 4711, 1), True),
        (SocketOwner(ESTABLISHED, 4712, 1), False),
        # No process has the socket any more, so the uid may be root's without a reason.
        (SocketOwner(ESTABLISHED, 4711, 0), False),
        (SocketOwner(FIN_WAIT_2, 4711, 1), True),
        (SocketOwner(SYN_SENT, 4711, 1), False),
        (None, False),
        (OSError("no memory"), False),
    ],
)
@pytest.mark.parametrize("soon", [False, True])
@on_both_event_loops
async def test_only_a_socket_that_is_open_and_somebodys_tells_whose_it_is(
    answer: SocketOwner | OSError | None, is_let_in: bool, soon: bool
) -> None:
    assert await judged(told(answer, soon=soon), frozenset({4711}), 3) == [is_let_in] * 3


@on_both_event_loops
async def test_what_is_told_of_a_connection_that_has_ended_may_be_of_the_next_one() -> None:
    owner = SocketOwner(ESTABLISHED, 4711, 1)
    assert await judged(told(owner), frozenset({4711}), 20, leave=True, reset=True) == [False] * 20


@pytest.mark.parametrize("open_peers", [by_netlink, by_tables])
@on_both_event_loops
async def test_who_has_asked_and_shut_down_its_side_is_let_in_or_refused_aloud(
    open_peers: OpenPeers, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = frozenset({os.geteuid()}), frozenset({os.geteuid() + 1})
    async with open_peers() as peers:
        assert await judged(peers, own, 20, shut_down=True) == [True] * 20
        assert not caplog.text
        assert await judged(peers, other, 20, shut_down=True) == [False] * 20
        async with asyncio.timeout(60):
            while "is not among local.accounts" not in caplog.text:
                await asyncio.sleep(0.01)


@on_both_event_loops
async def test_refusals_are_told_together_and_not_of_those_who_have_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    allowed = frozenset({4711})
    assert await judged(told(None), allowed, 20, leave=True) == [False] * 20
    await loop.run_in_executor(None, os.getpid)  # after what was to be told before
    assert not caplog.messages
    root = SocketOwner(ESTABLISHED, 0, 1)
    assert await judged(told(root), allowed, 20) == [False] * 20
    await loop.run_in_executor(None, os.getpid)
    (said,) = caplog.messages
    assert "(uid 0) is not among local.accounts=somebody" in said
