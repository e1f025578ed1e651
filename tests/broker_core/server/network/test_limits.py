"""Limits on connections: whom they refuse and why, what they count, and how long others wait."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from broker_core.server.network.limits import ConnectionLimits, ConnectionRefused
from waylog.network.connection_pool import ConnectionPool

TRANSPORT = asyncio.BaseTransport()


def refusal(limits: ConnectionLimits, host: str) -> str:
    """Return why a connection is refused."""
    with pytest.raises(ConnectionRefused) as refused:
        limits.enter(host, TRANSPORT)
    return str(refused.value)


def test_an_address_may_have_a_limit_of_its_own() -> None:
    limits = ConnectionLimits(10, 2, {"a": 1, "b": 3})
    for host, most in (("a", 1), ("b", 3), ("c", 2)):
        parties = [limits.enter(host, TRANSPORT) for _ in range(most)]
        # Refused connections do not count.
        for _ in range(2):
            assert refusal(limits, host) == f"max.connections.per.ip={most}"
        limits.leave(host, parties[0])
        limits.enter(host, TRANSPORT)
    assert limits.connections == 6
    assert limits.refused == 6


def test_the_reason_for_a_refusal_is_the_limit_that_is_reached() -> None:
    whole = ConnectionPool(3)
    limits = ConnectionLimits(2, pool=whole)
    parties = [limits.enter("a", TRANSPORT) for _ in range(2)]
    assert refusal(limits, "a") == "max.connections=2"
    limits.connections_max = 5
    assert limits.connections_max == 5
    parties.append(limits.enter("a", TRANSPORT))
    assert "ulimit -n" in refusal(limits, "a")
    for party in parties:
        limits.leave("a", party)
    assert (limits.connections, limits.refused, whole.used) == (0, 2, 0)


def test_who_has_its_share_of_the_process_has_been_named_in_the_log() -> None:
    limits = ConnectionLimits(8, pool=ConnectionPool(100, lambda _: "uid 7"))
    for _ in range(6):
        limits.enter("127.0.0.1", TRANSPORT)
    assert refusal(limits, "127.0.0.1") == ""
    assert limits.refused == 1


def test_a_connection_is_its_accounts_or_else_its_addresses() -> None:
    local = ConnectionLimits(8, pool=ConnectionPool(8, lambda _: "uid 7"))
    assert local.party_of("127.0.0.1", TRANSPORT) == "uid 7"
    assert ConnectionLimits(8).party_of("2001:db8::1", TRANSPORT) == "2001:db8::/64"


def test_connections_wait_once_a_second_has_had_its_number() -> None:
    limits = ConnectionLimits(10, creation_rate_max=4)
    pauses = [limits.creation_pause_s(host, 100.0) for host in "abcdefgh"]
    assert pauses == [0, 0, 0, 0, 0.25, 0.5, 0.75, 1]
    # Nobody waits longer, however many there are.
    assert limits.creation_pause_s("i", 100.0) == 1
    assert limits.creation_pause_s("j", 102.5) == 0


def test_the_longer_wait_counts() -> None:
    limits = ConnectionLimits(10, creation_rate_max=2, creation_rate_of={"a": 1.0, "b": 8.0}.get)
    assert [limits.creation_pause_s("a", 100.0) for _ in range(2)] == [0, 1]
    assert limits.creation_pause_s("b", 100.0) == 0.5
    assert limits.creation_pause_s("c", 100.0) == 1


def test_addresses_that_have_gone_take_no_memory() -> None:
    limits = ConnectionLimits(10, creation_rate_of=lambda _: 1.0)

    def come_and_go(first: int) -> None:
        for number in range(first, first + 20_000):
            host = f"2001:db8:{number:x}::1"
            party = limits.enter(host, TRANSPORT)
            limits.creation_pause_s(host, 100.0)
            limits.leave(host, party)

    come_and_go(0)
    tracemalloc.start()
    try:
        come_and_go(20_000)
        # What is known of other addresses makes room for them.
        before, _ = tracemalloc.get_traced_memory()
        come_and_go(40_000)
        come_and_go(60_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 500_000
