"""The limits of a connection pool and of the parties in it."""

from __future__ import annotations

import asyncio

import pytest

from waylog.network.connection_pool import ConnectionPool


class Client(asyncio.BaseTransport):
    def __init__(self, party: str) -> None:
        super().__init__()
        self.party = party


def party_of(transport: asyncio.BaseTransport) -> str:
    assert isinstance(transport, Client)
    return transport.party


def fill(pool: ConnectionPool, party: str) -> list[str]:
    """Let a party connect until it is refused; return the arguments for `leave`."""
    entered: list[str] = []
    while (told := pool.enter(Client(party))) is not None:
        entered.append(told)
    return entered


def test_one_party_has_three_quarters_and_the_next_half_of_the_rest() -> None:
    pool = ConnectionPool(1000, party_of)
    assert len(fill(pool, "one")) == 750
    assert len(fill(pool, "two")) == 125
    assert len(fill(pool, "three")) == 63
    assert not pool.is_full


def test_who_is_not_counted_finds_room_until_the_pool_is_full() -> None:
    pool = ConnectionPool(1000, party_of)
    fill(pool, "one")
    assert len(fill(pool, "")) == 250
    assert pool.is_full
    assert len(fill(pool, "two")) == 0


def test_nobody_is_asked_while_less_than_half_is_taken() -> None:
    asked: list[str] = []

    def ask(transport: asyncio.BaseTransport) -> str:
        asked.append(party_of(transport))
        return asked[-1]

    pool = ConnectionPool(10, ask)
    for _ in range(5):
        assert pool.enter(Client("one")) == ""
    assert asked == []
    assert pool.enter(Client("one")) == "one"


def test_who_leaves_and_comes_again_has_no_more_than_before() -> None:
    pool = ConnectionPool(1000, party_of)
    entered = fill(pool, "one")
    for _ in range(10):
        for told in entered[::2]:
            pool.leave(told)
        entered = entered[1::2] + fill(pool, "one")
        assert len(entered) <= 750
    for told in entered:
        pool.leave(told)
    assert pool.used == 0
    assert len(fill(pool, "two")) == 750


def test_a_part_takes_its_room_from_the_whole() -> None:
    whole = ConnectionPool(100, party_of)
    one, other = whole.part(80, "HTTP"), whole.part(80, "MQTT")
    assert len(fill(one, "one")) == 60
    assert len(fill(other, "one")) == 10
    assert whole.used == 70
    assert len(fill(other, "two")) == 15
    fill(other, "")
    assert whole.is_full
    assert one.is_full
    assert one.used == 60


def test_who_has_its_share_is_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    whole = ConnectionPool(100, party_of)
    one, other = whole.part(20, "HTTP"), whole.part(100, "MQTT")
    for _ in range(2):
        fill(one, "uid 33")
        fill(other, "uid 33")
    http, mqtt = caplog.messages
    share = "a connection of uid 33 is refused, which has its share: of those of"
    assert http.startswith(f"HTTP: {share} HTTP 15 of 20 are taken")
    assert mqtt.startswith(f"MQTT: {share} ")
