"""Quotas: which one applies, and throttle times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import InvalidRequest
from broker_core.security.quotas import ClientQuotas

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterClientQuotasRequestEntity,
        AlterClientQuotasRequestOp,
        DescribeClientQuotasRequestComponent,
    )

PRODUCE = "producer_byte_rate"


def entity(**names: str | None) -> list[AlterClientQuotasRequestEntity]:
    return [
        {"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()
    ]


def op(
    value: float, key: str = PRODUCE, *, remove: bool = False
) -> list[AlterClientQuotasRequestOp]:
    return [{"key": key, "value": value, "remove": remove}]


def put(quotas: ClientQuotas, value: float, key: str = PRODUCE, **names: str | None) -> None:
    put_for(quotas, value, names, key)


def put_for(
    quotas: ClientQuotas, value: float, names: dict[str, str | None], key: str = PRODUCE
) -> None:
    quotas.alter(quotas.check(entity(**names), op(value, key)), op(value, key))


def wait(quotas: ClientQuotas, amount: float, user: str = "anna", client: str = "app") -> int:
    return quotas.charge(PRODUCE, user, client, amount, 100.0)


@pytest.mark.parametrize(
    "names",
    [
        {"user": "anna", "client_id": "app"}, {"user": "anna", "client_id": None},
        {"user": "anna"}, {"user": None, "client_id": "app"}, {"user": None, "client_id": None},
        {"user": None}, {"client_id": "app"}, {"client_id": None},
    ],
    ids=str,
)  # fmt: skip
def test_each_kind_of_entity_has_its_quota(names: dict[str, str | None]) -> None:
    quotas = ClientQuotas()
    assert not quotas.active
    put_for(quotas, 1000, names)
    assert quotas.active
    assert wait(quotas, 9_000) == 0
    assert wait(quotas, 11_000) > 0
    if None not in names.values():
        assert wait(quotas, 10**9, user="bert", client="other") == 0


def test_the_most_precise_quota_holds() -> None:
    quotas = ClientQuotas()
    put(quotas, 1, client_id=None)
    put(quotas, 1, user=None)
    put(quotas, 10**9, user="anna", client_id="app")
    assert wait(quotas, 100_000) == 0
    assert wait(quotas, 100_000, client="other") > 0


def test_clients_of_a_user_share_the_quota_of_the_user() -> None:
    quotas = ClientQuotas()
    put(quotas, 1000, user="anna")
    assert wait(quotas, 9_000, client="one") == 0
    assert wait(quotas, 9_000, client="two") > 0


def test_users_do_not_share_the_default() -> None:
    quotas = ClientQuotas()
    put(quotas, 1000, user=None)
    assert wait(quotas, 9_000, user="anna") == 0
    assert wait(quotas, 9_000, user="bert") == 0


@given(st.integers(1_000, 1_000_000), st.lists(st.integers(1, 200_000), min_size=50, max_size=80))
def test_who_waits_as_told_stays_within_the_quota(limit: int, amounts: list[int]) -> None:
    quotas = ClientQuotas()
    put(quotas, limit, user="anna")
    now = began = 1000.0
    total = 0
    for amount in amounts:
        total += amount
        now += quotas.charge(PRODUCE, "anna", "app", amount, now) / 1000
    # A whole burst is forgotten when its window ends, so the bound is a loose one.
    assert total <= 2 * limit * (now - began + 11) + max(amounts)


def test_a_quota_that_is_removed_holds_nobody_up() -> None:
    quotas = ClientQuotas()
    put(quotas, 1, user="anna")
    quotas.alter((("user", "anna"),), op(0, remove=True))
    assert not quotas.active
    assert wait(quotas, 10**9) == 0


def test_quotas_survive_being_stored() -> None:
    quotas, again = ClientQuotas(), ClientQuotas()
    put(quotas, 5, user="anna", client_id=None)
    put(quotas, 7, key="connection_creation_rate", ip="10.0.0.1")
    again.load(quotas.to_stored())
    assert again.active
    assert again.limits_ips
    assert again.connection_rate("10.0.0.1") == 7
    assert again.connection_rate("10.0.0.2") is None
    assert again.to_stored() == quotas.to_stored()


@pytest.mark.parametrize(
    ("names", "key", "value"),
    [
        ({}, PRODUCE, 1), ({"user": ""}, PRODUCE, 1), ({"group": "x"}, PRODUCE, 1),
        ({"user": "a", "ip": "1.1.1.1"}, PRODUCE, 1), ({"user": "a"}, "speed", 1),
        ({"user": "a"}, PRODUCE, 0), ({"user": "a"}, PRODUCE, -1), ({"user": "a"}, PRODUCE, 1.5),
        ({"user": "a"}, "connection_creation_rate", 1), ({"ip": "1.1.1.1"}, PRODUCE, 1),
        ({"ip": "nowhere"}, "connection_creation_rate", 1),
        ({"user": "a"}, PRODUCE, float("nan")), ({"user": "a"}, "request_percentage", float("inf")),
    ],
    ids=str,
)  # fmt: skip
def test_a_quota_that_cannot_be_is_refused(
    names: dict[str, str | None], key: str, value: float
) -> None:
    with pytest.raises(InvalidRequest):
        ClientQuotas().check(entity(**names), op(value, key))


def test_quotas_are_found_by_filters() -> None:
    quotas = ClientQuotas()
    put(quotas, 1, user="anna")
    put(quotas, 2, user="anna", client_id="app")
    put(quotas, 3, user=None)

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[float]:
        asked: list[DescribeClientQuotasRequestComponent] = [
            {"entity_type": kind, "match_type": match_type, "match": match}
            for kind, match_type, match in components
        ]
        return sorted(values[PRODUCE] for _, values in quotas.describe(asked, strict))

    assert found() == [1, 2, 3]
    assert found(("user", 0, "anna")) == [1, 2]
    assert found(("user", 0, "anna"), strict=True) == [1]
    assert found(("user", 1, None)) == [3]
    assert found(("user", 2, None)) == [1, 2, 3]
    assert found(("user", 2, None), ("client-id", 2, None)) == [2]
    with pytest.raises(InvalidRequest):
        found(("planet", 0, "x"))
