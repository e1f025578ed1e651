from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.sessions.timers import TimerWheel


class Alarm:
    def __init__(self) -> None:
        self.timer_tick = 0


def test_a_timer_is_never_early_and_at_most_a_tick_late() -> None:
    wheel = TimerWheel(100.0)
    alarm = Alarm()
    wheel.schedule(alarm, 101.1)
    assert wheel.advance(101.1) == []
    assert wheel.advance(101.1 + TimerWheel.TICK_S) == [alarm]
    assert wheel.advance(110.0) == []
    assert len(wheel) == 0


def test_an_earlier_deadline_wins_and_a_cancelled_timer_is_forgotten() -> None:
    wheel = TimerWheel(0.0)
    alarm = Alarm()
    wheel.schedule(alarm, 50.0)
    wheel.schedule(alarm, 10.0)
    wheel.schedule(alarm, 20.0)
    assert len(wheel) == 1
    assert wheel.advance(10.5) == [alarm]
    wheel.schedule(alarm, 60.0)
    wheel.cancel(alarm)
    assert len(wheel) == 0
    assert wheel.advance(100.0) == []


@given(
    st.lists(st.floats(0, 1000), max_size=20),
    st.lists(st.floats(0, 300), min_size=1, max_size=10),
)
def test_every_timer_fires_once_whatever_the_steps(
    deadlines: list[float], steps: list[float]
) -> None:
    wheel = TimerWheel(0.0)
    alarms = {}
    for deadline in deadlines:
        alarm = Alarm()
        alarms[alarm] = deadline
        wheel.schedule(alarm, deadline)
    now, fired = 0.0, []
    for step in [*steps, 2000.0]:
        now += step
        for due in wheel.advance(now):
            assert isinstance(due, Alarm)
            assert alarms[due] <= now
            fired.append(due)
    assert len(fired) == len(set(fired)) == len(alarms)
