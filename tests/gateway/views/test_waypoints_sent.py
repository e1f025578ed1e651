"""The versions last sent to devices, when there are more than are remembered."""

from __future__ import annotations

from gateway.views.waypoints_sent import WaypointsSent


def test_a_version_is_sent_once_and_a_new_one_again() -> None:
    sent = WaypointsSent()
    assert [sent.is_last("ada/phone", each) for each in (1, 1, 2, 2)] == [False, True, False, True]


def test_who_has_most_forgets_its_own() -> None:
    sent = WaypointsSent(100)
    for number in range(10):
        sent.is_last(f"user{number}/phone", 1)
    for number in range(10_000):
        sent.is_last(f"eve/{number}", 1)
        assert len(sent) <= 100
    assert all(sent.is_last(f"user{number}/phone", 1) for number in range(10))
    assert sent.is_last("eve/9999", 1)
    assert not sent.is_last("eve/0", 1)


def test_where_nobody_has_much_the_user_not_seen_longest_is_forgotten() -> None:
    sent = WaypointsSent(3)
    for user in "abcd":
        sent.is_last(f"{user}/phone", 1)
    assert len(sent) == 3
    assert sent.is_last("d/phone", 1)
    assert not sent.is_last("a/phone", 1)
