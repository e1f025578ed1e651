"""What is known of a connection's peer before anything is read from it."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.gateway.mqtt.in_memory import eventually
from waylog.network.connection_ends import PeerSide, peer_side


@pytest.mark.parametrize(("sent", "closed"), [(b"", PeerSide.GONE), (b"question", PeerSide.CLOSED)])
async def test_it_is_known_what_a_peer_can_still_do(sent: bytes, closed: PeerSide) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as made:
            assert peer_side(made) is PeerSide.OPEN
            client.sendall(sent)
            assert peer_side(made) is PeerSide.OPEN
            client.shutdown(socket.SHUT_WR)
            # Who has closed its side may still read an answer, if it has asked for one.
            await eventually(lambda: peer_side(made) is not PeerSide.OPEN)
            assert peer_side(made) is closed
            # The question is still there.
            assert made.recv(20) == sent
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            await eventually(lambda: peer_side(made) is PeerSide.GONE)
        # A closed socket, and one without TCP, tell nothing.
        assert peer_side(made) is PeerSide.OPEN
        for each in socket.socketpair():
            with each:
                assert peer_side(each) is PeerSide.OPEN
