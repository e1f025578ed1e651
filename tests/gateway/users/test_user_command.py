"""`waylog user` and `waylog device`."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from gateway.users.database import UserStore
from gateway.users.database_place import running_users_files
from waylog.cli import main


@pytest.fixture(autouse=True)
def platform(tmp_path: Path) -> None:
    """Make the file that a platform has in its folder."""
    UserStore(tmp_path / "users.db").close()


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
    missing = tmp_path / "missing.db"
    assert main(["user", "list", f"--users={missing}"]) == 1
    assert "missing.db is not there" in capsys.readouterr().err
    assert not missing.exists()


def test_a_file_that_is_no_database_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "users.db").write_bytes(b"this is not SQLite" * 100)
    assert main(["user", "list", f"--users={tmp_path / 'users.db'}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Return what a command prints as JSON."""
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr().out
    return json.loads(printed) if printed else None


def test_rights_are_given_listed_and_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    for name in ("ada", "bob"):
        of(capsys, "user", "add", name, users)
    assert of(capsys, "user", "friend", "ada", "bob", users)["friends"] == ["bob"]
    limit = of(capsys, "user", "limit", "ada", "--fixes-per-minute=60", "--look-only", users)
    assert limit == {"user": "ada", "fixes_per_minute": 60, "devices": None, "may_send": False}
    key = of(capsys, "user", "key", "ada", users)["key"]
    assert len(key) == 32
    allowed = of(capsys, "user", "allow", "bob", "subscribe", "plant/#", users)
    assert allowed["subscribe"] == ["plant/#"]
    ada, bob = of(capsys, "user", "list", users)
    assert (ada["friends"], ada["encrypted"], ada["may_send"]) == (["bob"], True, False)
    assert (bob["sees"], bob["subscribe"], bob["fixes_per_minute"]) == (["ada"], ["plant/#"], None)
    assert of(capsys, "user", "admin", "bob", users)["admin"] is True
    assert of(capsys, "user", "list", users)[1]["admin"] is True
    assert of(capsys, "user", "admin", "bob", "--remove", users)["admin"] is False
    assert main(["user", "list", users]) == 0
    assert "only look" in capsys.readouterr().out

    of(capsys, "user", "friend", "ada", "bob", "--remove", users)
    of(capsys, "user", "limit", "ada", "--may-send", users)
    of(capsys, "user", "key", "ada", "--remove", users)
    of(capsys, "user", "allow", "bob", "subscribe", "plant/#", "--remove", users)
    ada, bob = of(capsys, "user", "list", users)
    assert (ada["friends"], ada["encrypted"], ada["may_send"]) == ([], False, True)
    assert (bob["sees"], bob["subscribe"]) == ([], [])

    monkeypatch.setattr("sys.stdin", io.StringIO("a key of mine\n"))
    assert main(["user", "key", "ada", "--key-stdin", users]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    assert main(["user", "password", "ada", users]) == 0
    store = UserStore(tmp_path / "users.db")
    assert store.rights.of("ada").encryption_key == "a key of mine"
    assert store.password_of_user("ada") is not None
    store.revoke("ada")
    assert store.rights.of("ada").encryption_key is None
    store.close()


def test_a_limit_that_is_not_named_stays_and_without_options_all_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    of(capsys, "user", "add", "ada", users)
    of(capsys, "user", "limit", "ada", "--fixes-per-minute=60", users)
    of(capsys, "user", "limit", "ada", "--devices=3", users)
    assert main(["user", "limit", "ada", users]) == 0
    assert capsys.readouterr().out == "ada may send; fixes a minute: 60; devices: 3\n"
    both = {"user": "ada", "fixes_per_minute": 60, "devices": 3, "may_send": True}
    assert of(capsys, "user", "limit", "ada", users) == both
    looking = of(capsys, "user", "limit", "ada", "--look-only", "--devices=none", users)
    assert looking == both | {"may_send": False, "devices": None}
    with pytest.raises(SystemExit):
        main(["user", "limit", "ada", "--devices=many", users])


@pytest.mark.parametrize(
    "words",
    [["key", "ada"], ["friend", "ada", "bob"], ["allow", "ada", "publish", "plant/#"]],
    ids=lambda words: words[0],
)
def test_what_is_not_there_cannot_be_taken_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    for name in ("ada", "bob"):
        of(capsys, "user", "add", name, users)
    assert main(["user", *words, "--remove", users]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_friendship_begins_now_or_when_it_is_said_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    for name in ("ada", "bob"):
        of(capsys, "user", "add", name, users)

    def since() -> int:
        store = UserStore(tmp_path / "users.db")
        began = store.rights.of("bob").friends["ada"]
        store.close()
        return began

    of(capsys, "user", "friend", "ada", "bob", users)
    first = since()
    assert first > 1_760_000_000_000
    of(capsys, "user", "friend", "ada", "bob", "--since", "2026-05-31T00:00:00Z", users)
    assert since() == 1_780_185_600_000
    of(capsys, "user", "friend", "ada", "bob", users)
    assert since() == 1_780_185_600_000
    with pytest.raises(SystemExit):
        main(["user", "friend", "ada", "bob", "--since", "yesterday", users])


def test_a_friendship_has_a_precision_and_an_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    for name in ("ada", "bob"):
        of(capsys, "user", "add", name, users)

    def shown(*options: str) -> dict[str, Any]:
        found = of(capsys, "user", "friend", "ada", "bob", *options, users)
        return {name: found[name] for name in ("friends", "precision", "metres", "until")}

    usual = {"friends": ["bob"], "precision": "exact", "metres": None, "until": None}
    assert shown() == usual
    coarse = usual | {"precision": "metres", "metres": 500}
    assert shown("--metres=500") == coarse
    ending = coarse | {"until": 4_102_444_800_000}
    assert shown("--until=2100-01-01T00:00:00Z") == shown() == ending
    assert shown("--precision=town", "--until=none") == usual | {"precision": "town"}
    for wrong in ("--precision=street", "--until=soon", "--metres=far"):
        with pytest.raises(SystemExit):
            main(["user", "friend", "ada", "bob", wrong, users])
    taken = of(capsys, "user", "friend", "ada", "bob", "--remove", users)
    assert taken == {"user": "ada", "friends": []}


@pytest.mark.parametrize(
    "words",
    [
        ["friend", "ada", "ada"],
        ["friend", "ada", "nobody"],
        ["friend", "nobody", "ada"],
        ["friend", "ada", "bob", "--precision=metres"],
        ["friend", "ada", "bob", "--metres=49"],
        ["friend", "ada", "bob", "--precision=town", "--metres=500"],
        ["friend", "ada", "bob", "--until=2026-05-31"],
        ["limit", "ada", "--devices=0"],
        ["allow", "ada", "publish", ""],
    ],
)
def test_wrong_rights_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    for name in ("ada", "bob"):
        of(capsys, "user", "add", name, users)
    assert main(["user", *words, users]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_invitation_is_a_link_that_sets_up_owntracks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    of(capsys, "user", "add", "ada", users)
    picture = tmp_path / "invite.svg"
    invited = of(
        capsys, "device", "invite", "ada/phone", "--url=https://way.example/", f"--svg={picture}",
        users,
    )  # fmt: skip
    start, _, inline = invited["link"].partition("inline=")
    assert start == "owntracks:///config?"
    settings = json.loads(base64.b64decode(unquote(inline)))
    assert settings == invited["settings"]
    assert (settings["_type"], settings["mode"], settings["url"]) == (
        *("configuration", 3, "https://way.example/owntracks"),
    )
    store = UserStore(tmp_path / "users.db")
    credential = store.credential_of_token(settings["password"])
    assert credential is not None
    assert (credential.user, credential.device) == ("ada", "phone")
    assert b"<svg" in picture.read_bytes()

    over_mqtt = of(capsys, "device", "invite", "ada/phone", "--mqtt=h:8883", "--tls", users)
    assert {"mode": 0, "host": "h", "port": 8883, "tls": True}.items() <= over_mqtt[
        "settings"
    ].items()
    assert main(["device", "invite", "ada/phone", "--url=http://h", "--tls", users]) == 1
    assert "--tls is for --mqtt" in capsys.readouterr().err
    assert main(["device", "invite", "ada/phone", users]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 30
    of(capsys, "device", "revoke", "ada/phone", users)
    assert store.credential_of_token(settings["password"]) is None
    store.close()


def test_a_card_has_a_name_and_a_face(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = f"--users={tmp_path / 'users.db'}"
    of(capsys, "user", "add", "ada", users)
    face = tmp_path / "face.png"
    face.write_bytes(b"\x89PNG\r\n\x1a\n...")
    assert main(["device", "card", "ada/phone", "--name=Ada", f"--face={face}", users]) == 0
    store = UserStore(tmp_path / "users.db")
    card = store.rights.card("ada/phone")
    assert card is not None
    assert (card["name"], base64.b64decode(card["face"])) == ("Ada", face.read_bytes())
    store.close()
    assert capsys.readouterr().out == "ada/phone: name Ada, face set\n"
    told = of(capsys, "device", "card", "ada/phone", "--name=Ada L.", users)
    assert told == {"device": "ada/phone", "name": "Ada L.", "face": True}
    assert of(capsys, "device", "card", "ada/phone", users) == told
    assert main(["device", "card", "ada/watch", users]) == 0
    assert capsys.readouterr().out == "ada/watch: name not set, face not set\n"
    face.write_bytes(b"no picture")
    assert main(["device", "card", "ada/phone", f"--face={face}", users]) == 1
    face.write_bytes(b"\xff\xd8\xff" + bytes(200_000))
    assert main(["device", "card", "ada/phone", f"--face={face}", users]) == 1
    assert main(["device", "card", "bob/phone", users]) == 1


WORDS = [
    ["user", "add", "ada"],
    ["user", "list"],
    ["user", "revoke", "ada"],
    ["user", "password", "ada"],
    ["user", "friend", "ada", "bob"],
    ["user", "limit", "ada", "--devices", "1"],
    ["user", "key", "ada"],
    ["user", "allow", "ada", "publish", "a/#"],
    ["device", "token", "ada/phone"],
    ["device", "invite", "ada/phone"],
    ["device", "card", "ada/phone", "--name", "A"],
    ["device", "revoke", "ada/phone"],
]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: " ".join(words[:2]))
def test_in_a_folder_without_a_platform_nothing_is_made(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("WAYLOG_DATA", raising=False)
    monkeypatch.setattr("gateway.users.database_place.running_users_files", list)
    for more in ([], ["--data", "typo"], ["--users", "typo.db"]):
        assert main([*words, *more]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "no platform has its data in" in printed.err
        assert "--data" in printed.err
    assert list(elsewhere.iterdir()) == []


def test_an_invitation_that_no_phone_can_follow_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(tmp_path)]
    of(capsys, "user", "add", "ada", *data)
    assert main(["device", "invite", "ada/phone", *data]) == 0
    assert "which no phone reaches: give --url" in capsys.readouterr().err
    assert main(["device", "invite", "ada/phone", "--url", "http://192.0.2.1:8080", *data]) == 0
    assert capsys.readouterr().err == ""


def test_a_new_database_is_made_when_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "first" / "users.db"
    assert main(["user", "add", "ada", "--users", str(path), "--create"]) == 0
    assert capsys.readouterr().out.startswith("wl_")
    assert path.exists()


def test_the_table_of_users_has_a_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(tmp_path)]
    of(capsys, "user", "add", "ada", "--admin", *data)
    of(capsys, "device", "token", "ada/phone", *data)
    assert main(["user", "list", *data]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["user", "added", "(UTC)", "may", "device", "tokens"]
    assert row.split()[0] == "ada"
    assert row.rstrip().endswith("phone")
    assert "send, administer" in row


def test_a_link_is_of_the_one_platform_that_runs_wherever_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    elsewhere.mkdir()
    UserStore(data / "users.db").close()
    (data / "http.url").write_text("http://127.0.0.1:8080\n")
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("WAYLOG_DATA", raising=False)
    # Looks for it among processes, as a gateway does not run in this test.
    command = [sys.executable, "-c", "input()", "gateway", "--users", str(data / "users.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as running:
        monkeypatch.setattr(
            "gateway.users.database_place.running_users_files",
            lambda: [each for each in running_users_files() if each.parent == data],
        )
        assert main(["link"]) == 0
        running.terminate()
    said = capsys.readouterr()
    assert said.out.startswith("http://127.0.0.1:8080/#sign-in=")
    assert f"users of the platform in {data}" in said.err
    assert list(elsewhere.iterdir()) == []
