"""The party that a connection counts for."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import closing
from typing import Any

import pytest

from waylog.network.local_peers.peers import working_diagnosis
from waylog.network.peer_parties import OWN, ClientIdentifier


class Names(asyncio.BaseTransport):
    """A transport that reports the given addresses of a connection."""

    def __init__(self, peer: Any, own: Any) -> None:
        super().__init__({"peername": peer, "sockname": own})


@pytest.fixture
def parties() -> Any:
    opened = ClientIdentifier().open()
    yield opened
    opened.close()


def test_the_account_of_this_process_is_not_counted(parties: ClientIdentifier) -> None:
    diagnosis = working_diagnosis()
    if diagnosis is None:
        pytest.skip("the kernel does not tell whose a connection is")
    diagnosis.close()
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.create_connection(server.getsockname())) as client,
    ):
        names = Names(client.getsockname(), server.getsockname())
        assert parties.of(names) == OWN
        client.shutdown(socket.SHUT_WR)
        assert parties.of(names) == OWN, "it waits for an answer"
        # Root may be named as the owner of a socket that no process holds any more.
        client.close()
        assert parties.of(names) not in {OWN, f"uid {os.geteuid()}"}


def test_other_machines_are_counted_by_address_and_by_network(parties: ClientIdentifier) -> None:
    own = ("192.0.2.1", 80)
    assert parties.of(Names(("198.51.100.7", 1234), own)) == "198.51.100.7"
    six = ("2001:db8::1", 80, 0, 0)
    one = parties.of(Names(("2001:db8:1:2::3", 1, 0, 0), six))
    assert one == parties.of(Names(("2001:db8:1:2:ffff::", 2, 0, 0), six)) == "2001:db8:1:2::/64"


def test_other_machines_may_be_left_out() -> None:
    parties = ClientIdentifier(count_addresses=False).open()
    assert parties.of(Names(("198.51.100.7", 1234), ("192.0.2.1", 80))) == OWN
    parties.close()


@pytest.mark.parametrize("peer", [None, "", ("127.0.0.1", 1)])
def test_a_local_peer_that_nobody_knows_is_counted(parties: ClientIdentifier, peer: Any) -> None:
    assert parties.of(Names(peer, ("127.0.0.1", 2))) not in {OWN, f"uid {os.geteuid()}"}


def test_before_it_is_opened_all_accounts_are_one_party() -> None:
    parties = ClientIdentifier()
    one = parties.of(Names(("127.0.0.1", 1), ("127.0.0.1", 2)))
    assert one == parties.of(Names(("127.0.0.9", 3), ("127.0.0.1", 2))) != OWN
