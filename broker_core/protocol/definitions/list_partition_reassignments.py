"""ListPartitionReassignments, API key 46."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )

LIST_PARTITION_REASSIGNMENTS: Api[
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
] = Api(
    key=46,
    name="ListPartitionReassignments",
    versions=(0, 0),
    flexible_from=0,
    request="""
    timeout_ms int32 0+ default 60000
    topics [] 0+ nullable 0+ default null
        name string 0+
        partition_indexes []int32 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            replicas []int32 0+
            adding_replicas []int32 0+
            removing_replicas []int32 0+
""",
)
