"""Epochs grow whatever the clocks do, and follow one clock for all workers."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.journal.epochs import Epochs


@dataclass
class Clocks:
    """A wall clock (ms) and a monotonic clock (s)."""

    wall: int = 1_000_000
    monotonic: float = 50.0

    def epochs(self) -> Epochs:
        return Epochs(lambda: self.wall, lambda: self.monotonic)


@given(st.lists(st.tuples(st.integers(-5_000, 5_000), st.floats(0, 5), st.integers(0, 10**10))))
def test_an_epoch_is_greater_than_all_before_and_all_that_were_heard(
    steps: list[tuple[int, float, int]],
) -> None:
    clocks = Clocks()
    epochs = clocks.epochs()
    last = epochs.after(0)
    for wall, monotonic, heard in steps:
        clocks.wall += wall
        clocks.monotonic += monotonic
        epochs.heard(heard)
        last, before = epochs.after(heard), last
        assert last > max(before, heard)


def test_epochs_are_microseconds_since_1970() -> None:
    clocks = Clocks()
    epochs = clocks.epochs()
    assert epochs.after(0) == 1_000_000_000
    clocks.monotonic += 0.000_25
    assert epochs.after(0) == 1_000_000_250
    # The machine has slept: only the wall clock went on.
    clocks.wall += 60_000
    assert epochs.after(0) == 1_060_000_000
    # Another worker's clock is ahead.
    assert epochs.after(2_000_000_000) == 2_000_000_001


def test_a_worker_that_begins_after_the_clock_was_set_back_keeps_pace_with_those_before() -> None:
    clocks = Clocks()
    earlier = clocks.epochs()
    clocks.wall -= 3_600_000
    later = clocks.epochs()
    began = earlier.clock_began_us, later.clock_began_us
    later.keep_pace(began[0])
    earlier.keep_pace(began[1])
    for epochs in (earlier, later, earlier):
        clocks.monotonic += 1.0
        now = round(1_000_000 * (clocks.monotonic - 50.0))
        assert epochs.after(0) == 1_000_000_000 + now
