from __future__ import annotations

import socket
from pathlib import Path

import pytest

from waylog.config import Endpoint
from waylog.free_ports import FreePorts, PortTaken, free_ports

ANY = Endpoint("127.0.0.1", 0)


def test_no_port_is_given_out_twice() -> None:
    ports = free_ports(2_000)
    assert len(set(ports)) == 2_000


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < port < lowest for port in free_ports(100))


def test_a_port_that_is_listened_on_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Endpoint("127.0.0.1", other.getsockname()[1])
        with pytest.raises(PortTaken):
            FreePorts().settle(taken)
        near = FreePorts().settle_near(taken)
        assert near.port != taken.port


def test_one_platform_does_not_listen_twice_at_one_address() -> None:
    ports = FreePorts()
    first = ports.settle(ANY)
    with pytest.raises(PortTaken, match="another part of this platform"):
        ports.settle(first)
    assert ports.settle_near(first) != first
