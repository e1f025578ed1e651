"""Who may send when: nobody is held up by a server that is down, slow or used by many."""

from __future__ import annotations

from itertools import pairwise

from consumers.forwarding.route import Entry, Route
from consumers.forwarding.schedule import EACH, QUICK, SLOW, Failure, Pauses, Schedule
from tests.consumers.forwarding.test_ledger import forwarding, record_of

GONE = Failure("no connection", is_reached=False)
SILENT = Failure("no answer")


def route(number: int, url: str) -> Route:
    """Return a forwarding of which something waits."""
    made = Route(f"user{number}", "1", forwarding(url=url))
    entry = made.entries[0] = Entry(0, 0, None)
    for offset in range(10):
        made.add(entry, record_of(0, offset, f"user{number}/phone"), 0.0)
    return made


def test_one_server_gets_a_part_of_the_places_only() -> None:
    schedule = Schedule()
    popular = [route(each, "https://popular") for each in range(200)]
    for each in popular:
        schedule.offer(each, 0.0)
    begun = list(schedule.next(0.0))
    assert len(begun) == EACH
    other = route(1000, "https://other")
    schedule.offer(other, 0.0)
    assert list(schedule.next(0.0)) == [other]
    for each in begun:
        schedule.end(each, None, 0.1, 0.1)
    assert len(list(schedule.next(0.1))) == EACH
    assert schedule.in_flight == EACH + 1


def test_all_have_their_turn() -> None:
    schedule = Schedule()
    routes = [route(each, f"https://server{each % 50}") for each in range(500)]
    for each in routes:
        schedule.offer(each, 0.0)
    seen: set[Route] = set()
    now = 0.0
    while len(seen) < len(routes):
        begun = list(schedule.next(now))
        assert begun, "somebody waits for ever"
        assert schedule.in_flight <= QUICK + SLOW
        seen.update(begun)
        now += 0.1
        for each in begun:
            schedule.end(each, None, now, 0.1)


def test_a_server_that_is_down_is_tried_by_one_at_a_time_with_growing_pauses() -> None:
    schedule = Schedule(Pauses(first_s=1, longest_s=8))
    routes = [route(each, "https://down") for each in range(100)]
    for each in routes:
        schedule.offer(each, 0.0)
    now = 0.0
    for each in list(schedule.next(now)):
        each.error, each.error_time = "it is down", 5
        schedule.end(each, GONE, now, 0.1)
    tried = []
    while now < 60:
        now += 0.25
        begun = list(schedule.next(now))
        assert len(begun) <= 1
        for each in begun:
            tried.append(now)
            schedule.end(each, GONE, now, 0.1)
    assert {each.error for each in routes} == {"it is down"}, "all are told"
    pauses = [later - before for before, later in pairwise(tried)]
    assert 4 <= len(tried) < 14
    assert min(pauses[-3:]) >= 8
    # When it is back, all go on.
    done: set[Route] = set()
    while len(done) < len(routes):
        now += 0.25
        assert now < 120
        for each in list(schedule.next(now)):
            done.add(each)
            schedule.end(each, None, now, 0.1)


def test_who_was_under_way_when_a_server_went_down_does_not_make_the_pause_longer() -> None:
    schedule = Schedule(Pauses(first_s=1, longest_s=1000))
    for each in range(EACH):
        schedule.offer(route(each, "https://down"), 0.0)
    begun = list(schedule.next(0.0))
    assert len(begun) == EACH
    for one in begun:
        schedule.end(one, GONE, 0.1, 0.1)
    assert len(list(schedule.next(2.5))) == 1


def test_servers_that_hang_leave_places_to_others() -> None:
    schedule = Schedule()
    hanging = [route(each, f"https://hangs{each}") for each in range(300)]
    for each in hanging:
        schedule.offer(each, 0.0)
    now = 0.0
    while any(not each.failures and not schedule.is_failing(each) for each in hanging):
        for each in list(schedule.next(now)):
            schedule.end(each, GONE, now + 10, 10.0)
        now += 10
    now += 2
    probing = list(schedule.next(now))
    assert len(probing) == SLOW
    good = [route(1000 + each, f"https://good{each}") for each in range(QUICK)]
    for each in good:
        schedule.offer(each, now)
    assert set(schedule.next(now)) == set(good)


def test_who_hangs_at_a_server_does_not_hold_up_others_there() -> None:
    schedule = Schedule()
    good = route(1000, "https://shared/good")
    hanging = [route(each, f"https://shared/hang/{each}") for each in range(24)]
    for each in (*hanging, good):
        schedule.offer(each, 0.0)
    ends: list[tuple[float, Route]] = []
    now, told = 0.0, []
    while now < 300:
        for each in list(schedule.next(now)):
            if each is good:
                told.append(now)
            ends.append((now + (0.1 if each is good else 10.0), each))
        now += 0.1
        for end in [each for each in ends if each[0] <= now]:
            ends.remove(end)
            is_good = end[1] is good
            schedule.end(end[1], None if is_good else SILENT, now, 0.1 if is_good else 10.0)
        schedule.offer(good, now)
    # Nobody knows at first who hangs: three times eight of them may be before it.
    pauses = [later - before for before, later in pairwise([0.0, *told])]
    assert max(pauses[:2]) <= 31
    assert max(pauses[2:]) <= 0.5, "afterwards it never waits"


def test_a_changed_forwarding_is_tried_at_once() -> None:
    schedule = Schedule()
    one = route(1, "https://wrong")
    schedule.offer(one, 0.0)
    assert list(schedule.next(0.0)) == [one]
    schedule.end(one, Failure("401", is_set_up=True), 0.0, 0.1)
    assert list(schedule.next(30.0)) == []
    one.change(forwarding(url="https://right"))
    schedule.hasten(one, 30.0)
    assert list(schedule.next(30.0)) == [one]
    schedule.end(one, None, 30.0, 0.1)
    assert list(schedule.next(30.0)) == [one]
    assert list(schedule.next(600.0)) == [], "it is queued once"


def down(*routes: Route) -> Schedule:
    """Return a schedule of forwardings whose server could not be reached at 0.0 s."""
    schedule = Schedule(Pauses(first_s=1, longest_s=1))
    for each in routes:
        schedule.offer(each, 0.0)
    for each in list(schedule.next(0.0)):
        schedule.end(each, GONE, 0.0, 0.1)
    return schedule


def test_a_server_that_is_down_is_tried_by_another_when_the_one_that_did_is_paused() -> None:
    one, other = route(1, "https://down"), route(2, "https://down")
    schedule = down(one, other)
    [prober] = schedule.next(2.0)
    schedule.end(prober, GONE, 2.0, 0.1)
    prober.is_paused_by_administrator = True
    [left] = {one, other} - {prober}
    assert list(schedule.next(2.5)) == []
    assert [each for now in (4.0, 6.0) for each in schedule.next(now)] == [left]


def test_a_server_that_is_down_is_tried_by_another_when_the_one_that_was_to_has_nothing() -> None:
    one, other = route(1, "https://down"), route(2, "https://down")
    schedule = down(one, other)
    hanging = [route(10 + each, f"https://hangs{each}") for each in range(SLOW)]
    for each in hanging:
        each.is_slow = True
        schedule.offer(each, 0.5)
    assert set(schedule.next(0.5)) == set(hanging)
    # One of the two waits for a place, and is removed before there is one.
    assert list(schedule.next(2.0)) == []
    for offset in range(10):
        one.remove(one.entries[0], offset)
    schedule.end(hanging[0], Failure("400"), 2.1, 0.1)
    assert [each for now in (2.1, 4.0, 6.0) for each in schedule.next(now)] == [other]


def test_a_server_is_asked_again_when_it_wants_to() -> None:
    schedule = Schedule()
    one = route(1, "https://busy")
    schedule.offer(one, 0.0)
    list(schedule.next(0.0))
    schedule.end(one, Failure("429", retry_after_s=120), 0.0, 0.1)
    assert list(schedule.next(119.0)) == []
    assert list(schedule.next(121.0)) == [one]
