"""TxnOffsetCommit, API key 28."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )

TXN_OFFSET_COMMIT: Api[TxnOffsetCommitRequest, TxnOffsetCommitResponse] = Api(
    key=28,
    name="TxnOffsetCommit",
    versions=(0, 5),
    flexible_from=3,
    request="""
    transactional_id string 0+
    group_id string 0+
    producer_id int64 0+
    producer_epoch int16 0+
    generation_id int32 3+ default -1
    member_id string 3+
    group_instance_id string 3+ nullable 3+ default null
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            committed_offset int64 0+
            committed_leader_epoch int32 2+ default -1
            committed_metadata string 0+ nullable 0+
""",
    response="""
    throttle_time_ms int32 0+
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
""",
)
