"""Verdicts on credentials, cached and checked again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.limits.password_queue import SHARE_MAX
from gateway.users import auth
from gateway.users.auth import AuthenticationUnavailable, Authenticator, Identity
from gateway.users.database import UserStore
from tests.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def users(tmp_path: Path) -> Iterator[UserStore]:
    store = UserStore(tmp_path / "users.db")
    yield store
    store.close()


@pytest.fixture
def authenticator(users: UserStore, tmp_path: Path, clock: ManualClock) -> Iterator[Authenticator]:
    # A separate store, as a gateway has beside `waylog user`.
    store = UserStore(tmp_path / "users.db")
    made = Authenticator(store, clock=clock)
    yield made
    made.close()
    store.close()


async def unverified(authenticator: Authenticator, user: str, password: str) -> Identity | None:
    """Authenticate while another password is verified; this one must not wait for its turn."""
    other = asyncio.create_task(authenticator.authenticate("eve", os.urandom(8).hex()))
    await asyncio.sleep(0)
    identity = await authenticator.authenticate(user, password)
    assert not other.done()
    await other
    return identity


async def test_a_token_is_a_password_and_stands_alone(
    authenticator: Authenticator, users: UserStore
) -> None:
    token = users.add("ada", admin=True)
    assert token is not None
    ada = Identity("ada", None, True)
    assert await authenticator.authenticate("ada", token) == ada
    assert await authenticator.authenticate_token(token) == ada
    assert await authenticator.authenticate("bob", token) is None
    assert await authenticator.authenticate("ada", token + "x") is None
    assert await authenticator.authenticate_token("wl_nothing") is None


async def test_a_device_token_names_its_device(
    authenticator: Authenticator, users: UserStore
) -> None:
    users.add("ada")
    token = users.add_token("ada", "phone")
    assert await authenticator.authenticate("ada", token) == Identity("ada", "phone")


async def test_a_password_is_verified_once_and_then_remembered(
    authenticator: Authenticator, users: UserStore
) -> None:
    users.add("ada", password="correct horse")
    assert await authenticator.authenticate("ada", "correct horse") == Identity("ada")
    assert await unverified(authenticator, "ada", "correct horse") == Identity("ada")
    assert await authenticator.authenticate("ada", "wrong horse") is None


async def test_many_who_ask_the_same_are_verified_once(
    authenticator: Authenticator, users: UserStore
) -> None:
    users.add("ada", password="correct horse")
    answers = await asyncio.gather(
        *(authenticator.authenticate("ada", "correct horse") for _ in range(500))
    )
    assert set(answers) == {Identity("ada")}


async def test_a_revocation_is_effective_within_seconds(
    authenticator: Authenticator, users: UserStore, clock: ManualClock
) -> None:
    token = users.add("ada")
    assert token is not None
    users.add("bob", password="correct horse")
    assert await authenticator.authenticate("ada", token)
    assert await authenticator.authenticate("bob", "correct horse")
    users.revoke("ada")
    users.revoke("bob")
    clock.now += auth.RECHECK_S
    assert await authenticator.authenticate("ada", token) is None
    assert await authenticator.authenticate_token(token) is None
    assert await authenticator.authenticate("bob", "correct horse") is None


async def test_a_change_for_others_does_not_cost_a_verification(
    authenticator: Authenticator, users: UserStore, clock: ManualClock
) -> None:
    users.add("ada", password="correct horse")
    assert await authenticator.authenticate("ada", "correct horse")
    users.add("bob")
    clock.now += auth.RECHECK_S
    assert await unverified(authenticator, "ada", "correct horse") == Identity("ada")


async def test_a_user_added_after_a_refusal_is_let_in(
    authenticator: Authenticator, users: UserStore, clock: ManualClock
) -> None:
    assert await authenticator.authenticate("ada", "correct horse") is None
    users.add("ada", password="correct horse")
    clock.now += auth.RECHECK_S
    assert await authenticator.authenticate("ada", "correct horse") == Identity("ada")


async def test_verdicts_are_bounded(
    authenticator: Authenticator, users: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "VERDICTS_MAX", 10)
    monkeypatch.setattr(auth, "REFUSALS_MAX", 10)
    for number in range(30):
        token = users.add(f"user{number}")
        assert token is not None
        assert await authenticator.authenticate_token(token)
        assert await authenticator.authenticate_token(f"wl_{number}") is None
    assert len(authenticator._verdicts) == 10
    assert len(authenticator._refusals) == 10


async def test_many_credentials_of_one_user_do_not_push_out_those_of_others(
    users: UserStore, authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "VERDICTS_OF_USER_MAX", 3)
    tokens = {name: users.add(name) or "" for name in ("many", "one")}
    key = authenticator.key_of(None, tokens["one"])
    assert await authenticator.authenticate_token(tokens["one"])
    keys = []
    for number in range(10):
        token = users.add_token("many", f"d{number}")
        assert await authenticator.authenticate_token(token)
        keys.append(authenticator.key_of(None, token))
    assert authenticator.recall(key) is not None
    kept = [each for each in keys if authenticator.recall(each) is not None]
    assert kept == keys[-3:]


async def test_too_many_passwords_at_once_are_put_off_and_not_refused(
    authenticator: Authenticator,
) -> None:
    # One is being verified, and the others wait.
    asked = SHARE_MAX + 3
    results = await asyncio.gather(
        *(authenticator.authenticate("ada", f"guess {n}") for n in range(asked)),
        return_exceptions=True,
    )
    assert results[:SHARE_MAX] == [None] * SHARE_MAX
    put_off = [each for each in results if isinstance(each, AuthenticationUnavailable)]
    assert len(put_off) in (2, 3)


@pytest.mark.parametrize(("user", "password"), [("x" * 10_000, "p"), ("u", "p" * 10_000)])
async def test_absurd_lengths_are_refused_without_work(
    authenticator: Authenticator, user: str, password: str
) -> None:
    assert await authenticator.authenticate(user, password) is None


async def test_surrogates_are_refused(authenticator: Authenticator) -> None:
    assert await authenticator.authenticate("ada", "\udcff") is None
    assert await authenticator.authenticate("\udcff", "wl_x") is None


async def test_open_mode_believes_everybody(users: UserStore) -> None:
    authenticator = Authenticator(users, open_mode=True)
    assert await authenticator.authenticate("anybody", "") == Identity("anybody")
    assert await authenticator.authenticate("", "") == Identity("anonymous")
    assert await authenticator.authenticate("a/b", "") is None
    assert await authenticator.authenticate_token("wl_any") == Identity("anonymous")
    authenticator.close()
