"""DescribeTransactions, API key 65."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )

DESCRIBE_TRANSACTIONS: Api[DescribeTransactionsRequest, DescribeTransactionsResponse] = Api(
    key=65,
    name="DescribeTransactions",
    versions=(0, 0),
    flexible_from=0,
    request="""
    transactional_ids []string 0+
""",
    response="""
    throttle_time_ms int32 0+
    transaction_states [] 0+
        error_code int16 0+
        transactional_id string 0+
        transaction_state string 0+
        transaction_timeout_ms int32 0+
        transaction_start_time_ms int64 0+
        producer_id int64 0+
        producer_epoch int16 0+
        topics [] 0+
            topic string 0+
            partitions []int32 0+
""",
)
