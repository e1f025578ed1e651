"""Owners of sockets by /proc/net/tcp, and who decides by them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import uvloop

from broker_core.listeners import ListenerConfig, SecurityProtocol
from broker_core.protocol.definitions import API_VERSIONS
from broker_core.server.limits import ConnectionLimits
from broker_core.server.listener import Listener
from broker_core.server.local_accounts.connection_ends import ESTABLISHED, ConnectionEnds
from broker_core.server.local_accounts.guard import LocalAccountsGuard
from broker_core.server.local_accounts.peers import LocalPeers
from broker_core.server.local_accounts.tables import SocketTables, find_owners
from broker_core.server.request import Request
from broker_core.server.session import ListenerSecurity
from tests.broker_core.server.raw_client import RawClient
from waylog.config import Endpoint

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that `waylog broker` uses, and asyncio's."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening


def test_the_tables_name_the_account_of_the_other_end(server: socket.socket) -> None:
    mapped = socket.socket(socket.AF_INET6)
    mapped.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
    with socket.create_connection(server.getsockname()) as plain, mapped:
        for client in (mapped, plain):
            accepted, _ = server.accept()
            with accepted:
                ends = ConnectionEnds.of_names(accepted.getpeername(), accepted.getsockname())
                owner = find_owners([ends])[ends]
            assert (owner.state, owner.uid) == (ESTABLISHED, os.geteuid())
            assert owner.inode == os.fstat(client.fileno()).st_ino


def test_a_table_that_is_not_there_or_cut_off_names_nobody(tmp_path: Path) -> None:
    ends = ConnectionEnds.of_names(("127.0.0.1", 1), ("127.0.0.1", 2))
    table = tmp_path / "tcp"
    table.write_text(HEAD + "   0: 0100007F:0001 0100007F:0002 01 0000\n\n\0\n")
    assert find_owners([ends], [table, tmp_path / "tcp6"]) == {}
    with pytest.raises(FileNotFoundError, match="/proc/net/tcp"):
        find_owners([ends], [tmp_path / "tcp6"])


@pytest.fixture(params=["netlink", "tables"])
async def peers(request: pytest.FixtureRequest) -> AsyncIterator[LocalPeers]:
    opened = LocalPeers.open()
    if request.param == "tables":
        await opened.close()
        opened = LocalPeers(None, SocketTables(), None)
    yield opened
    await opened.close()


async def judged(
    peers: LocalPeers, allowed: frozenset[int], clients: int, *, leave: bool = False
) -> list[bool]:
    """What is decided about connections of this process, which may leave before it is."""
    guard = LocalAccountsGuard("L", "somebody", allowed, peers)
    decisions: list[bool | asyncio.Future[bool]] = []
    writers: list[asyncio.StreamWriter] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            decisions.append(guard.admits(transport))

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Accepted, "127.0.0.1", 0)
    for _ in range(clients):
        if leave:
            with socket.create_connection(server.sockets[0].getsockname()):
                pass
        else:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writers.append(writer)
    async with asyncio.timeout(20):
        while len(decisions) < clients:
            await asyncio.sleep(0.01)
        found = [each if isinstance(each, bool) else await each for each in decisions]
    for writer in writers:
        writer.close()
    server.close()
    return found


def test_a_system_that_tells_nobodys_account_lets_no_broker_start() -> None:
    program = (
        "import asyncio, os, resource\n"
        "from broker_core.server.local_accounts.peers import LocalPeers\n"
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
async def test_requests_wait_until_the_tables_have_told_the_account(
    account: int, is_served: bool
) -> None:
    peers = LocalPeers(None, SocketTables(), None)
    handled: list[Request] = []
    guard = LocalAccountsGuard("L", "", frozenset({os.geteuid() + account}), peers)
    limits = ConnectionLimits(10)
    config = ListenerConfig("L", SecurityProtocol.PLAINTEXT, Endpoint("127.0.0.1", 0), None)
    listener = Listener(
        handled.append,
        ListenerSecurity(config, None, config.endpoint),
        limits,
        frame_bytes_max=1 << 20,
        login_bytes_max=1 << 20,
        idle_ms_max=60_000,
        setup_ms_max=60_000,
        pending_max=10,
        guard=guard,
    )
    endpoint = await listener.bind(config.endpoint)
    await listener.serve()
    client = await RawClient.connect(endpoint)
    try:
        client.send(API_VERSIONS, 0, {})
        if is_served:
            async with asyncio.timeout(20):
                while not handled:
                    await asyncio.sleep(0.01)
        else:
            assert await client.is_closed_by_peer()
            assert (len(handled), limits.refused) == (0, 1)
    finally:
        await client.close()
        await listener.close()
        await peers.close()


async def test_an_account_that_is_named_is_let_in_and_another_is_not(peers: LocalPeers) -> None:
    assert await judged(peers, frozenset({os.geteuid()}), 20) == [True] * 20
    assert await judged(peers, frozenset({os.geteuid() + 1}), 20) == [False] * 20


async def test_who_has_gone_already_is_not_let_in(peers: LocalPeers) -> None:
    everybody = frozenset({0, os.geteuid()})
    assert await judged(peers, everybody, 20, leave=True) == [False] * 20
