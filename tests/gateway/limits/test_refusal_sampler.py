"""The refusals that are kept in topic `error`."""

from __future__ import annotations

from gateway.limits.refusal_sampler import RefusalSampler


def test_a_flood_of_one_address_hides_no_refusal_of_another() -> None:
    now = 0.0
    records = RefusalSampler(10.0, 2.0, lambda: now)
    kept = 0
    for _ in range(60):
        kept += sum(records.take("203.0.113.9") for _ in range(1_000))
        assert records.take("198.51.100.7")
        assert records.take("2001:db8::1")
        now += 1.0
    assert kept == 10 + 2 * 59


def test_all_addresses_together_have_a_bound() -> None:
    records = RefusalSampler(10.0, 2.0, lambda: 0.0)
    addresses = [f"203.0.{high}.{low}" for high in range(100) for low in range(200)]
    assert sum(map(records.take, addresses)) == 50
    assert len(records._addresses) == 10_000
