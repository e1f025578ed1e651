"""ListTransactions: which transactions a pattern stands for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker_core import errors
from broker_core.protocol.definitions import FIND_COORDINATOR, INIT_PRODUCER_ID, LIST_TRANSACTIONS
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient

Connect = Callable[[Broker], Awaitable[RawClient]]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("(a+)+", []), ("(a+)+b", ["a" * 60 + "b"]), ("", ["a" * 60 + "b", "c"]), ("(", None)],
)
async def test_a_pattern_selects_transactions_whatever_it_looks_like(
    broker: Broker, connect: Connect, pattern: str, found: list[str] | None
) -> None:
    client = await connect(broker)
    for name in ("a" * 60 + "b", "c"):
        await client.call(FIND_COORDINATOR, 3, {"key": name, "key_type": 1})
        body = {"transactional_id": name, "transaction_timeout_ms": 1_000}
        async with asyncio.timeout(60):
            while (await client.call(INIT_PRODUCER_ID, 1, body))["error_code"] != errors.NONE:
                await asyncio.sleep(0.05)
    asked = {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": pattern,
    }
    async with asyncio.timeout(60):
        answer = await client.call(LIST_TRANSACTIONS, 2, asked)
    if found is None:
        assert answer["error_code"] == errors.InvalidRegularExpression.code
    else:
        assert sorted(each["transactional_id"] for each in answer["transaction_states"]) == found
