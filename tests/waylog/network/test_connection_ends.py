"""What is known of a connection's peer before anything is read from it, and ending it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct

import pytest

from tests.gateway.mqtt.in_memory import eventually
from waylog.network.connection_ends import PeerSide, peer_side, reset


@pytest.mark.parametrize(("sent", "closed"), [(b"", PeerSide.GONE), (b"question", PeerSide.CLOSED)])
async def test_it_is_known_what_a_peer_can_still_do(sent: bytes, closed: PeerSide) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as made:
            assert peer_side(made) is PeerSide.OPEN
            client.sendall(sent)
            assert peer_side(made) is PeerSide.OPEN
            client.shutdown(socket.SHUT_WR)
            # A client that has closed its side may still read an answer, if it has asked for one.
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


class Writing(asyncio.Protocol):
    """Tells when its connection has ended."""

    def __init__(self) -> None:
        self.has_ended = False

    def connection_lost(self, _: Exception | None) -> None:
        self.has_ended = True


async def test_a_client_that_does_not_read_loses_what_is_on_its_way_to_it() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname(), timeout=60) as client:
            transport, protocol = await loop.connect_accepted_socket(Writing, server.accept()[0])
            transport.write(bytes(16 * 1024 * 1024))
            assert transport.get_write_buffer_size()
            reset(transport)
            await eventually(lambda: protocol.has_ended)
            with pytest.raises(ConnectionResetError):
                while client.recv(1 << 20):
                    pass
        # It has ended.
        reset(transport)


async def test_what_is_written_to_a_pipe_can_be_ended_too() -> None:
    reading, writing = os.pipe()
    try:
        transport, protocol = await asyncio.get_running_loop().connect_write_pipe(
            Writing, os.fdopen(writing, "wb")
        )
        transport.write(bytes(1024 * 1024))
        assert transport.get_write_buffer_size()
        reset(transport)
        await eventually(lambda: protocol.has_ended)
    finally:
        os.close(reading)
