"""Who is told of which event: the owner, friends who have asked, and each once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.friends.friend_filter import FriendFilter
from gateway.notices import event_notices
from gateway.notices.event_notices import FRESH_MS, LATE_MS, EventNotices, Notice, kind_of
from gateway.shares.share import Terms
from gateway.users.rights import Rights
from tests.gateway.friends.test_told_events import AWAY, HOME, NOW, Homes, around, event, fence
from waylog.messages import Event


class Teller:
    """Notices of a gateway in which bob is a friend of ada, and ada one of bob."""

    def __init__(self) -> None:
        self.now_ms = NOW + 1_000
        self.friends: dict[str, dict[str, int]] = {"bob": {"ada": 1_000}, "ada": {"bob": 2_000}}
        self.coarse: dict[str, dict[str, Terms]] = {}
        self.notices = EventNotices(
            FriendFilter(Homes(), b"secret"),
            lambda user: Rights(
                friends=self.friends.get(user, {}), coarse=self.coarse.get(user, {})
            ),
            lambda: self.now_ms,
        )

    def told(self, event: Event, choices: Mapping[str, Any] = {}) -> list[Notice]:
        chosen = {user: frozenset(kinds.split()) for user, kinds in choices.items()}
        return self.notices.notices(event, chosen)


@pytest.fixture
def teller() -> Teller:
    return Teller()


def users(notices: list[Notice]) -> list[str]:
    return [each.user for each in notices]


def test_the_owner_is_told_of_all_events_unless_it_has_chosen_some(teller: Teller) -> None:
    events = {
        "enter": fence(HOME, owner="ada", fence="door"),
        "dwell": fence(transition="dwell"),
        "silence": event("silence", transition="begin", since=NOW - 900_000, limit=900.0),
        "speeding": event("speeding", transition="end", fastest=41.0, lat=47.0, lon=9.0),
    }
    for kind, each in events.items():
        [notice] = teller.told(each)
        assert (notice.user, notice.kind, notice.is_own) == ("ada", kind, True)
        assert notice.message["device"] == "ada/phone"
        assert users(teller.told(each, {"ada": "leave meeting"})) == []
        assert users(teller.told(each, {"ada": kind})) == ["ada"]
    message = teller.told(events["enter"])[0].message
    assert message["fence"] == "door"
    assert (message["lat"], message["lon"]) == (HOME[0] + 1e-9, HOME[1])


def test_a_friend_who_asks_is_told_as_the_friend_filter_says(teller: Teller) -> None:
    asks = {"bob": "enter leave dwell silence speeding"}
    assert users(teller.told(fence(), asks)) == ["ada", "bob"]
    own, of_friend = teller.told(fence(), asks)
    assert "since" in own.message
    assert "since" not in of_friend.message
    assert of_friend.event.id != own.event.id
    assert not of_friend.is_own
    assert users(teller.told(fence(HOME), asks)) == ["ada"]
    assert users(teller.told(fence(owner="ada"), asks)) == ["ada"]
    for kind in ("silence", "speeding"):
        assert users(teller.told(event(kind, transition="begin"), asks)) == ["ada"]
    assert users(teller.told(fence(), {"bob": "leave"})) == ["ada"]
    assert users(teller.told(fence(), {"eve": "enter"})) == ["ada"]


def test_a_friendship_that_has_ended_or_began_later_tells_nothing(teller: Teller) -> None:
    teller.friends["bob"] = {"ada": NOW + 1}
    assert users(teller.told(fence(), {"bob": "enter"})) == ["ada"]
    teller.friends["bob"] = {}
    assert users(teller.told(fence(), {"bob": "enter"})) == ["ada"]


def meeting(place: tuple[float, float] = AWAY, **changes: Any) -> Event:
    members = {"transition": "begin", "with": "ada/phone", "since": NOW - 300_000}
    members |= {"area": around(place), "near_m": 75.0}
    return event("meeting", "bob/car", **members | changes)


def test_a_meeting_is_told_to_friends_and_not_at_the_other_ones_home(teller: Teller) -> None:
    [notice] = teller.told(meeting())
    assert notice.message == {
        **{"type": "meeting", "transition": "begin", "device": "bob/car", "time": NOW},
        **{"with": "ada/phone", "since": NOW - 300_000},
    }
    assert teller.told(meeting(HOME)) == []
    assert teller.told(meeting(since=1_500)) == []
    assert teller.told(meeting(since="x")) == []
    # Nobody but the two hears of it.
    assert users(teller.told(meeting(), {"ada": "meeting", "eve": "meeting"})) == ["bob"]
    for user in ("ada", "bob"):
        one_sided = dict(teller.friends)
        teller.friends = one_sided | {user: {}}
        assert teller.told(meeting()) == []
        teller.friends = one_sided


def test_what_a_device_says_itself_makes_no_notice(teller: Teller) -> None:
    forged = fence()
    forged.source = "owntracks"
    assert teller.told(forged, {"bob": "enter"}) == []
    assert [kind_of(each) for each in (event("geofence"), event("lwt"), event("arrival"))] == [
        *(None, None, None),
    ]
    assert kind_of(fence(transition=["enter"])) is None
    assert kind_of(event("enter")) is None


def test_ids_of_so_many_events_are_remembered(
    teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_notices, "_KNOWN_MAX", 3)
    events = [fence() for _ in range(6)]
    for number, each in enumerate(events):
        each.id = str(number)
        assert teller.notices.is_news(each)
    assert not teller.notices.is_news(events[5])
    assert teller.notices.is_news(events[0])


def test_an_event_is_news_once_and_not_when_it_is_old(teller: Teller) -> None:
    notices = teller.notices
    assert notices.is_news(fence())
    assert not notices.is_news(fence())
    assert (notices.repeated, notices.outdated) == (1, 0)
    teller.now_ms = NOW + LATE_MS + 60_000
    assert teller.told(fence())[0].message["late_s"] == 180
    teller.now_ms = NOW + LATE_MS
    assert "late_s" not in teller.told(fence())[0].message
    teller.now_ms = NOW + FRESH_MS + 1
    # Its id is forgotten, but then it is too old.
    assert not notices.is_news(fence())
    assert notices.outdated == 1
    other = fence()
    other.id = "other"
    assert not notices.is_news(other)


def test_for_owntracks_it_is_a_transition_that_friends_do_not_get(teller: Teller) -> None:
    [notice] = teller.told(fence(owner="ada", fence="door"))
    transition = notice.transition("ph")
    assert transition is not None
    assert (transition["event"], transition["desc"], transition["tst"]) == (
        *("enter", "door", NOW // 1000),
    )
    assert transition["private"] is True
    assert teller.told(fence(transition="dwell"))[0].transition("ph") is None
    assert teller.told(event("silence", transition="begin"))[0].transition("ph") is None


def test_who_is_shown_squares_is_told_of_no_fence_and_no_meeting(teller: Teller) -> None:
    teller.coarse["bob"] = {"ada": Terms(cell_m=50)}
    assert users(teller.told(fence(), {"bob": "enter"})) == ["ada"]
    assert teller.told(meeting()) == []
    # The other one is told of none either: both would have to see each other.
    teller.coarse = {"ada": {"bob": Terms(cell_m=50)}}
    assert teller.told(meeting()) == []
    assert users(teller.told(fence(), {"bob": "enter"})) == ["ada", "bob"]
