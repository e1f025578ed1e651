"""Produce, API key 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import ProduceRequest, ProduceResponse

PRODUCE: Api[ProduceRequest, ProduceResponse] = Api(
    key=0,
    name="Produce",
    versions=(3, 13),
    flexible_from=9,
    request="""
    transactional_id string 3+ nullable 3+ default null
    acks int16 0+
    timeout_ms int32 0+
    topic_data [] 0+
        name string 0-12
        topic_id uuid 13+
        partition_data [] 0+
            index int32 0+
            records records 0+ nullable 0+
""",
    response="""
    responses [] 0+
        name string 0-12
        topic_id uuid 13+
        partition_responses [] 0+
            index int32 0+
            error_code int16 0+
            base_offset int64 0+
            log_append_time_ms int64 2+ default -1
            log_start_offset int64 5+ default -1
            record_errors [] 8+
                batch_index int32 8+
                batch_index_error_message string 8+ nullable 8+ default null
            error_message string 8+ nullable 8+ default null
            current_leader {} 10+ tag 0
                leader_id int32 10+ default -1
                leader_epoch int32 10+ default -1
    throttle_time_ms int32 1+
    node_endpoints [] 10+ tag 0
        node_id int32 10+
        host string 10+
        port int32 10+
        rack string 10+ nullable 10+ default null
""",
)
