"""Cookies of browsers in which a user has signed in before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.users.database import UserStore
from gateway.users.known_browsers import KnownBrowsers


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UserStore]:
    store = UserStore(tmp_path / "users.db")
    for name in ("ada", "eve"):
        store.add(name, password="the same of both")
    yield store
    store.close()


def cookies(browsers: KnownBrowsers, *users: str) -> dict[str, str]:
    found = {browsers.cookie_name(user): browsers.cookie_value(user) for user in users}
    return {name: value for name, value in found.items() if value is not None}


def test_a_browser_may_be_known_to_several_users_and_each_is_a_party(store: UserStore) -> None:
    browsers = KnownBrowsers(store, "known")
    both = cookies(browsers, "ada", "eve")
    assert len(both) == 2
    # Anybody who looks at the browser would learn who else uses it.
    assert all(re.fullmatch("known-[0-9a-f]{16}", name) for name in both)
    parties = {browsers.party(user, both) for user in ("ada", "eve")}
    assert len(parties - {None}) == 2
    assert browsers.party("ada", cookies(browsers, "eve")) is None


def test_a_new_password_ends_what_was_known_of_one_user_alone(store: UserStore) -> None:
    browsers = KnownBrowsers(store, "known")
    both = cookies(browsers, "ada", "eve")
    store.set_password("ada", "another one")
    assert browsers.party("ada", both) is None
    assert browsers.party("eve", both) is not None


def test_another_process_of_the_installation_knows_it_and_another_installation_does_not(
    store: UserStore, tmp_path: Path
) -> None:
    shown = cookies(KnownBrowsers(store, "known"), "ada")
    again = UserStore(tmp_path / "users.db")
    other = UserStore(tmp_path / "other.db")
    other.add("ada", password="the same of both")
    assert KnownBrowsers(again, "known").party("ada", shown) is not None
    assert cookies(KnownBrowsers(other, "known"), "ada").keys() != shown.keys()
    for each in (again, other):
        each.close()


def test_who_has_no_password_has_no_cookie(store: UserStore) -> None:
    store.add("bob")
    browsers = KnownBrowsers(store, "known")
    assert browsers.cookie_value("bob") is None
    assert browsers.party("bob", {browsers.cookie_name("bob"): "x"}) is None


def test_where_nobody_can_look_no_browser_is_known(
    store: UserStore, caplog: pytest.LogCaptureFixture
) -> None:
    browsers = KnownBrowsers(store, "known")
    shown = cookies(browsers, "ada")
    store.close()
    assert browsers.party("ada", shown) is None
    assert "cannot be read" in caplog.text


def test_what_is_no_text_is_no_cookie(store: UserStore) -> None:
    browsers = KnownBrowsers(store, "known")
    assert browsers.party("ada", {browsers.cookie_name("ada"): "\udcff"}) is None
