"""WriteTxnMarkers, API key 27."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

WRITE_TXN_MARKERS: Api[WriteTxnMarkersRequest, WriteTxnMarkersResponse] = Api(
    key=27,
    name="WriteTxnMarkers",
    versions=(1, 2),
    flexible_from=1,
    request="""
    markers [] 0+
        producer_id int64 0+
        producer_epoch int16 0+
        transaction_result bool 0+
        topics [] 0+
            name string 0+
            partition_indexes []int32 0+
        coordinator_epoch int32 0+
        transaction_version int8 2+
""",
    response="""
    markers [] 0+
        producer_id int64 0+
        topics [] 0+
            name string 0+
            partitions [] 0+
                partition_index int32 0+
                error_code int16 0+
""",
)
