"""Accounts of the machine, as settings name them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.strangers import needs_root
from waylog.config import ConfigError
from waylog.network.local_accounts import parse_local_accounts

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


@needs_root
def test_a_process_without_rights_is_reached_by_itself_and_by_root() -> None:
    os.seteuid(4711)
    try:
        itself, another = parse_local_accounts("self"), parse_local_accounts("4712")
    finally:
        os.seteuid(0)
    assert itself == frozenset({0, 4711})
    assert another == frozenset({0, 4711, 4712})


def test_where_all_accounts_are_mapped_each_is_distinct() -> None:
    if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
        pytest.skip("this is a user namespace")
    overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
    assert parse_local_accounts(f"{overflow},4294967294") == ALWAYS | {overflow, 4294967294}


@pytest.mark.parametrize(
    ("uid_map", "distinct", "alike"),
    [
        (f"0 {os.geteuid()} 1", "0", "1 4711 65534"),
        # The mapping contains the overflow uid, which stands for all unmapped accounts.
        pytest.param("0 0 65536", "0 4711 65535", "65534 65536", marks=needs_root),
        pytest.param(
            "0 0 1\n1 100000 999", "0 1 999", "1000 65534 100000 100001", marks=needs_root
        ),
    ],
)
def test_accounts_that_look_alike_in_a_user_namespace_are_refused(
    uid_map: str, distinct: str, alike: str
) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare (util-linux)")
    program = (
        "import sys\n"
        "from waylog.network.local_accounts import *\n"
        "print('started', flush=True)\n"
        "for text in input().split():\n"
        "    try: print(sorted(parse_local_accounts(text)))\n"
        "    except ValueError as error: print(error)\n"
    )
    process = subprocess.Popen(
        [unshare, "--user", sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("no user namespaces here")
        try:
            Path(f"/proc/{process.pid}/uid_map").write_text(uid_map)
        except PermissionError:
            pytest.skip("no user namespaces here")
        output, _ = process.communicate(f"{distinct} {alike}\n", 20)
    finally:
        process.kill()
        process.communicate()
    expected = [f"{sorted({0, int(uid)})}" for uid in distinct.split()]
    lines = output.splitlines()
    assert lines[: len(expected)] == expected
    assert len(lines) == len(expected) + len(alike.split())
    for uid, line in zip(alike.split(), lines[len(expected) :], strict=True):
        assert f"account {uid} cannot be told from others in this user namespace" in line
