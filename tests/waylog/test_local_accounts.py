"""Accounts of the machine, as settings name them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys

import pytest

from waylog.config import ConfigError
from waylog.local_accounts import parse_local_accounts

ALWAYS = frozenset({0, os.geteuid()})


def test_root_and_the_account_itself_are_always_among_them() -> None:
    assert parse_local_accounts("self") == ALWAYS
    assert parse_local_accounts(" self, 4711 ,,") == ALWAYS | {4711}
    last = pwd.getpwall()[-1]
    assert parse_local_accounts(last.pw_name) == ALWAYS | {last.pw_uid}


@pytest.mark.parametrize("text", ["", " ", ",", "all"])
def test_everybody_is_everybody(text: str) -> None:
    assert parse_local_accounts(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no-such-account", "this machine has no account no-such-account"),
        ("self,all", "`all` is every account, and stands alone"),
        ("4294967295", "4294967295 is not a uid"),
        ("-1", "no account -1"),
        ("²", "no account ²"),
    ],
)
def test_what_names_no_account_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_local_accounts(text)


def test_accounts_that_look_alike_in_a_user_namespace_are_refused() -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare (util-linux)")
    words = [unshare, "--user", "--map-root-user"]
    if subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    program = (
        "from waylog.local_accounts import *\n"
        "print(sorted(parse_local_accounts('self')))\n"
        "for text in '4711', '65534':\n"
        "    try: print(parse_local_accounts(text))\n"
        "    except ValueError as error: print(error)\n"
    )
    done = subprocess.run(
        [*words, sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    first, *others = done.stdout.splitlines()
    assert first == "[0]"
    assert len(others) == 2
    assert all("cannot be told from others in this user namespace" in each for each in others)
