"""Topology `silence`: what is usual is compared with a computation over the whole log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.properties import Properties
from consumers.streams.silence.topology import Silence
from consumers.streams.silence.usual_gaps import (
    UNKNOWN,
    known_days,
    level_of,
    seconds_of,
    usual_s,
    with_gap,
)
from tests.consumers.streams.harness import BEGIN, Driven, events_of, make_fix
from tests.consumers.streams.tracks import geolife
from tests.odd_records import MALFORMED_VALUES
from waylog.config import ConfigError
from waylog.history.erasures import Erasure
from waylog.messages import Fix

HOUR, DAY = 3600, 86_400
#: Seconds from BEGIN to the next midnight UTC.
MIDNIGHT = 6400


def started(**texts: str) -> Driven:
    driven = Driven(Silence(Properties(texts)))
    driven.now_ms = BEGIN + 1000 * DAY * 1000
    return driven


def beats(begin: float, end: float, every: float, device: str = "ann/phone") -> list[Fix]:
    return [make_fix(begin + every * n, device=device) for n in range(int((end - begin) // every))]


def told(driven: Driven, device: str = "ann/phone") -> list[tuple[str, float]]:
    """Return transition and seconds after BEGIN of events."""
    return sorted(
        ((each.attributes or {})["transition"], (each.time - BEGIN) / 1000)
        for each in events_of(driven.outputs)
        if each.device == device
    )


def clock(until: float, every: float = 60) -> list[Fix]:
    """Return fixes of another device, which make the time go on."""
    return beats(MIDNIGHT - 2 * HOUR, until, every, "clock/tower")


def by_time(*lists: list[Fix]) -> list[Fix]:
    return sorted((fix for each in lists for fix in each), key=lambda fix: fix.time)


def night(day: int, *, asleep: float = 23, awake: float = 7) -> list[Fix]:
    """Return the fixes of a day on which a phone sends each minute while its owner is awake."""
    start = MIDNIGHT + day * DAY
    return beats(start + awake * HOUR, start + asleep * HOUR, 60)


def test_a_night_is_usual_after_some_days_and_a_day_without_a_word_is_not() -> None:
    days = [night(day) for day in range(6)]
    days.append(beats(MIDNIGHT + 6 * DAY + 7 * HOUR, MIDNIGHT + 6 * DAY + 12 * HOUR, 60))
    driven = started()
    driven.send(*by_time(*days, clock(MIDNIGHT + 6 * DAY + 20 * HOUR)))
    noon = MIDNIGHT + 6 * DAY + 12 * HOUR - 60
    assert told(driven) == [("begin", noon + 900)]
    [event] = [each for each in events_of(driven.outputs) if each.device == "ann/phone"]
    assert (event.type, event.user, event.source) == ("silence", "ann", "streams")
    assert (event.attributes or {})["limit"] == 900
    assert (event.attributes or {})["since"] == BEGIN + noon * 1000
    driven.send(make_fix(noon + 30_000))
    assert told(driven) == [("begin", noon + 900), ("end", noon + 30_000)]
    [_, event] = [each for each in events_of(driven.outputs) if each.device == "ann/phone"]
    assert (event.attributes or {})["seconds"] == 30_000


def test_a_night_that_begins_later_or_lasts_longer_alarms_nobody_twice_as_long_a_one_does() -> None:
    days = [night(day) for day in range(6)]
    late = [night(6, asleep=23.9), night(7, awake=9.5)]
    driven = started()
    driven.send(*by_time(*days, *late, clock(MIDNIGHT + 7 * DAY + 12 * HOUR)))
    assert told(driven) == []
    driven.send(*by_time(beats(MIDNIGHT + 7 * DAY + 12 * HOUR, MIDNIGHT + 9 * DAY, 60, "clock/t")))
    [(_, time)] = told(driven)
    limit_h = (time - (MIDNIGHT + 7 * DAY + 23 * HOUR)) / HOUR
    assert 12 <= limit_h <= 16


def test_what_happened_once_is_not_usual() -> None:
    days = [night(day) for day in range(5)]
    outage = night(5)[:120]  # silent from nine o'clock on
    again = night(6)[:120]
    driven = started()
    driven.send(*by_time(*days, outage, again, clock(MIDNIGHT + 6 * DAY + 20 * HOUR)))
    begins = [time for kind, time in told(driven) if kind == "begin"]
    assert begins == [MIDNIGHT + day * DAY + 9 * HOUR - 60 + 900 for day in (5, 6)]


def test_before_it_is_known_a_device_has_a_limit_of_its_own() -> None:
    driven = started(unlearned_s="7200")
    driven.send(*by_time(beats(0, 600, 5), clock(3 * HOUR)))
    assert told(driven) == [("begin", 595 + 7200)]


def test_when_nothing_comes_from_anybody_nobody_is_silent_until_the_wall_clock_says_so() -> None:
    driven = started(unlearned_s="3600")
    driven.now_ms = BEGIN
    driven.send(make_fix(0))
    driven.now_ms = BEGIN + 3600 * 1000
    driven.send(make_fix(3600, device="bob/car"))
    assert not driven.pass_time(30_000)
    # Nothing came for a minute.
    assert not told(driven)
    driven.pass_time(30_000)
    assert told(driven) == [("begin", 3600)]
    driven.pass_time(3600_000)
    assert told(driven, "bob/car") == [("begin", 7200)]
    driven.pass_time(3600_000)
    assert len(events_of(driven.outputs)) == 2


def test_a_device_that_sends_in_bundles_is_as_silent_as_it_is_heard() -> None:
    """It sends each hour what it has seen each minute: that is usual for it."""
    bundles = [(hour, beats(hour * HOUR, (hour + 1) * HOUR, 60)) for hour in range(24 * 5)]
    driven = started()
    for hour, bundle in bundles:
        driven.send(*beats(hour * HOUR, (hour + 1) * HOUR, 60, "clock/tower"))
        driven.send(*bundle)
    assert told(driven) == []
    # One that is late by more than half an hour.
    driven.send(*beats(120 * HOUR, 122 * HOUR, 60, "clock/tower"))
    assert [kind for kind, _ in told(driven)] == ["begin"]


def test_a_device_that_was_offline_is_back_once_however_much_it_sends() -> None:
    days = [beats(MIDNIGHT + day * DAY, MIDNIGHT + (day + 1) * DAY, 60) for day in range(5)]
    end = MIDNIGHT + 5 * DAY
    driven = started()
    driven.send(*by_time(*days, clock(end)))
    driven.send(*beats(end, end + HOUR, 60, "clock/tower"))
    driven.send(*beats(end, end + HOUR, 60))
    driven.send(*beats(end + HOUR, end + HOUR + 600, 60, "clock/tower"))
    assert told(driven) == [("begin", end - 60 + 900), ("end", end + HOUR - 60)]
    attributes = [
        each.attributes or {} for each in events_of(driven.outputs) if each.device == "ann/phone"
    ]
    assert [each["since"] for each in attributes] == [BEGIN + (end - 60) * 1000] * 2
    assert attributes[-1]["seconds"] == HOUR


def test_a_device_that_was_silent_for_very_long_is_forgotten() -> None:
    driven = started(forget_days="2")
    driven.send(make_fix(0), make_fix(DAY, device="bob/car"))
    driven.pass_time()
    assert "ann/phone" in driven.store
    driven.send(make_fix(3 * DAY, device="bob/car"))
    driven.pass_time(2 * HOUR * 1000)
    assert not [key for key in driven.store.keys() if key.startswith("ann")]  # noqa: SIM118


def test_an_erased_device_is_forgotten_with_what_is_usual_and_may_come_anew() -> None:
    driven = started(unlearned_s="3600")
    driven.send(make_fix(0), make_fix(0, device="bob/car"), make_fix(10), make_fix(3 * DAY))
    driven.task._processor.erase({"ann/phone": BEGIN + 10 * DAY * 1000}, driven.store)
    assert all(key.startswith("bob") for key in driven.store.keys())  # noqa: SIM118
    driven.outputs.clear()
    driven.send(make_fix(11 * DAY))
    driven.send(make_fix(11 * DAY + 3700, device="bob/car"))
    assert told(driven) == [("begin", 11 * DAY + 3600)]


def test_what_is_usual_goes_with_a_device_that_was_heard_after_its_erasure() -> None:
    driven = started()
    # Others were heard meanwhile: it is learned when its fixes came, not when they were made.
    driven.send(make_fix(20_000, device="clock/tower"))
    fixes = [make_fix(600 * n) for n in range(6)]
    driven.send(*fixes)
    assert "ann/phone\ngaps" in driven.store
    driven.task.erased(Erasure("ann/phone", fixes[-1].time))
    driven.pass_time()
    assert not [key for key, _ in driven.store.items() if key.startswith("ann/phone")]


def test_records_that_are_no_fixes_stop_nobody() -> None:
    driven = started(unlearned_s="3600")
    driven.send(make_fix(0), *MALFORMED_VALUES, None, b"", make_fix(4000))
    assert told(driven) == [("begin", 3600), ("end", 4000)]


def test_devices_that_send_cost_one_look_in_a_quarter_of_an_hour() -> None:
    driven = started()
    looks: Counter[str] = Counter()
    topology = driven.task._processor
    assert isinstance(topology, Silence)
    limit_ms = topology.limit_ms

    def counted(device: str, since: int) -> int:
        looks[device] += 1
        return limit_ms(device, since)

    topology.limit_ms = counted  # type: ignore[method-assign]
    driven.send(*(make_fix(60 * n, device=f"d/{k}") for n in range(240) for k in range(20)))
    assert max(looks.values()) <= 4 * 4 + 1
    assert len(topology._due.of(driven.store).heap) == 20


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"factor": "0.5"}, "--property factor=0.5: at least 1 is expected"),
        ({"minimum_s": "1"}, "at least 60 is expected"),
        ({"minimum": "100"}, "has no such property; did you mean minimum_s"),
    ],
)
def test_wrong_properties_are_named(texts: dict[str, str], message: str) -> None:
    properties = Properties(texts)
    with pytest.raises(ConfigError, match=message):
        Silence(properties)
        properties.check_all_known("silence")


# ---- compared with a computation over all gaps ----


def naive_usual(gaps: Iterable[tuple[int, int]], now: int) -> tuple[int, float]:
    """Return the days on which there is anything, and what is usual at `now`, in seconds."""
    longest: dict[int, float] = {}  # by the number of the hour since 1970
    last = max(end for _, end in gaps) // 3_600_000
    for begin, end in gaps:
        for hour in range(begin // 3_600_000, min(begin // 3_600_000 + 24, end // 3_600_000 + 1)):
            left = (end - max(begin, hour * 3_600_000)) / 1000
            longest[hour] = max(longest.get(hour, 0.0), left, 60.0)
    days = [last // 24 - back for back in range(7)]
    of_day = sorted(
        max(
            longest.get(day * 24 + (now // 3_600_000 % 24 + beside) % 24, 0.0)
            for beside in (-1, 0, 1)
        )
        for day in days
    )
    heard = {hour // 24 for hour in longest}
    return len(heard & {*days}), of_day[-2]


@given(
    st.lists(
        st.sampled_from([1, 30, 61, 600, 3600, 5000, 20_000, 80_000, 90_000, 300_000, 900_000]),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, DAY),
    st.integers(0, 23),
)
def test_what_is_usual_is_what_a_search_over_all_gaps_finds(
    seconds: list[int], offset: int, hour: int
) -> None:
    time = BEGIN + offset * 1000
    text, gaps = UNKNOWN, []
    for each in seconds:
        text = with_gap(text, time, time, time + each * 1000)
        gaps.append((time, time + each * 1000))
        time += each * 1000
    now = time + hour * 3_600_000
    days, usual = naive_usual(gaps, now)
    assert known_days(text) == days
    assert usual <= usual_s(text, now) <= usual * 2**0.25 + 1e-9
    assert len(text) == len(UNKNOWN)


def test_a_level_is_never_shorter_than_its_time() -> None:
    for exponent in range(400):
        seconds = 1.05**exponent
        level = level_of(seconds)
        if level != level_of(1e300):
            assert seconds <= seconds_of(level)
            assert seconds_of(level) <= max(60.0, seconds * 2**0.25 + 1e-6)


FIXES = st.lists(
    st.tuples(
        st.sampled_from(["ann/a", "bob/b"]),
        st.sampled_from([1, 100, 3000, 4000, 50_000]),
        st.integers(-5000, 0),
    ),
    max_size=30,
)


def batch(fixes: list[Fix], limit: int = 3600) -> list[tuple[str, str, float]]:
    """Return device, transition and seconds; for devices that are not known yet."""
    found = []
    newest: dict[str, int] = {}
    last: dict[str, int] = {}
    stream = 0
    for fix in fixes:
        if fix.time <= newest.get(fix.device, 0):
            continue
        heard = max(fix.time, stream)
        since = last.get(fix.device)
        if since is not None and heard - since > limit * 1000:
            found.append((fix.device, "begin", (since - BEGIN) / 1000 + limit))
            found.append((fix.device, "end", (heard - BEGIN) / 1000))
        newest[fix.device] = fix.time
        last[fix.device] = heard
        stream = max(stream, fix.time)
    for device, since in last.items():
        if stream - since > limit * 1000:
            found.append((device, "begin", (since - BEGIN) / 1000 + limit))
    return sorted(found)


@given(FIXES, st.sets(st.integers(0, 30)))
def test_events_are_those_of_a_batch_job_however_the_fixes_are_bundled(
    steps: list[tuple[str, int, int]], restarts: set[int]
) -> None:
    seconds, fixes = 6000.0, []
    for device, step, late in steps:
        seconds += step
        fixes.append(make_fix(seconds + late, device=device))
    texts = {"unlearned_s": "3600", "learn_days": "99"}
    one, several = started(**texts), started(**texts)
    one.send(*fixes)
    for number, fix in enumerate(fixes):
        if number in restarts:
            several.restart()
        several.send(fix)
    for driven in (one, several):
        found = sorted(
            (each.device, (each.attributes or {})["transition"], (each.time - BEGIN) / 1000)
            for each in events_of(driven.outputs)
        )
        assert found == batch(fixes)


def test_phones_that_sleep_are_told_far_less_often_once_they_are_known() -> None:
    """Twelve phones: nights of changing length, and dead spots by day."""
    chance = random.Random(11)
    fixes: list[Fix] = []
    for number in range(12):
        device, habit = f"u{number}/phone", chance.uniform(22, 25)
        for day in range(28):
            up = MIDNIGHT + day * DAY + chance.gauss(7, 0.7) * HOUR
            down = MIDNIGHT + day * DAY + (habit + chance.gauss(0, 0.7)) * HOUR
            while up < down:
                fixes.append(make_fix(up, device=device))
                up += chance.choice([240] * 40 + [900, 1500])
    fixes.sort(key=lambda fix: fix.time)
    alarms = alarms_by_week(started(unlearned_s="900"), fixes)
    # Before, each night is an alarm, and each dead spot.
    assert alarms[0] > 150
    assert max(alarms[1:]) < alarms[0] / 10


def test_real_loggers_are_told_less_often_once_they_are_known() -> None:
    tracks = geolife(100_000, ("000", "012", "020"), every=20)
    fixes = [fix for own in tracks.values() for fix in own]
    fixes.sort(key=lambda fix: fix.time)
    known = len(events_of(run(started(), fixes)))
    unknown = len(events_of(run(started(unlearned_s="900", learn_days="99"), fixes)))
    assert 0 < known < unknown


def run(driven: Driven, fixes: list[Fix]) -> Any:
    for begin in range(0, len(fixes), 2000):
        driven.send(*fixes[begin : begin + 2000])
    return driven.outputs


def alarms_by_week(driven: Driven, fixes: list[Fix]) -> list[int]:
    run(driven, fixes)
    weeks: Counter[int] = Counter()
    for each in events_of(driven.outputs):
        if (each.attributes or {})["transition"] == "begin":
            weeks[(each.time - BEGIN) // (7 * DAY * 1000)] += 1
    return [weeks[week] for week in range(4)]
