"""ListTransactions, API key 66."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ListTransactionsRequest,
        ListTransactionsResponse,
    )

LIST_TRANSACTIONS: Api[ListTransactionsRequest, ListTransactionsResponse] = Api(
    key=66,
    name="ListTransactions",
    versions=(0, 2),
    flexible_from=0,
    request="""
    state_filters []string 0+
    producer_id_filters []int64 0+
    duration_filter int64 1+ default -1
    transactional_id_pattern string 2+ nullable 2+ default null
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    unknown_state_filters []string 0+
    transaction_states [] 0+
        transactional_id string 0+
        producer_id int64 0+
        transaction_state string 0+
""",
)
