"""AlterPartitionReassignments, API key 45."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )

ALTER_PARTITION_REASSIGNMENTS: Api[
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
] = Api(
    key=45,
    name="AlterPartitionReassignments",
    versions=(0, 1),
    flexible_from=0,
    request="""
    timeout_ms int32 0+ default 60000
    allow_replication_factor_change bool 1+ default true
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            replicas []int32 0+ nullable 0+ default null
""",
    response="""
    throttle_time_ms int32 0+
    allow_replication_factor_change bool 1+ default true
    error_code int16 0+
    error_message string 0+ nullable 0+
    responses [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
            error_message string 0+ nullable 0+
""",
)
