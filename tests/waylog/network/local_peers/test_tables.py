"""Owners of sockets from /proc/net/tcp."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from waylog.network.local_peers.connection_ends import ESTABLISHED, ConnectionEnds
from waylog.network.local_peers.netlink import SocketOwner
from waylog.network.local_peers.tables import SocketTables, find_owners

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


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


def test_state_account_and_inode_are_those_of_the_line(tmp_path: Path) -> None:
    ends = ConnectionEnds.of_names(("127.0.0.1", 1), ("127.0.0.1", 2))
    table = tmp_path / "tcp"
    line = (
        "   0: 0100007F:0001 0100007F:0002 0A 00000003:00000004 05:00000006 00000007  4711 8 99 1\n"
    )
    table.write_text(HEAD + line)
    assert find_owners([ends], [table]) == {ends: SocketOwner(10, 4711, 99)}


def test_a_table_that_is_not_there_or_cut_off_names_nobody(tmp_path: Path) -> None:
    ends = ConnectionEnds.of_names(("127.0.0.1", 1), ("127.0.0.1", 2))
    table = tmp_path / "tcp"
    table.write_text(HEAD + "   0: 0100007F:0001 0100007F:0002 01 0000\n\n\0\n")
    assert find_owners([ends], [table, tmp_path / "tcp6"]) == {}
    with pytest.raises(FileNotFoundError, match="/proc/net/tcp"):
        find_owners([ends], [tmp_path / "tcp6"])


def ends_of(client: socket.socket) -> ConnectionEnds:
    """Return the ends as the server sees them: its peer is the client."""
    return ConnectionEnds.of_names(client.getsockname(), client.getpeername())


async def test_whoever_asks_while_others_are_looked_for_is_answered_by_the_look_after(
    server: socket.socket,
) -> None:
    tables = SocketTables()
    nobody = ConnectionEnds.of_names(("127.0.0.1", 1), ("127.0.0.1", 2))
    with socket.create_connection(server.getsockname()) as first:
        asked = [tables.peer_of(ends_of(first)), tables.peer_of(nobody)]
        await asyncio.sleep(0)  # the first read of the tables has begun
        with socket.create_connection(server.getsockname()) as second:
            asked.append(tables.peer_of(ends_of(second)))
            async with asyncio.timeout(60):
                owner, none, later = await asyncio.gather(*asked)
            assert owner is not None and owner.inode == os.fstat(first.fileno()).st_ino
            assert none is None
            assert later is not None and later.inode == os.fstat(second.fileno()).st_ino
        # With no question left, the next one starts a new read.
        async with asyncio.timeout(60):
            assert await tables.peer_of(nobody) is None
    await tables.close()


async def test_nobody_waits_for_an_answer_any_more_when_the_tables_are_closed(
    server: socket.socket,
) -> None:
    tables = SocketTables()
    with socket.create_connection(server.getsockname()) as client:
        asked = [tables.peer_of(ends_of(client))]
        await asyncio.sleep(0)
        asked.append(tables.peer_of(ends_of(client)))
        await tables.close()
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in answers] == [asyncio.CancelledError] * 2
