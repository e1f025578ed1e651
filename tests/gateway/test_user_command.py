"""`waylog user` and `waylog device`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from gateway.users import UserStore
from waylog.cli import main


def test_users_are_added_listed_and_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    assert main(["user", "add", "ada", "--admin", users]) == 0
    token = capsys.readouterr().out.strip()
    assert main(["device", "token", "ada/phone", users, "--json"]) == 0
    of_device = json.loads(capsys.readouterr().out)
    assert (of_device["user"], of_device["device"]) == ("ada", "phone")

    store = UserStore(tmp_path / "users.db")
    assert store.credential_of_token(token) is not None
    assert store.credential_of_token(of_device["token"]) is not None

    assert main(["user", "list", users, "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["user"], listed["admin"], listed["devices"]) == ("ada", True, ["phone"])
    assert main(["user", "list", users]) == 0
    assert "ada" in capsys.readouterr().out

    assert main(["user", "revoke", "ada", users]) == 0
    assert store.credential_of_token(token) is None
    store.close()


def test_a_password_comes_from_the_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    users = f"--users={tmp_path / 'users.db'}"
    assert main(["user", "add", "ada", "--password-stdin", users]) == 0
    assert "correct horse" not in "".join(capsys.readouterr())
    store = UserStore(tmp_path / "users.db")
    assert store.password_of_user("ada") is not None
    store.close()


@pytest.mark.parametrize(
    "words",
    [
        ["user", "add", "ada"],
        ["user", "add", "a/b"],
        ["user", "revoke", "nobody"],
        ["device", "token", "nobody/phone"],
        ["device", "token", "ada"],
        ["device", "token", "ada/a b"],
    ],
)
def test_mistakes_are_one_line_and_status_1(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    assert main(["user", "add", "ada", users]) == 0
    capsys.readouterr()
    assert main([*words, users]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


def test_a_missing_database_is_not_made_by_looking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["user", "list", f"--users={tmp_path / 'users.db'}"]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "users.db").exists()


def test_a_file_that_is_no_database_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "users.db").write_bytes(b"this is not SQLite" * 100)
    assert main(["user", "list", f"--users={tmp_path / 'users.db'}"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
