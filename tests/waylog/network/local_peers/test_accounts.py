"""The account of a connection, as the kernel tells it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from waylog.network.local_peers.accounts import LocalAccounts
from waylog.network.local_peers.connection_ends import ConnectionEnds
from waylog.network.local_peers.peers import working_diagnosis


@pytest.fixture
def accounts() -> Iterator[LocalAccounts]:
    diagnosis = working_diagnosis()
    if diagnosis is None:
        pytest.skip("the kernel does not tell whose a connection is")
    opened = LocalAccounts(diagnosis)
    yield opened
    opened.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_client_that_has_shut_down_its_side_is_known_until_it_closes(
    accounts: LocalAccounts, host: str
) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("there is no IPv6 here")
    with server, closing(socket.create_connection(server.getsockname()[:2])) as client:
        accepted, _ = server.accept()
        with accepted:
            assert accounts.of_local_client(accepted) == os.geteuid()
            client.shutdown(socket.SHUT_WR)
            assert accepted.recv(1) == b""
            assert accounts.of_local_client(accepted) == os.geteuid()
            client.close()
            assert accounts.of_local_client(accepted) is None


def test_a_socket_that_is_not_connected_has_nobody(accounts: LocalAccounts) -> None:
    with socket.socket() as alone:
        assert accounts.of_local_client(alone) is None


def test_where_the_kernel_does_not_tell_nobody_is_known() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(socket.create_connection(server.getsockname())) as client,
    ):
        ends = ConnectionEnds.of_names(client.getsockname(), server.getsockname())
        accounts = LocalAccounts(None)
        assert accounts.of_peer(ends) is None
        accounts.close()
