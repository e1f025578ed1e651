"""AddPartitionsToTxn, API key 24."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )

ADD_PARTITIONS_TO_TXN: Api[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse] = Api(
    key=24,
    name="AddPartitionsToTxn",
    versions=(0, 5),
    flexible_from=3,
    request="""
    transactions [] 4+
        transactional_id string 4+
        producer_id int64 4+
        producer_epoch int16 4+
        verify_only bool 4+
        topics [] 4+
            name string 0+
            partitions []int32 0+
    v3_and_below_transactional_id string 0-3
    v3_and_below_producer_id int64 0-3
    v3_and_below_producer_epoch int16 0-3
    v3_and_below_topics [] 0-3
        name string 0+
        partitions []int32 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 4+
    results_by_transaction [] 4+
        transactional_id string 4+
        topic_results [] 4+
            name string 0+
            results_by_partition [] 0+
                partition_index int32 0+
                partition_error_code int16 0+
    results_by_topic_v3_and_below [] 0-3
        name string 0+
        results_by_partition [] 0+
            partition_index int32 0+
            partition_error_code int16 0+
""",
)
