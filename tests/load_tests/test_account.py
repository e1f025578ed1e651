from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load_tests.account import FIX_ID, Account, PhoneAccount, fix_id, read_accounts


def test_accounts_of_several_processes_add_up(tmp_path: Path) -> None:
    for index in range(2):
        phone = PhoneAccount(index)
        for _ in range(10):
            phone.send()
        phone.acknowledge(index)
        Account("run123", "anna", [phone.close()]).write(tmp_path / f"{index}")
    account = read_accounts(sorted(tmp_path.iterdir()))
    assert (account.run, account.user) == ("run123", "anna")
    assert [(each.device, each.sent) for each in account.devices] == [(0, 10), (1, 10)]
    assert [each.newest_acknowledged for each in account.devices] == [0, 1]


def test_accounts_of_different_runs_do_not_mix(tmp_path: Path) -> None:
    Account("run123", "anna", []).write(tmp_path / "a")
    Account("run124", "anna", []).write(tmp_path / "b")
    with pytest.raises(ValueError, match="different runs"):
        read_accounts(tmp_path.iterdir())
    with pytest.raises(ValueError, match="no account"):
        read_accounts([])


@given(st.sets(st.integers(0, 99)), st.integers(0, 99_999_999))
def test_each_acknowledged_fix_is_a_bit(acknowledged: set[int], device: int) -> None:
    phone = PhoneAccount(device)
    for sequence in range(100):
        assert phone.send() == sequence
        if sequence in acknowledged:
            phone.acknowledge(sequence)
    account = phone.close()
    assert {n for n in range(100) if account.is_acknowledged(n)} == acknowledged
    assert account.newest_acknowledged == max(acknowledged, default=None)


def test_an_id_tells_run_device_and_place() -> None:
    match = FIX_ID.fullmatch(fix_id("run123", 42, 7))
    assert match is not None
    assert match.groups() == ("run123", "00000042", "00000007")
