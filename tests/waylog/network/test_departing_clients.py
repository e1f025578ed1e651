"""Clients that close their side before they are accepted: they wait behind one another."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.gateway.mqtt.in_memory import eventually
from waylog.network.departing_clients import DepartingClients


class Served:
    """The service of one connection, which ends when the test says so."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.has_ended = False


@contextmanager
def departing(count: int) -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """Yield both ends of connections whose clients have asked and closed their side."""
    clients, accepted = [], []
    with socket.create_server(("127.0.0.1", 0), backlog=count) as server:
        for _ in range(count):
            client = socket.create_connection(server.getsockname())
            client.sendall(b"?")
            client.shutdown(socket.SHUT_WR)
            clients.append(client)
            accepted.append(server.accept()[0])
    try:
        yield clients, accepted
    finally:
        for each in (*clients, *accepted):
            each.close()


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waylog.network.departing_clients._SERVED_MAX", 16)


@pytest.fixture
def served() -> list[Served]:
    return []


def nobody(connection: socket.socket) -> int | None:
    """Know no account, as of clients on other machines."""
    return None


def serving(served: list[Served]) -> Callable[[socket.socket], Served]:
    def serve(connection: socket.socket) -> Served:
        served.append(Served(connection))
        return served[-1]

    return serve


async def test_few_are_served_at_a_time_in_order(served: list[Served]) -> None:
    clients = DepartingClients(serving(served), 100, nobody)
    with departing(40) as (_, accepted):
        for each in accepted:
            clients.add("a", each)
        at_once = len(served)
        assert 1 <= at_once < 40
        # Another one begins for each that ends.
        served[0].has_ended = served[1].has_ended = True
        await eventually(lambda: len(served) == at_once + 2)
        await asyncio.sleep(0.05)
        assert len(served) == at_once + 2
        while len(served) < 40:
            for one in served:
                one.has_ended = True
            await asyncio.sleep(0.001)
        assert [each.connection for each in served] == accepted


@pytest.mark.parametrize("many_wait_for_answers", [False, True])
async def test_an_account_that_waits_for_an_answer_does_not_go_with_others_of_its_address(
    served: list[Served], many_wait_for_answers: bool
) -> None:
    with departing(400) as (_, accepted):
        one, *many = accepted
        known = {one: 1001} | (dict.fromkeys(many, 1002) if many_wait_for_answers else {})
        clients = DepartingClients(serving(served), 50, known.get)
        # None of those that are served ends, so the others wait.
        for each in many[:100]:
            clients.add("127.0.0.1", each)
        clients.add("127.0.0.1", one)
        for each in many[100:]:
            clients.add("127.0.0.1", each)
        assert one.fileno() != -1
        assert sum(each.fileno() == -1 for each in accepted) >= 400 - 50 - len(served)
        at_once = len(served)
        for service in served:
            service.has_ended = True
        await eventually(lambda: len(served) > at_once)
        assert one in [each.connection for each in served[at_once : at_once + 3]]


async def test_one_that_takes_long_keeps_no_other_from_being_served(
    served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waylog.network.departing_clients._LONG_S", 0.05)
    clients = DepartingClients(serving(served), 100, nobody)
    with departing(40) as (_, accepted):
        for each in accepted:
            clients.add("a", each)
        await eventually(lambda: len(served) == 40)


async def test_who_comes_when_all_others_have_been_served_is_served(served: list[Served]) -> None:
    clients = DepartingClients(serving(served), 100, nobody)
    with departing(60) as (_, accepted):
        for each in accepted[:40]:
            clients.add("a", each)
        while len(served) < 40:
            for one in served:
                one.has_ended = True
            await asyncio.sleep(0.001)
        for one in served:
            one.has_ended = True
        for each in accepted[40:59]:
            clients.add("a", each)
        await eventually(lambda: len(served) > 40)
        clients.serve_all()
        assert len(served) == 59
        for one in served:
            one.has_ended = True
        clients.add("a", accepted[59])
        await eventually(lambda: len(served) == 60)


async def test_who_has_gone_meanwhile_is_not_served(served: list[Served]) -> None:
    clients = DepartingClients(serving(served), 100, nobody)
    with departing(40) as (others, accepted):
        for each in accepted:
            clients.add("a", each)
        begun = len(served)
        others[begun].close()  # closes normally: its question is answered
        gone = others[begun + 1]
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        gone.close()
        for one in served:
            one.has_ended = True
        await eventually(lambda: len(served) > begun + 1)
        assert served[begun].connection is accepted[begun]
        assert served[begun + 1].connection is accepted[begun + 2]
        assert accepted[begun + 1].fileno() < 0
        clients.serve_all()
        assert len(served) == 39


async def test_parties_are_served_in_turn(served: list[Served]) -> None:
    clients = DepartingClients(serving(served), 100, nobody)
    with departing(41) as (_, accepted):
        for each in accepted[:40]:
            clients.add("many", each)
        clients.add("one", accepted[40])
        begun = len(served)
        clients.serve_all()
        assert [each.connection for each in served[begun : begun + 2]] == [
            *(accepted[begun], accepted[40]),
        ]


async def test_when_too_many_wait_the_oldest_of_the_party_with_the_most_go(
    served: list[Served],
) -> None:
    clients = DepartingClients(serving(served), 10, nobody)
    with departing(62) as (_, accepted):
        # The first are served at once.
        for each in accepted[:50]:
            clients.add("many", each)
        few = accepted[50:52]
        for each in few:
            clients.add("few", each)
        for each in accepted[52:]:
            clients.add("many", each)
        begun = len(served)
        clients.serve_all()
        assert {each.connection for each in served[begun:]} == {*few, *accepted[54:]}
        assert all(each.fileno() < 0 for each in accepted[begun:50])
