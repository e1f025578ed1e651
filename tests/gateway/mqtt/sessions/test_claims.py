"""Clients that come to another worker while something is still in flight at the previous one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.mqtt.packets.message import Message
from tests.gateway.mqtt.moving_clients import TOPIC, Client, MovingClients


@pytest.fixture
def world() -> Iterator[MovingClients]:
    """A client is at the first of three workers, which keeps a session for it.

    The log has a QoS 2 message of the client, which has no PUBREC for it yet.
    """
    world = MovingClients()
    world.come(0, 0)
    world.quiet()
    world.publish(0)
    world.workers[0].log_answers()
    yield world
    world.quiet()
    world.check()


def at(world: MovingClients, client: Client) -> int:
    """Return the number of the worker that a client is connected to."""
    assert client.connected and client.arrival is not None
    number = world.workers.index(client.arrival.worker)
    assert world.having(client) == [number]
    return number


def come_until_let_in(world: MovingClients, number: int) -> None:
    """Connect again if the server is busy, and check that the session is there."""
    for _ in range(2):
        world.come(0, number)
        world.quiet()
        if world.clients[0].connected:
            break
    assert at(world, world.clients[0]) == number


def test_two_workers_that_claim_a_session_get_it_one_after_the_other(world: MovingClients) -> None:
    first, second = world.workers[1], world.workers[2]
    world.come(0, 1)
    first.tell_crossing()
    world.come(0, 2)
    second.tell_crossing()
    world.quiet()
    assert not world.clients[0].connected
    come_until_let_in(world, 2)


def test_a_worker_that_is_getting_a_session_says_so_when_it_is_asked_for_it(
    world: MovingClients,
) -> None:
    owner, first, second = world.workers
    world.come(0, 1)
    first.tell_crossing()
    owner.hear_crossing()
    owner.tell_crossing()
    world.come(0, 2)
    second.tell_crossing()
    # The frames are the session, and the claim for it.
    assert len(first.from_crossing) == 2
    while first.hear_crossing():
        pass
    first.tell_crossing()
    second.hear_crossing()
    second.do_scheduled()
    world.take(0)
    assert not world.clients[0].connected
    world.quiet()
    come_until_let_in(world, 2)


def test_a_session_that_was_handed_over_is_with_nobody_else(world: MovingClients) -> None:
    owner, first, _ = world.workers
    world.come(0, 1)
    first.tell_crossing()
    owner.hear_crossing()
    assert world.having(world.clients[0]) == []


def test_a_client_that_comes_back_to_its_worker_meanwhile_stays_there(
    world: MovingClients,
) -> None:
    world.publish(0)
    world.come(0, 1)
    world.cross()
    world.come(0, 0)
    world.cross()
    assert at(world, world.clients[0]) == 0
    world.quiet()
    assert at(world, world.clients[0]) == 0
    assert not world.clients[0].pending


def test_a_clean_session_that_was_begun_meanwhile_is_not_handed_over(
    world: MovingClients,
) -> None:
    world.publish(0)
    world.come(0, 1)
    world.cross()
    world.come(0, 0, clean=True)
    world.cross()
    world.quiet()
    assert at(world, world.clients[0]) == 0


def test_a_session_that_is_over_is_not_found_again_before_the_log_tells_of_its_end(
    world: MovingClients,
) -> None:
    client = world.clients[0]
    world.publish(0)
    world.workers[0].log_answers()
    world.come(0, 0, clean=True)
    world.cross()
    assert at(world, client) == 0 and client.discarded
    world.come(0, 1)
    world.cross()
    assert at(world, client) == 1 and not client.discarded
    # No message of the earlier session is taken for a repetition.
    world.last_id = 0
    world.publish(0)
    world.stored.clear()
    world.quiet()
    assert world.stored == {b"1": 1}


def test_a_session_that_a_clean_one_elsewhere_has_ended_is_handed_over_to_nobody() -> None:
    world = MovingClients()
    world.come(0, 0)
    world.cross()
    # This worker has not read of the kept session yet.
    world.come(0, 2, clean=True)
    world.cross()
    owner, other, _ = world.workers
    handed_over: list[bytes | None] = []
    came = other.journal.epochs.after(0), other.journal.worker
    owner.router.handover.hand_over(("ada", "phone"), came, handed_over.append, world.now)
    assert handed_over == [None]


def test_a_session_that_is_not_kept_is_waited_for_by_nobody() -> None:
    world = MovingClients()
    world.come(0, 0, clean=True)
    world.cross()
    world.publish(0)
    assert world.workers[0].publishes  # the log never answers
    world.come(0, 1)
    world.cross()
    assert at(world, world.clients[0]) == 1


def test_what_waits_at_the_worker_that_took_the_seat_of_a_killed_one_goes_to_its_client() -> None:
    world = MovingClients()
    client = world.clients[0]
    world.come(0, 0)
    world.quiet()
    assert client.arrival is not None
    client.arrival.wire.subscribe(TOPIC)
    world.go(0)
    world.quiet()
    world.die(0)
    world.quiet()
    keeper = world.workers[-1]
    assert world.having(client) == [world.workers.index(keeper)]
    keeper.router.publish(Message(TOPIC, b"news", 1), None, world.now)
    # The new worker hub does not know which worker has which session.
    world.start_crossing_again()
    world.quiet()
    world.come(0, 0)
    world.quiet()
    assert at(world, client) == 0
    in_flight = world.workers[0].router.sessions["ada", "phone"].in_flight or {}
    assert [each.message.payload for each in in_flight.values()] == [b"news"]


def test_a_connection_that_is_long_gone_does_not_keep_its_client_out(world: MovingClients) -> None:
    world.publish(0)
    world.come(0, 1)
    world.cross()
    assert not world.clients[0].connected
    # Its worker has not noticed the end of the connection.
    assert world.left
    world.workers[0].log_answers()
    world.cross()
    assert at(world, world.clients[0]) == 1


def test_a_session_that_comes_too_late_is_found_where_it_has_stayed(world: MovingClients) -> None:
    world.publish(0)
    world.come(0, 1)
    world.cross()
    world.wait_no_longer(1)
    world.workers[0].log_answers()
    world.cross()
    assert world.having(world.clients[0]) == [0]
    come_until_let_in(world, 2)
    assert not world.clients[0].pending


def test_a_session_that_comes_too_late_is_as_late_as_its_claim(world: MovingClients) -> None:
    owner, first, _ = world.workers
    world.come(0, 1)
    first.tell_crossing()
    epoch = owner.from_crossing[-1][-1]
    world.wait_no_longer(1)
    world.cross()
    assert world.having(world.clients[0]) == [1]
    key = ("ada", "phone")
    assert first.router.sessions[key].epoch == epoch
    first.journal.came_elsewhere(key, epoch - 1)
    assert first.journal.knows(key)
    first.journal.came_elsewhere(key, epoch + 1)
    assert not first.journal.knows(key)


def test_what_a_session_has_received_follows_it_though_only_the_log_tells_where_it_is(
    world: MovingClients,
) -> None:
    come_until_let_in(world, 1)
    world.publish(0)
    world.workers[1].log_answers()
    world.start_crossing_again()
    # The client repeats its unanswered publish.
    world.come(0, 2)
    world.cross()
    assert at(world, world.clients[0]) == 2


def test_a_session_that_was_claimed_by_a_worker_that_has_died_is_kept(
    world: MovingClients,
) -> None:
    client = world.clients[0]
    world.publish(0)
    world.come(0, 1)
    world.cross()
    pending = dict(client.pending)
    world.die(1)
    client.kept, client.pending = True, pending
    world.workers[0].log_answers()
    world.cross()
    come_until_let_in(world, 1)


def test_a_worker_that_dies_while_it_is_asked_for_a_session_keeps_no_client_out(
    world: MovingClients,
) -> None:
    world.come(0, 1)
    world.workers[1].tell_crossing()
    assert world.workers[0].from_crossing  # the claim, which it does not handle
    world.die(0)
    world.cross()
    assert at(world, world.clients[0]) == 0
    come_until_let_in(world, 1)


def test_a_session_is_found_though_nobody_knows_any_more_who_has_asked_for_it(
    world: MovingClients,
) -> None:
    world.come(0, 1)
    world.cross()
    assert at(world, world.clients[0]) == 1
    # The log has not told of it yet.
    world.start_crossing_again()
    world.come(0, 0)
    world.cross()
    assert at(world, world.clients[0]) == 0


def test_a_claim_that_nobody_can_answer_keeps_no_client_out(world: MovingClients) -> None:
    client = world.clients[0]
    world.come(0, 1)
    client.forget()  # no worker can hand over its state
    world.start_crossing_again()
    world.cross()
    assert client.connected
    come_until_let_in(world, 2)
    come_until_let_in(world, 1)


def test_news_of_before_do_not_end_a_session_that_has_just_begun(world: MovingClients) -> None:
    here, there, _ = world.workers
    world.come(0, 1, clean=True)
    world.quiet()
    world.come(0, 0, clean=True)
    world.quiet()
    assert at(world, world.clients[0]) == 0
    world.come(0, 1, clean=True)
    there.do_scheduled()
    there.tell_crossing()
    world.come(0, 0, clean=True)
    while here.hear_crossing():
        pass
    world.quiet()
    assert at(world, world.clients[0]) == 0


def test_each_announcement_has_its_own_place_among_the_news() -> None:
    world = MovingClients("phone", "bike")
    here, there, _ = world.workers
    world.come(0, 0, clean=True)
    here.do_scheduled()
    world.come(1, 1, clean=True)
    there.do_scheduled()
    world.come(1, 0, clean=True)
    here.do_scheduled()
    here.tell_crossing()  # about the first client
    there.tell_crossing()
    while here.hear_crossing():
        pass
    world.quiet()
    assert [at(world, each) for each in world.clients] == [0, 0]


def test_a_client_that_was_announced_twice_came_last_with_the_second() -> None:
    world = MovingClients()
    here, there, _ = world.workers
    for number in (0, 1, 0):
        world.come(0, number, clean=True)
        world.workers[number].do_scheduled()
    for worker in (here, there):
        worker.tell_crossing()
    while here.hear_crossing():
        pass
    world.quiet()
    assert at(world, world.clients[0]) == 0


def test_what_was_announced_to_a_crossing_that_is_gone_is_not_waited_for() -> None:
    world = MovingClients()
    world.come(0, 0, clean=True)
    world.workers[0].do_scheduled()
    world.start_crossing_again()
    world.cross()
    world.come(0, 1, clean=True)
    world.cross()
    assert world.having(world.clients[0]) == [1]


def test_a_wall_clock_that_is_set_back_makes_no_session_older(world: MovingClients) -> None:
    world.come(0, 1)
    world.cross()
    world.set_clock_back(3_600_000)
    # No worker keeps the earlier session, and the log has told of nothing yet.
    world.come(0, 0, clean=True)
    world.cross()
    world.come(0, 2)
    world.cross()
    world.publish(0)
    world.quiet()
    assert at(world, world.clients[0]) == 2
    assert not world.clients[0].pending


def test_a_session_that_begins_where_a_clean_one_was_is_not_ended_by_a_claim_of_before() -> None:
    world = MovingClients()
    owner, other, _ = world.workers
    world.come(0, 0, clean=True)
    world.quiet()
    world.come(0, 0)
    owner.tell_crossing()
    world.come(0, 1)
    other.tell_crossing()
    # The answer that no other worker has a session, and the claim for the earlier one.
    assert len(owner.from_crossing) == 2
    while owner.hear_crossing():
        pass
    world.cross()
    assert not world.clients[0].connected
    assert world.having(world.clients[0]) == [0]
    world.quiet()
    come_until_let_in(world, 1)
