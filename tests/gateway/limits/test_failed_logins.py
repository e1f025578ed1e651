"""Limits on wrong credentials, by address and by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.limits.bounds import HttpLimits
from gateway.limits.failed_logins import FailedLogins, TooManyFailedLogins
from gateway.limits.token_buckets import TokenBuckets
from tests.manual_clock import ManualClock

STRANGER, NEIGHBOUR, LOOPBACK = "203.0.113.9", "198.51.100.7", "127.0.0.1"
LIMITS = HttpLimits(
    failures_per_minute_per_address=6, guesses_at_once_per_name=3, guesses_per_minute_per_name=2
)


def made(clock: ManualClock, path: Path | None = None) -> FailedLogins:
    return FailedLogins(LIMITS, TokenBuckets(path, clock, b"secret"))


def test_what_is_wrong_is_counted_by_address_and_forgiven_with_time() -> None:
    clock = ManualClock()
    failed_logins = made(clock)
    for _ in range(6):
        failed_logins.require_room(STRANGER)
        failed_logins.wrong(STRANGER)
    with pytest.raises(TooManyFailedLogins):
        failed_logins.require_room(STRANGER)
    failed_logins.require_room(NEIGHBOUR)
    clock.now += 60
    failed_logins.wrong(STRANGER)
    for _ in range(100):
        failed_logins.wrong(LOOPBACK)


@pytest.mark.parametrize("address", [LOOPBACK, STRANGER])
def test_a_name_has_its_own_count_which_the_right_password_clears(address: str) -> None:
    clock = ManualClock()
    failed_logins = made(clock)
    for _ in range(3):
        failed_logins.begin(address, "ada")
    with pytest.raises(TooManyFailedLogins) as refused:
        failed_logins.begin(address, "ada")
    assert refused.value.retry_after == "30"
    failed_logins.begin(address, "bob")
    clock.now += 30
    failed_logins.begin(address, "ada")
    failed_logins.right(address, "ada")
    for _ in range(3):
        failed_logins.begin(address, "ada")


def test_who_is_refused_does_not_wait_longer_for_asking() -> None:
    clock = ManualClock()
    failed_logins = made(clock)
    for _ in range(3):
        failed_logins.begin(LOOPBACK, "ada")
    for _ in range(1_000):
        with pytest.raises(TooManyFailedLogins):
            failed_logins.begin(LOOPBACK, "ada")
    clock.now += 30
    failed_logins.begin(LOOPBACK, "ada")


def test_a_name_that_is_refused_costs_its_address_nothing() -> None:
    failed_logins = made(ManualClock())
    for _ in range(3):
        failed_logins.begin(STRANGER, "ada")
    for _ in range(10):
        with pytest.raises(TooManyFailedLogins):
            failed_logins.begin(STRANGER, "ada")
    failed_logins.begin(STRANGER, "bob")


def test_what_is_right_or_unknown_costs_nothing() -> None:
    failed_logins = made(ManualClock())
    for _ in range(20):
        failed_logins.begin(STRANGER, "ada")
        failed_logins.right(STRANGER, "ada")
        failed_logins.begin(STRANGER, "bob")
        failed_logins.unverified(STRANGER, "bob")
    failed_logins.require_room(STRANGER)


def test_nobody_keeps_another_address_from_a_name() -> None:
    failed_logins = made(ManualClock())
    for _ in range(3):
        failed_logins.begin(STRANGER, "ada")
    with pytest.raises(TooManyFailedLogins):
        failed_logins.begin(STRANGER, "ada")
    failed_logins.begin(NEIGHBOUR, "ada")


def test_all_addresses_of_a_network_of_ipv6_count_as_one() -> None:
    failed_logins = made(ManualClock())
    for number in range(6):
        failed_logins.wrong(f"2001:db8:1:2::{number}")
    with pytest.raises(TooManyFailedLogins):
        failed_logins.require_room("2001:db8:1:2::99")
    for number in range(3):
        failed_logins.begin(f"2001:db8:1:3::{number}", "ada")
    with pytest.raises(TooManyFailedLogins):
        failed_logins.begin("2001:db8:1:3::99", "ada")
    failed_logins.require_room("2001:db8:1:4::1")


def test_workers_count_together(tmp_path: Path) -> None:
    clock = ManualClock()
    one, other = made(clock, tmp_path / "guesses"), made(clock, tmp_path / "guesses")
    for failed_logins in (one, other, one):
        failed_logins.begin(LOOPBACK, "ada")
    with pytest.raises(TooManyFailedLogins):
        other.begin(LOOPBACK, "ada")
    one.close()
    other.close()
