"""ShareAcknowledge, API key 79."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ShareAcknowledgeRequest,
        ShareAcknowledgeResponse,
    )

SHARE_ACKNOWLEDGE: Api[ShareAcknowledgeRequest, ShareAcknowledgeResponse] = Api(
    key=79,
    name="ShareAcknowledge",
    versions=(1, 2),
    flexible_from=0,
    request="""
    group_id string 0+ nullable 0+ default null
    member_id string 0+ nullable 0+
    share_session_epoch int32 0+
    is_renew_ack bool 2+
    topics [] 0+
        topic_id uuid 0+
        partitions [] 0+
            partition_index int32 0+
            acknowledgement_batches [] 0+
                first_offset int64 0+
                last_offset int64 0+
                acknowledge_types []int8 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+ default null
    acquisition_lock_timeout_ms int32 2+
    responses [] 0+
        topic_id uuid 0+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
            error_message string 0+ nullable 0+ default null
            current_leader {} 0+
                leader_id int32 0+
                leader_epoch int32 0+
    node_endpoints [] 0+
        node_id int32 0+
        host string 0+
        port int32 0+
        rack string 0+ nullable 0+ default null
""",
)
