"""DeleteRecords, API key 21."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import DeleteRecordsRequest, DeleteRecordsResponse

DELETE_RECORDS: Api[DeleteRecordsRequest, DeleteRecordsResponse] = Api(
    key=21,
    name="DeleteRecords",
    versions=(0, 2),
    flexible_from=2,
    request="""
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            offset int64 0+
    timeout_ms int32 0+
""",
    response="""
    throttle_time_ms int32 0+
    topics [] 0+
        name string 0+
        partitions [] 0+
            partition_index int32 0+
            low_watermark int64 0+
            error_code int16 0+
""",
)
