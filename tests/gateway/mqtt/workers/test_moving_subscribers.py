"""Messages published while the session of a subscriber moves to another worker."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.mqtt.packets.message import Message
from tests.gateway.mqtt.moving_clients import TOPIC, ModelWorker, MovingClients

#: Steps until the client of a session that moves is connected again, and all workers know it.
_STEPS = 40


def _steps(worker: ModelWorker) -> bool:
    """Run the next event of a worker; return False if there is none."""
    return worker.do_scheduled() or worker.tell_crossing() or worker.hear_crossing()


def _publish(worker: ModelWorker, payload: bytes) -> None:
    worker.router.publish(Message(TOPIC, payload, 1), None, worker.model.now)


def _kept(world: MovingClients) -> list[bytes]:
    """Return what is queued for or in flight to the client at the worker that has its session."""
    (number,) = world.having(world.clients[0])
    session = world.workers[number].router.sessions["ada", "phone"]
    found = [*(session.in_flight or {}).values(), *(session.queue or ())]
    return [each.message.payload for each in found]


def _subscribed(at: int, others: bool) -> MovingClients:
    world = MovingClients("phone", "tablet")
    for name, number in ((0, at), (1, (at + 1) % 3), (1, (at + 2) % 3))[: 3 if others else 1]:
        world.come(name, number)
        world.quiet()
        arrival = world.clients[name].arrival
        assert arrival is not None
        arrival.wire.subscribe(TOPIC)
        world.quiet()
    return world


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("to", [0, 1, 2])
@pytest.mark.parametrize("publisher", [0, 1, 2])
def test_a_message_reaches_a_subscriber_once_whenever_its_session_moves(
    publisher: int, to: int, others: bool
) -> None:
    for step in range(_STEPS):
        for start in range(3):
            world = _subscribed(at=0, others=others)
            world.come(0, to)
            for number in range(step):
                _steps(world.workers[(number + start) % 3])
            _publish(world.workers[publisher], b"news")
            world.quiet()
            assert Counter(_kept(world)) == {b"news": 1}, f"published after {step} steps"


@pytest.mark.parametrize("to", [0, 1, 2])
@pytest.mark.parametrize("publisher", [0, 1, 2])
def test_messages_of_one_publisher_stay_in_order_while_a_session_moves(
    publisher: int, to: int
) -> None:
    for start in range(3):
        world = _subscribed(at=0, others=False)
        world.come(0, to)
        sent = []
        for number in range(_STEPS):
            sent.append(b"%d" % number)
            _publish(world.workers[publisher], sent[-1])
            _steps(world.workers[(number + start) % 3])
        world.quiet()
        assert _kept(world) == sent
