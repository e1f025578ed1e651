"""Clients that move between workers in any order: nothing is doubled, lost, or in two places."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.gateway.mqtt.moving_clients import MovingClients

NUMBERS = st.integers(0, 2)
NAMES = st.just(0)
COUNTS = st.integers(1, 4)


def sometimes(one_in: int) -> st.SearchStrategy[bool]:
    return st.sampled_from([False] * (one_in - 1) + [True])


class ClientsThatMove(RuleBasedStateMachine):
    """Three workers, a client, and a log and a worker hub that deliver late."""

    def __init__(self) -> None:
        super().__init__()
        self.world = MovingClients()

    @rule(name=NAMES, number=NUMBERS, clean=sometimes(6))
    def come(self, name: int, number: int, clean: bool) -> None:
        self.world.come(name, number, clean)
        if clean:
            # Other workers end the earlier session some milliseconds later; no client waits for it.
            self.world.cross()

    @rule(name=NAMES)
    def take(self, name: int) -> None:
        self.world.take(name)

    @rule(name=NAMES)
    def publish(self, name: int) -> None:
        self.world.publish(name)

    @rule(numbers=st.lists(NUMBERS, min_size=2, max_size=4), answered=st.booleans())
    def hurry(self, numbers: list[int], answered: bool) -> None:
        """Have a client go from worker to worker, and publish at each."""
        for number in numbers:
            self.world.come(0, number)
            self.world.cross()
            self.world.publish(0)
            if answered:
                self.world.workers[number].log_answers()
                self.world.cross()

    @rule(name=NAMES)
    def go(self, name: int) -> None:
        self.world.go(name)

    @precondition(lambda self: self.world.left)
    @rule(first=st.booleans())
    def notice(self, first: bool) -> None:
        self.world.notice(0 if first else -1)

    @rule(number=NUMBERS)
    def do_scheduled(self, number: int) -> None:
        self.world.workers[number].do_scheduled()

    @rule(number=NUMBERS, count=COUNTS)
    def tell_crossing(self, number: int, count: int) -> None:
        for _ in range(count):
            self.world.workers[number].tell_crossing()

    @rule(number=NUMBERS, count=COUNTS)
    def hear_crossing(self, number: int, count: int) -> None:
        for _ in range(count):
            self.world.workers[number].hear_crossing()

    @rule(number=NUMBERS, count=COUNTS)
    def read_log(self, number: int, count: int) -> None:
        for _ in range(count):
            self.world.workers[number].read_log()

    @rule(number=NUMBERS, fails=sometimes(5))
    def log_answers(self, number: int, fails: bool) -> None:
        self.world.workers[number].log_answers(fails)

    @rule(number=NUMBERS)
    def wait_no_longer(self, number: int) -> None:
        self.world.wait_no_longer(number)

    @rule()
    def cross(self) -> None:
        self.world.cross()

    @rule(back=st.integers(1, 2_000))
    def set_clock_back(self, back: int) -> None:
        self.world.set_clock_back(back)

    @rule(number=NUMBERS, really=sometimes(8))
    def die(self, number: int, really: bool) -> None:
        if really:
            self.world.die(number)

    @rule()
    def become_quiet(self) -> None:
        self.world.quiet()
        self.world.check()

    def teardown(self) -> None:
        self.world.come_everywhere()


ClientsThatMove.TestCase.settings = settings(
    max_examples=200, stateful_step_count=30, deadline=None
)
test_a_session_is_at_one_worker_and_its_messages_are_stored_once = ClientsThatMove.TestCase


def test_a_clean_session_of_before_the_clock_was_set_back_ends_none_that_came_after() -> None:
    machine = ClientsThatMove()
    machine.set_clock_back(8)
    machine.die(0, really=True)
    machine.world.come(0, 0, clean=True)
    machine.world.come(0, 2)
    machine.teardown()


def test_a_session_that_begins_after_the_clock_was_set_back_is_none_of_before() -> None:
    machine = ClientsThatMove()
    machine.set_clock_back(8)
    machine.die(0, really=True)
    machine.hurry([0, 1, 0], answered=False)
    machine.notice(first=False)
    machine.die(0, really=True)
    machine.hurry([0, 1], answered=False)
    machine.teardown()


def test_a_clean_session_that_others_hear_of_before_an_older_connection_ends_the_older_one() -> (
    None
):
    machine = ClientsThatMove()
    machine.come(0, 2, clean=False)
    machine.cross()
    machine.come(0, 2, clean=False)
    machine.come(0, 0, clean=True)
    machine.come(0, 0, clean=False)
    machine.cross()
    machine.teardown()


def test_a_session_that_arrives_after_a_later_one_has_begun_elsewhere_does_not_come_back() -> None:
    machine = ClientsThatMove()
    machine.hurry([0, 0], answered=True)
    machine.come(0, 1, clean=False)
    machine.wait_no_longer(1)
    machine.come(0, 2, clean=True)
    machine.hurry([0, 0], answered=False)
    machine.teardown()


def test_a_session_is_kept_from_its_first_connection_beside_a_clean_one_on() -> None:
    machine = ClientsThatMove()
    machine.world.come(0, 1, clean=True)
    machine.come(0, 1, clean=False)
    machine.take(0)
    machine.come(0, 0, clean=False)
    machine.teardown()


def test_a_clean_session_that_waits_for_an_answer_does_not_end_one_that_has_begun_since() -> None:
    machine = ClientsThatMove()
    machine.come(0, 1, clean=False)
    machine.become_quiet()
    machine.world.come(0, 0, clean=True)
    machine.hurry([1, 0], answered=False)
    machine.teardown()


def test_a_worker_hears_the_clock_of_the_others_before_its_first_client() -> None:
    machine = ClientsThatMove()
    machine.hurry([2, 0], answered=False)
    machine.wait_no_longer(0)
    machine.come(0, 0, clean=True)
    machine.die(2, really=True)
    machine.hurry([2, 0], answered=False)
    machine.teardown()


def test_a_session_that_arrives_after_a_clean_one_has_begun_elsewhere_is_over() -> None:
    machine = ClientsThatMove()
    machine.come(0, 2, clean=False)
    machine.cross()
    machine.come(0, 0, clean=False)
    machine.read_log(0, 1)
    machine.wait_no_longer(0)
    machine.come(0, 1, clean=True)
    machine.come(0, 0, clean=False)
    machine.cross()
    machine.teardown()
