from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from tests.ports import reserved_ports
from tests.waylog.supervision.test_reserved_ports import address_of, listening, needs_ipv6
from waylog.config import Endpoint
from waylog.network.free_ports import FreePorts, PortTaken

ANY = Endpoint("127.0.0.1", 0)


def test_no_port_is_given_out_twice() -> None:
    ports = FreePorts()
    assert len({ports.settle(ANY) for _ in range(2_000)}) == 2_000


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = FreePorts()
    assert all(1024 < ports.settle(ANY).port < lowest for _ in range(100))


def test_a_port_that_is_listened_on_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Endpoint("127.0.0.1", other.getsockname()[1])
        with pytest.raises(PortTaken) as refused:
            FreePorts().settle(taken)
        assert refused.value.strerror == os.strerror(errno.EADDRINUSE)
        near = FreePorts().settle_near(taken)
        assert near.port != taken.port


def test_another_port_is_one_of_the_same_host() -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        near = FreePorts().settle_near(Endpoint("127.0.0.2", other.getsockname()[1]))
    assert near.host == "127.0.0.2"


class Refusing(FreePorts):
    """A machine that refuses the first addresses that are tried."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.refusals = list(numbers)

    def take(self, endpoint: Endpoint) -> None:
        if self.refusals:
            raise PortTaken(self.refusals.pop(0), "refused")


def test_ports_are_tried_until_one_is_free() -> None:
    assert Refusing(*[errno.EADDRINUSE] * 5).settle(ANY).port


def test_where_none_is_free_the_systems_reason_is_said() -> None:
    with pytest.raises(PortTaken) as refused:
        Refusing(*[errno.EADDRINUSE] * 10_000).settle(ANY)
    assert refused.value.errno == errno.EADDRINUSE


def test_where_no_other_port_would_be_better_none_is_tried() -> None:
    ports = Refusing(errno.EADDRNOTAVAIL, errno.EADDRINUSE)
    with pytest.raises(PortTaken) as refused:
        ports.settle(ANY)
    assert refused.value.errno == errno.EADDRNOTAVAIL
    assert ports.refusals == [errno.EADDRINUSE]


def test_connections_that_are_over_do_not_take_a_port() -> None:
    endpoint = FreePorts().settle(ANY)
    with listening(endpoint) as server, socket.create_connection(address_of(endpoint)):
        connection, _ = server.accept()
        connection.close()  # closed first, so that it leaves a connection in TIME_WAIT here
    assert FreePorts().settle(endpoint) == endpoint


@needs_ipv6
def test_the_same_port_is_free_for_ipv6_where_ipv4_has_it() -> None:
    [port] = reserved_ports(1)  # others may have that of an outgoing connection for IPv6
    with socket.create_server(("0.0.0.0", port)):
        beside = Endpoint("::", port)
        assert FreePorts().settle(beside) == beside


def test_one_platform_does_not_listen_twice_at_one_address() -> None:
    ports = FreePorts()
    first = ports.settle(ANY)
    with pytest.raises(PortTaken, match="another part of this platform"):
        ports.settle(first)
    assert ports.settle_near(first) != first
    named = FreePorts()
    assert named.settle(first) == first
    with pytest.raises(PortTaken, match="another part of this platform"):
        named.settle(first)
    assert named.given == {first}
