"""The user database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.users.database import (
    TOKEN_PREFIX,
    UnknownUser,
    UserExists,
    UserStore,
    ensure_user,
    token_hash,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UserStore]:
    users = UserStore(tmp_path / "folder" / "users.db")
    yield users
    users.close()


def test_a_new_user_has_a_token(store: UserStore) -> None:
    token = store.add("ada")
    assert token is not None
    assert token.startswith(TOKEN_PREFIX)
    credential = store.credential_of_token(token)
    assert credential is not None
    assert (credential.user, credential.device, credential.admin) == ("ada", None, False)


def test_nothing_readable_is_stored(store: UserStore, tmp_path: Path) -> None:
    token = store.add("ada")
    assert token is not None
    store.add("bob", password="correct horse")
    store.close()
    content = b"".join(path.read_bytes() for path in (tmp_path / "folder").iterdir())
    assert token.encode() not in content
    assert b"correct horse" not in content
    assert b"$argon2id$" in content


def test_the_file_is_its_owners_alone(store: UserStore, tmp_path: Path) -> None:
    assert (tmp_path / "folder" / "users.db").stat().st_mode & 0o077 == 0


def test_a_device_token_is_good_for_its_device(store: UserStore) -> None:
    store.add("ada")
    credential = store.credential_of_token(store.add_token("ada", "phone"))
    assert credential is not None
    assert (credential.user, credential.device) == ("ada", "phone")


def test_a_revoked_user_has_no_credentials_and_can_be_added_anew(store: UserStore) -> None:
    token = store.add("ada", admin=True)
    assert token is not None
    of_device = store.add_token("ada", "phone")
    store.revoke("ada")
    assert store.credential_of_token(token) is None
    assert store.credential_of_token(of_device) is None
    with pytest.raises(UnknownUser):
        store.revoke("ada")
    again = store.add("ada")
    assert again is not None
    credential = store.credential_of_token(again)
    assert credential is not None
    assert not credential.admin
    assert store.credential_of_token(token) is None


def test_a_name_is_taken_once(store: UserStore) -> None:
    store.add("ada")
    with pytest.raises(UserExists):
        store.add("ada")


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "a b", "-x", "ä", "x" * 65, "a\n"])
def test_names_that_would_break_topics_are_refused(store: UserStore, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        store.add(name)


@pytest.mark.parametrize("device", ["", "a/b", "+", "a b", "x" * 200])
def test_device_names_that_would_break_topics_are_refused(store: UserStore, device: str) -> None:
    store.add("ada")
    with pytest.raises(ValueError, match="device"):
        store.add_token("ada", device)


@pytest.mark.parametrize("password", ["short", TOKEN_PREFIX + "looks like a token"])
def test_bad_passwords_are_refused(store: UserStore, password: str) -> None:
    with pytest.raises(ValueError, match="password"):
        store.add("ada", password=password)


def test_users_are_listed_with_their_devices(store: UserStore) -> None:
    store.add("bob")
    store.add("ada", admin=True)
    store.add_token("ada", "phone")
    store.revoke("bob")
    ada, bob = store.users()
    assert (ada.name, ada.admin, ada.devices, ada.revoked) == ("ada", True, ("phone",), None)
    assert (bob.name, bob.revoked is not None) == ("bob", True)


def test_a_change_by_another_process_changes_the_version(store: UserStore, tmp_path: Path) -> None:
    before = store.data_version()
    other = UserStore(tmp_path / "folder" / "users.db")
    other.add("ada")
    other.close()
    assert store.data_version() != before


def test_a_demo_user_keeps_its_token_until_that_stops_working(tmp_path: Path) -> None:
    database, file = tmp_path / "users.db", tmp_path / "demo.token"
    token = ensure_user(database, "demo", file)
    assert file.read_text().strip() == token
    assert file.stat().st_mode & 0o777 == 0o600
    assert ensure_user(database, "demo", file) == token
    file.unlink()
    another = ensure_user(database, "demo", file)
    assert another != token
    store = UserStore(database)
    assert store.credential_of_token(token) is not None
    store.revoke("demo")
    store.close()
    assert ensure_user(database, "demo", file) not in (token, another)


def test_what_is_deleted_is_in_no_free_page_of_the_file(store: UserStore, tmp_path: Path) -> None:
    store.add("ada")
    endpoint = "https://push.example.org/" + "ada-was-here" * 20
    store.rights.add_push_subscription("ada", endpoint, "p256dh", "auth", 10)
    store.rights.remove_push_subscription(endpoint, "ada")
    store.close()
    files = list((tmp_path / "folder").iterdir())
    assert not [path.name for path in files if b"ada-was-here" in path.read_bytes()]


def test_a_revoked_user_is_in_no_page_of_the_write_ahead_log(
    store: UserStore, tmp_path: Path
) -> None:
    store.add("ada", password="correct horse")
    token = store.add_token("ada", "phone")
    store.add("bob-the-friend")
    store.rights.befriend("ada", "bob-the-friend")
    endpoint = "https://push.example.org/ada-was-here"
    store.rights.add_push_subscription("ada", endpoint, "p256dh", "auth", 10)
    traces = (token_hash(token).encode(), b"$argon2id$", b"ada-was-here")
    log = tmp_path / "folder" / "users.db-wal"
    assert all(each in log.read_bytes() for each in traces)
    # A gateway has the file open as well.
    gateway = UserStore(tmp_path / "folder" / "users.db")
    try:
        assert gateway.exists("ada")
        store.revoke("ada")
        content = b"".join(path.read_bytes() for path in (tmp_path / "folder").iterdir())
        assert not any(each in content for each in traces)
        assert not gateway.exists("ada")
    finally:
        gateway.close()
