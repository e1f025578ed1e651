"""Delays grow with every wrong password."""

from __future__ import annotations

from broker_core.security.failures import LoginFailures


def test_the_wait_doubles_after_a_few_failures_up_to_a_bound() -> None:
    failures = LoginFailures(100)
    waits = [failures.delay_ms("a", 1.0) for _ in range(12)]
    assert waits == [100, 100, 100, 200, 400, 800, 1600, 3200, 3200, 3200, 3200, 3200]
    assert failures.delay_ms("b", 1.0) == 100


def test_an_address_that_was_quiet_begins_anew() -> None:
    failures = LoginFailures(100)
    for _ in range(10):
        failures.delay_ms("a", 1.0)
    assert failures.delay_ms("a", 62.0) == 100


def test_no_number_of_addresses_fills_the_memory() -> None:
    failures = LoginFailures(100)
    for number in range(20_000):
        failures.delay_ms(f"a{number}", 1.0)
    assert failures.delay_ms("a0", 1.0) == 100
