"""Current rights, looked up by version."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.users.auth import Authenticator, Identity
from gateway.users.database import UserStore
from gateway.users.permissions import (
    Permissions,
    Visibility,
    friends_since,
    may_look_back,
    visibility_of,
)
from gateway.users.rights import Rights


@pytest.fixture
def elsewhere(tmp_path: Path, store: UserStore) -> Iterator[UserStore]:
    """Yield a second store of the same users, as the command line opens it."""
    other = UserStore(tmp_path / "users.db")
    yield other
    other.close()


async def test_each_change_grows_the_version_and_names_whom_it_concerns(
    store: UserStore, elsewhere: UserStore
) -> None:
    permissions = Permissions(store)
    told: list[set[str]] = []
    permissions.subscribe(lambda users: told.append(set(users)))
    permissions.look()
    assert not told

    rights = elsewhere.rights
    tablet = elsewhere.add_token("ada", "tablet")
    changes: list[tuple[Callable[[], object], set[str]]] = [
        (lambda: rights.befriend("ada", "bob"), {"bob"}),
        (lambda: rights.grant("cyd", "subscribe", "plant/#"), {"cyd"}),
        (lambda: rights.set_sending("ada", False), {"ada"}),
        (lambda: rights.unfriend("ada", "bob"), {"bob"}),
        (lambda: elsewhere.set_admin("bob", True), {"bob"}),
        (lambda: elsewhere.revoke_device("ada", "tablet"), {"ada"}),
        (lambda: elsewhere.revoke("cyd"), {"cyd"}),
    ]
    for change, concerned in changes:
        before = permissions.version
        change()
        permissions.look()
        assert told.pop() == concerned
        assert permissions.version > before
        for user in ("ada", "bob", "cyd"):
            assert permissions.changed_since(user, before) == (user in concerned)
    assert tablet
    # Changes that do not affect rights are not reported.
    elsewhere.add_token("ada")
    rights.set_card("ada/phone", "Ada", None)
    rights.add_push_subscription("ada", "https://push.example/1", "key", "auth", 5)
    permissions.look()
    assert not told


async def test_an_identity_has_the_rights_of_now_until_it_stands_no_more(store: UserStore) -> None:
    permissions = Permissions(store)
    authenticator = Authenticator(store)
    token = store.add_token("bob")
    bob = await authenticator.authenticate("bob", token)
    assert bob is not None
    seen = permissions.version

    before = time.time_ns() // 1_000_000
    store.rights.befriend("ada", "bob")
    permissions.look()
    now = permissions.since(bob, seen)
    assert now is not None
    assert visibility_of(bob, "ada/phone") is Visibility.NOTHING
    assert visibility_of(now, "ada/phone") is Visibility.TOLD
    began = friends_since(now, "ada")
    assert began is not None
    assert before <= began <= time.time_ns() // 1_000_000
    assert permissions.since(now, permissions.version) is now

    store.revoke("ada")
    permissions.look()
    now = permissions.now(now)
    assert now is not None
    assert visibility_of(now, "ada/phone") is Visibility.NOTHING

    store.revoke("bob")
    store.add("bob")
    permissions.look()
    assert permissions.now(now) is None
    authenticator.close()


@pytest.mark.parametrize(
    ("identity", "own", "other_own", "friends", "strangers"),
    [
        (Identity("bob"), "everything", "everything", "told", "nothing"),
        (Identity("bob", "phone"), "everything", "nothing", "told", "nothing"),
        (Identity("bob", admin=True), *["everything"] * 4),
    ],
)
def test_how_much_each_sees(
    identity: Identity, own: str, other_own: str, friends: str, strangers: str
) -> None:
    rights = Rights(friends={"ada": 1})
    identity = Identity(identity.user, identity.device, identity.admin, rights)
    devices = ("bob/phone", "bob/tablet", "ada/phone", "cyd/phone")
    seen = [visibility_of(identity, device).value for device in devices]
    assert seen == [own, other_own, friends, strangers]


def test_a_token_of_a_device_is_for_that_device_and_for_the_present_of_friends() -> None:
    phone = Identity("bob", "phone", rights=Rights(friends={"ada": 1}))
    assert may_look_back(phone, "bob/phone")
    assert not may_look_back(phone, "ada/phone")
    assert may_look_back(Identity("bob", rights=phone.rights), "ada/phone")


def test_the_token_of_an_administrators_device_is_not_an_administrators(store: UserStore) -> None:
    store.set_admin("ada", True)
    credential = store.credential_of_token(store.add_token("ada", "phone"))
    assert credential is not None
    assert not credential.admin
    # Reading its rights again does not make it an administrator's token either.
    phone = Identity("ada", "phone")
    permissions = Permissions(store)
    store.rights.befriend("bob", "ada")
    permissions.look()
    now = permissions.since(phone, 0)
    assert now is not None
    assert now.rights.friends
    assert not now.admin


def test_friendships_of_older_databases_begin_now_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "old.db"
    UserStore(path).close()
    connection = sqlite3.connect(path)
    connection.executescript(
        "DROP TABLE friendships;"
        "CREATE TABLE friendships (user TEXT NOT NULL REFERENCES users (name),"
        " friend TEXT NOT NULL REFERENCES users (name), PRIMARY KEY (user, friend))"
        " STRICT, WITHOUT ROWID;"
        "INSERT INTO users (name, created) VALUES ('ada', 1), ('bob', 1);"
        "INSERT INTO friendships (user, friend) VALUES ('ada', 'bob');"
    )
    connection.close()
    before = time.time_ns() // 1_000_000
    for _ in range(2):
        store = UserStore(path)
        assert store.rights.of("bob").friends["ada"] >= before
        store.close()
        before = 1
    assert [line for line in caplog.messages if "begin now" in line] == [
        "1 friendships of an earlier version begin now: friends see what comes from now on; "
        "`waylog user friend USER FRIEND --since TIME` lets one begin earlier"
    ]
