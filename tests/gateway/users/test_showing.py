"""What users show their friends: how precisely, from when on and until when; and who asks."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway.shares.friend_requests import (
    BLOCKED_MAX,
    DECLINED_MS,
    OPEN_MS,
    RECEIVED_MAX,
    SENT_MAX,
    Declined,
    TooManyRequests,
)
from gateway.shares.share import FRIENDS, Terms
from gateway.users.auth import Identity
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions, Visibility, terms_of, visibility_of
from gateway.users.rights import Rights, Showing
from waylog.observability.telemetry import now_ms


def shown(store: UserStore, friend: str = "bob") -> Showing:
    return store.rights.friendships(("ada",))["ada", friend]


def test_friends_are_told_exact_positions_without_end_unless_it_is_said(store: UserStore) -> None:
    store.rights.befriend("ada", "bob")
    rights = store.rights.of("bob")
    assert (rights.coarse, rights.ends) == ({}, {})
    assert rights.terms_for("ada") == rights.terms_for("nobody") == FRIENDS
    before = now_ms()
    store.rights.befriend("ada", "cyd", precision="metres", metres=500, until=before + 60_000)
    rights = store.rights.of("cyd")
    assert rights.terms_for("ada") == Terms(cell_m=500)
    assert rights.ends == {"ada": before + 60_000}
    assert shown(store, "cyd") == Showing(rights.friends["ada"], "metres", 500, before + 60_000)
    assert terms_of(Identity("cyd", rights=rights), "ada") == Terms(cell_m=500)


def test_what_is_not_named_stays_as_it_is(store: UserStore) -> None:
    rights = store.rights
    rights.befriend("ada", "bob", since=5, precision="town", until=(end := now_ms() + 60_000))
    version = store.rights_version()
    rights.befriend("ada", "bob")
    assert shown(store) == Showing(5, "town", None, end)
    assert store.rights_version() == version
    rights.befriend("ada", "bob", precision="metres", metres=20_000)
    assert shown(store) == Showing(5, "metres", 20_000, end)
    assert store.rights_version() > version
    rights.befriend("ada", "bob", until=None)
    assert shown(store) == Showing(5, "metres", 20_000)


def test_what_has_passed_is_not_told_more_precisely_later(store: UserStore) -> None:
    rights = store.rights
    rights.befriend("ada", "bob", since=5, precision="metres", metres=2_000)
    rights.befriend("ada", "bob", precision="town")
    assert shown(store).since == 5
    for precision, metres in (("metres", 4_000), ("metres", 50), ("exact", None)):
        before = now_ms()
        rights.befriend("ada", "bob", precision=precision, metres=metres)  # type: ignore[arg-type]
        assert before <= shown(store).since <= now_ms()
        rights.befriend("ada", "bob", since=5)
    # Whoever says so themselves may tell it.
    rights.befriend("ada", "bob", precision="town")
    rights.befriend("ada", "bob", 7, precision="exact")
    assert shown(store) == Showing(7)


@pytest.mark.parametrize(
    ("precision", "metres", "until"),
    [
        *(("metres", None, None), ("metres", 49, None), ("metres", 50_001, None)),
        *(("town", 500, None), ("exact", 500, None), ("exact", None, 1)),
    ],
)
def test_what_nobody_can_be_shown_is_refused(
    store: UserStore, precision: str, metres: int | None, until: int | None
) -> None:
    with pytest.raises(ValueError):
        store.rights.befriend(
            "ada",
            "bob",
            precision=precision,  # type: ignore[arg-type]
            metres=metres,
            until=until,
        )
    assert store.rights.friends_of("ada") == []


def test_a_friendship_is_over_at_its_time_before_anybody_looks(store: UserStore) -> None:
    now = now_ms()
    ended = Rights(friends={"ada": 0, "cyd": 0}, ends={"ada": now - 1, "cyd": now + 60_000})
    bob = Identity("bob", rights=ended)
    assert visibility_of(bob, "ada/phone") is Visibility.NOTHING
    assert visibility_of(bob, "cyd/phone") is Visibility.TOLD


def test_a_friendship_that_has_ended_is_gone_everywhere_and_may_begin_anew(
    store: UserStore, tmp_path: Path
) -> None:
    permissions = Permissions(store)
    told: list[set[str]] = []
    permissions.subscribe(lambda users: told.append(set(users)))
    store.rights.befriend("ada", "bob", since=5, precision="town", until=now_ms() + 60_000)
    permissions.look()
    assert told.pop() == {"bob"}
    bob = permissions.now(Identity("bob"))
    assert bob is not None
    end_in_the_past(tmp_path, now_ms() - 1)
    # Nothing of it is left, whether anybody has looked or not.
    assert store.rights.of("bob").friends == {}
    assert store.rights.friends_of("ada") == []
    assert store.rights.friendships() == {}
    permissions.look()
    assert told.pop() == {"bob"}
    now = permissions.now(bob)
    assert now is not None
    assert now.rights.friends == {}
    assert rows(tmp_path, "SELECT * FROM friendships") == []
    before = now_ms()
    store.rights.befriend("ada", "bob")
    assert shown(store).since >= before
    assert shown(store) == Showing(shown(store).since)
    # One that has ended and is still in the table does not come back either.
    store.rights.befriend("ada", "bob", since=5, precision="town", until=now_ms() + 60_000)
    end_in_the_past(tmp_path, now_ms() - 1)
    store.rights.befriend("ada", "bob")
    assert shown(store).since >= before
    assert shown(store) == Showing(shown(store).since)


def end_in_the_past(folder: Path, until: int) -> None:
    """Let time pass: what would end later has ended."""
    with sqlite3.connect(folder / "users.db") as connection:
        connection.execute("UPDATE friendships SET until = ?", (until,))
    connection.close()


def rows(folder: Path, question: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / "users.db")
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


def test_friendships_of_older_databases_are_exact_and_without_end(tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.db")
    for name in ("ada", "bob"):
        store.add(name)
    store.rights.befriend("ada", "bob", since=1_234)
    store.close()
    connection = sqlite3.connect(tmp_path / "users.db")
    connection.executescript(
        "DROP INDEX friendships_until;"
        "ALTER TABLE friendships DROP COLUMN precision;"
        "ALTER TABLE friendships DROP COLUMN metres;"
        "ALTER TABLE friendships DROP COLUMN until;"
        "DROP TABLE friend_requests; DROP TABLE friend_blocks;"
    )
    connection.close()
    for _ in range(2):
        store = UserStore(tmp_path / "users.db")
        try:
            assert shown(store) == Showing(1_234)
            store.friend_requests.ask("bob", "ada")
            store.rights.befriend("ada", "bob", until=now_ms() + 60_000)
            store.rights.befriend("ada", "bob", until=None)
        finally:
            store.close()


# --- who asks -------------------------------------------------------------------------------------


def names(found: list[object]) -> list[str]:
    return [each.user for each in found]  # type: ignore[attr-defined]


def test_a_request_is_open_until_it_is_answered(store: UserStore) -> None:
    requests = store.friend_requests
    assert requests.ask("ada", "bob")
    assert not requests.ask("ada", "bob")
    [received], [sent] = requests.received("ada"), requests.sent("bob")
    assert (received.user, sent.user) == ("bob", "ada")
    assert received.until == received.created + OPEN_MS
    assert requests.received("bob") == requests.sent("ada") == []
    store.rights.befriend("ada", "bob", precision="town")
    assert requests.received("ada") == requests.sent("bob") == []
    # That the other way round nothing was asked, it stays so.
    assert store.rights.friends_of("bob") == []


def test_what_a_blocked_user_shows_is_not_seen(store: UserStore) -> None:
    for asking in ("bob", "cyd"):
        store.rights.befriend(asking, "ada")
    before, version = store.rights.of("ada"), store.rights_version()
    store.friend_requests.block("ada", "bob")
    assert "ada" in store.rights_changed_after(version)
    after = store.rights.of("ada")
    assert set(before.friends) == {"bob", "cyd"} and set(after.friends) == {"cyd"}
    assert after.narrows(before) and not before.narrows(after)
    # Showing it once more is of no use, and nothing tells that.
    store.rights.befriend("bob", "ada")
    assert set(store.rights.of("ada").friends) == {"cyd"}
    assert store.rights.friends_of("bob") == ["ada"]
    version = store.rights_version()
    store.friend_requests.unblock("ada", "bob")
    assert "ada" in store.rights_changed_after(version)
    assert store.rights.of("ada").sight == before.sight != after.sight


@pytest.mark.parametrize(
    ("first", "second", "narrows"),
    [
        ({"precision": "exact"}, {"precision": "town"}, True),
        ({"precision": "town", "since": 5}, {"precision": "metres", "metres": 50}, False),
        ({"precision": "metres", "metres": 50}, {"precision": "metres", "metres": 60}, True),
        ({"since": 5}, {"since": 6}, True),
        ({"since": 6}, {"since": 5}, False),
        ({}, {}, False),
    ],
)
def test_sight_narrows_if_something_is_told_no_more(
    store: UserStore, first: dict[str, Any], second: dict[str, Any], narrows: bool
) -> None:
    store.rights.befriend("bob", "ada", **first)
    before = store.rights.of("ada")
    store.rights.befriend("bob", "ada", **second)
    after = store.rights.of("ada")
    assert after.narrows(before) == narrows
    assert (after.sight == before.sight) == (not second)
    store.rights.unfriend("bob", "ada")
    assert store.rights.of("ada").narrows(after)


def test_who_was_declined_asks_again_in_a_week(store: UserStore) -> None:
    requests, now = store.friend_requests, now_ms()
    requests.ask("ada", "bob")
    requests.decline("ada", "bob")
    assert requests.received("ada") == requests.sent("bob") == []
    with pytest.raises(Declined) as declined:
        requests.ask("ada", "bob")
    assert now + DECLINED_MS <= declined.value.until <= now_ms() + DECLINED_MS
    # It does not help to take back what was declined.
    requests.take_back("ada", "bob")
    with pytest.raises(Declined):
        requests.ask("ada", "bob", now_ms() + DECLINED_MS - 60_000)
    assert requests.ask("ada", "bob", now_ms() + DECLINED_MS + 1)
    # Others are not concerned; nor is what was never asked.
    assert requests.ask("ada", "cyd")
    requests.decline("cyd", "ada")
    assert requests.ask("cyd", "ada")


def test_a_request_expires(store: UserStore) -> None:
    requests = store.friend_requests
    requests.ask("ada", "bob", now_ms() - OPEN_MS + 60_000)
    assert names([*requests.received("ada")]) == ["bob"]
    requests.ask("ada", "cyd", now_ms() - OPEN_MS)
    assert names([*requests.received("ada")]) == ["bob"]
    assert requests.sent("cyd") == []
    requests.decline("ada", "cyd")
    assert requests.ask("ada", "cyd")


def test_a_request_that_is_made_again_and_again_is_told_once(store: UserStore) -> None:
    requests, begun = store.friend_requests, now_ms() - 1_000
    assert requests.ask("ada", "bob", begun)
    for _ in range(3):
        requests.take_back("ada", "bob")
        assert requests.received("ada") == requests.sent("bob") == []
        assert not requests.ask("ada", "bob")
        assert [each.created for each in requests.received("ada")] == [begun]


def test_who_is_blocked_is_not_heard_and_cannot_tell(store: UserStore) -> None:
    requests = store.friend_requests
    requests.ask("ada", "bob")
    store.rights.befriend("ada", "cyd")
    for name in ("bob", "cyd"):
        requests.block("ada", name)
        requests.block("ada", name)
    assert requests.blocked("ada") == ["bob", "cyd"]
    assert store.rights.friends_of("ada") == []
    assert requests.received("ada") == []
    assert not requests.ask("ada", "cyd")
    requests.decline("ada", "cyd")
    # To those who ask it looks as if nobody had answered.
    for name in ("bob", "cyd"):
        assert names([*requests.sent(name)]) == ["ada"]
        assert not requests.ask("ada", name)
    requests.unblock("ada", "bob")
    assert names([*requests.received("ada")]) == ["bob"]
    # A user who is shown the devices is not blocked.
    store.rights.befriend("ada", "cyd")
    assert requests.blocked("ada") == []
    assert requests.sent("cyd") == []


def test_requests_and_blocks_are_bounded(store: UserStore) -> None:
    requests = store.friend_requests
    others = [f"u{number}" for number in range(max(SENT_MAX, RECEIVED_MAX) + 2)]
    for name in others:
        store.add(name)
    for name in others[:SENT_MAX]:
        requests.ask(name, "bob")
    with pytest.raises(TooManyRequests):
        requests.ask("ada", "bob")
    requests.ask(others[0], "bob")
    requests.take_back(others[0], "bob")
    requests.ask("ada", "bob")
    for name in others[: RECEIVED_MAX - 1]:
        requests.ask("ada", name)
    with pytest.raises(TooManyRequests):
        requests.ask("ada", others[-1])
    # Requests of blocked users take no room.
    requests.block("ada", others[0])
    assert requests.ask("ada", others[-1])
    assert BLOCKED_MAX >= RECEIVED_MAX


def test_nothing_is_left_of_a_user_who_is_revoked(store: UserStore, tmp_path: Path) -> None:
    requests = store.friend_requests
    requests.ask("ada", "bob")
    requests.ask("bob", "cyd")
    requests.block("bob", "ada")
    requests.block("cyd", "bob")
    store.revoke("bob")
    for table in ("friend_requests", "friend_blocks"):
        assert rows(tmp_path, f"SELECT * FROM {table}") == []
    with pytest.raises(sqlite3.IntegrityError):
        requests.ask("nobody", "ada")
