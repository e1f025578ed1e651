"""AlterPartition, API key 56, from leaders to the controller (KIP-497, KIP-903)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterPartitionRequest,
        AlterPartitionResponse,
    )

ALTER_PARTITION: Api[AlterPartitionRequest, AlterPartitionResponse] = Api(
    key=56,
    name="AlterPartition",
    versions=(2, 3),
    flexible_from=0,
    request="""
    broker_id int32 0+
    broker_epoch int64 0+ default -1
    topics [] 0+
        topic_id uuid 2+
        partitions [] 0+
            partition_index int32 0+
            leader_epoch int32 0+
            new_isr []int32 0-2
            new_isr_with_epochs [] 3+
                broker_id int32 3+
                broker_epoch int64 3+ default -1
            leader_recovery_state int8 1+
            partition_epoch int32 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    topics [] 0+
        topic_id uuid 2+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
            leader_id int32 0+
            leader_epoch int32 0+
            isr []int32 0+
            leader_recovery_state int8 1+
            partition_epoch int32 0+
""",
)
