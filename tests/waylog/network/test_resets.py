"""Connections that their peers have reset."""

from __future__ import annotations

import socket
import struct

from tests.gateway.mqtt.in_memory import eventually
from waylog.network.resets import has_reset


async def test_only_a_reset_tells_that_nothing_can_be_sent_any_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as made:
            assert not has_reset(made)
            client.shutdown(socket.SHUT_WR)
            assert made.recv(1) == b""
            assert not has_reset(made)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            await eventually(lambda: has_reset(made))
        # A closed socket, and one without TCP, tell nothing.
        assert not has_reset(made)
        for each in socket.socketpair():
            with each:
                assert not has_reset(each)
