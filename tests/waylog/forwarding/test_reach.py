"""What is said of a fix at a forwarding: sent only if that is certain."""

from __future__ import annotations

from typing import Any

import pytest

from waylog.forwarding.definition import Forwarding, Progress
from waylog.forwarding.reach import LogState, Outcome, Reach, Stored

MADE = 1_000_000
#: Longer ago than a worker takes for a change.
LATER = MADE + 100_000


def reach_of(
    progress: Progress | None = None, log: dict[str, Any] | None = None, **members: Any
) -> Reach:
    values: dict[str, Any] = {"name": "x", "kind": "webhook", "url": "https://x"}
    forwarding = Forwarding(**(values | {"created": MADE, "since": MADE} | members))
    state = {"starts": {0: 0}, "ends": {0: 100}, "group": {0: 50}} | (log or {})
    known = {} if progress is None else {0: progress}
    return Reach("ada", "0" * 16, forwarding, known, None, LogState(**state))


def outcome(reach: Reach, offset: int, time: int = LATER) -> Outcome:
    return reach.judge(Stored(0, offset, time)).outcome


def test_one_that_is_behind_has_an_offset_of_its_own() -> None:
    reach = reach_of(Progress(offset=30))
    assert [outcome(reach, each) for each in (29, 30, 49)] == [
        Outcome.SENT, Outcome.WAITING, Outcome.WAITING,
    ]  # fmt: skip
    assert reach.position(0) == 30


def test_a_live_one_is_as_far_as_the_group_or_as_it_said() -> None:
    live = reach_of(Progress(offset=30, live=True))
    assert (outcome(live, 49), outcome(live, 50)) == (Outcome.SENT, Outcome.WAITING)
    # It has sent more than the group has committed yet.
    ahead = reach_of(Progress(offset=60, live=True))
    assert (outcome(ahead, 59), outcome(ahead, 60)) == (Outcome.SENT, Outcome.WAITING)
    # The group has not begun this partition.
    unread = reach_of(Progress(offset=5, live=True), {"group": {1: 50}})
    assert (outcome(unread, 4), outcome(unread, 5)) == (Outcome.SENT, Outcome.WAITING)


def test_without_the_group_nobody_knows_how_far_a_live_one_is() -> None:
    live = reach_of(Progress(offset=30, live=True), {"group": None})
    assert (outcome(live, 29), outcome(live, 30)) == (Outcome.SENT, Outcome.UNKNOWN)
    behind = reach_of(Progress(offset=30), {"group": None})
    assert outcome(behind, 30) is Outcome.WAITING


def test_what_was_there_before_it_is_not_asked_for() -> None:
    for progress in (None, Progress(offset=99), Progress(offset=0, live=True)):
        assert outcome(reach_of(progress), 10, MADE - 1) is Outcome.NOT_ASKED
    assert outcome(reach_of(), 10, MADE) is Outcome.WAITING


def test_what_came_before_it_went_on_without_it_may_have_been_sent() -> None:
    reach = reach_of(Progress(offset=99), since=LATER, revision=2, settled=MADE)
    assert outcome(reach, 10, LATER - 1) is Outcome.UNKNOWN
    assert outcome(reach, 10, LATER) is Outcome.SENT


def test_what_came_before_devices_or_server_were_changed_may_have_gone_elsewhere() -> None:
    reach = reach_of(Progress(offset=50), settled=LATER, revision=1)
    assert outcome(reach, 10, LATER - 1) is Outcome.UNKNOWN
    assert outcome(reach, 10, LATER + 1) is Outcome.UNKNOWN, "a worker learns of it a little later"
    assert outcome(reach, 10, LATER + 15_000) is Outcome.SENT
    assert outcome(reach, 50, LATER - 1) is Outcome.WAITING, "it goes where it leads now"
    # An earlier version did not say when.
    assert outcome(reach_of(Progress(offset=50), revision=1), 10) is Outcome.UNKNOWN
    assert outcome(reach_of(Progress(offset=50), revision=1, settled=MADE), 10) is Outcome.SENT


def test_what_the_log_deleted_first_is_missed() -> None:
    log = {"starts": {0: 40}}
    assert outcome(reach_of(Progress(offset=30), log), 35) is Outcome.MISSED
    assert outcome(reach_of(None, log), 35) is Outcome.MISSED
    assert outcome(reach_of(None, log), 40) is Outcome.WAITING
    assert outcome(reach_of(Progress(offset=45), log), 35) is Outcome.SENT
    jumped = reach_of(Progress(offset=45, missed=3), log)
    assert (outcome(jumped, 35), outcome(jumped, 41)) == (Outcome.UNKNOWN, Outcome.SENT)


def test_a_refusal_that_cannot_be_seen_is_not_called_sent() -> None:
    log = {"has_letters": False}
    assert outcome(reach_of(Progress(offset=50, refused=1), log), 10) is Outcome.UNKNOWN
    assert outcome(reach_of(Progress(offset=50), log), 10) is Outcome.SENT
    assert outcome(reach_of(Progress(offset=50, refused=1)), 10) is Outcome.SENT


@pytest.mark.parametrize("live", [True, False])
def test_an_offset_beyond_the_end_is_that_of_another_log(live: bool) -> None:
    reach = reach_of(Progress(offset=101, live=live))
    assert outcome(reach, 10) is Outcome.UNKNOWN
    group = reach_of(Progress(offset=5, live=True), {"group": {0: 101}})
    assert outcome(group, 10) is Outcome.UNKNOWN


def test_every_unknown_outcome_says_why() -> None:
    unknown = [
        reach_of(Progress(offset=101)).judge(Stored(0, 1, LATER)),
        reach_of(Progress(offset=5, live=True), {"group": None}).judge(Stored(0, 9, LATER)),
        reach_of(Progress(offset=50), since=LATER).judge(Stored(0, 1, MADE)),
        reach_of(Progress(offset=50), revision=1).judge(Stored(0, 1, LATER)),
    ]
    assert all(each.outcome is Outcome.UNKNOWN and each.reason for each in unknown)
    assert len({each.reason for each in unknown}) == len(unknown)


def test_only_the_owners_devices_that_are_named_are_sent() -> None:
    reach = reach_of(devices=("phone",))
    assert reach.forwards("ada/phone")
    assert not reach.forwards("ada/watch")
    assert not reach.forwards("ben/phone")
    assert reach_of().forwards("ada/watch")
    assert not reach_of().forwards("ben/watch")
