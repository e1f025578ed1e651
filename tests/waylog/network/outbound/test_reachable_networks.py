"""Which addresses connections may go to whose target somebody else chooses."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.config import ConfigError
from waylog.network.outbound.reachable_networks import AddressRefused, ReachableNetworks

#: Translated to IPv4 by a provider; what is in it decides.
NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))

INSIDE = (
    *("127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.5"),
    *("169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1"),
    *("240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fd00::1"),
    *("fec0::1", "ff02::1", "2001:db8::1"),
    # Addresses of IPv4 in those of IPv6.
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b:1::7f00:1", "2002:7f00:1::1", "2001:0:7f00:1::1"),
)


@pytest.mark.parametrize("address", INSIDE)
def test_what_is_not_in_the_internet_is_refused(address: str) -> None:
    refusal = ReachableNetworks().refusal(address, 443)
    assert refusal is not None
    assert address in refusal


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_the_internet_is_allowed(address: str) -> None:
    assert ReachableNetworks().refusal(address, 443) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_nothing_else_than_global_addresses_is_allowed(address: IPv4Address | IPv6Address) -> None:
    if ReachableNetworks().refusal(str(address), 443) is None:
        assert address.is_global or any(address in each for each in NAT64)
        assert not address.is_multicast


def test_networks_of_the_operator_are_allowed_but_for_the_platforms_ports() -> None:
    networks = ReachableNetworks(["192.168.1.0/24", "fd00::/8"], {9092})
    assert networks.refusal("192.168.1.5", 8123) is None
    assert networks.refusal("::ffff:192.168.1.5", 8123) is None
    assert networks.refusal("fd00::5", 8123) is None
    assert networks.refusal("192.168.2.5", 8123) is not None
    assert "9092" in (networks.refusal("192.168.1.5", 9092) or "")
    assert "9092" in (networks.refusal("::ffff:192.168.1.5", 9092) or "")


@pytest.mark.parametrize("text", ["192.168.1.5/24", "home", "10.0.0.0/33", ""])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a network"):
        ReachableNetworks([text])


def test_a_socket_is_made_for_the_address_of_the_connection() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))
    with pytest.raises(AddressRefused):
        ReachableNetworks().socket_for(info)
    with ReachableNetworks(["127.0.0.0/8"]).socket_for(info) as made:
        assert made.family == socket.AF_INET


def test_an_address_of_this_machine_is_refused() -> None:
    """A public address of its own is the way to its own ports."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own = probe.getsockname()[0]
    assert ReachableNetworks().refusal(own, 443) is not None
