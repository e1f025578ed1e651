"""Fetch, API key 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import FetchRequest, FetchResponse

FETCH: Api[FetchRequest, FetchResponse] = Api(
    key=1,
    name="Fetch",
    versions=(4, 18),
    flexible_from=12,
    request="""
    cluster_id string 12+ nullable 12+ tag 0 default null
    replica_id int32 0-14 default -1
    replica_state {} 15+ tag 1
        replica_id int32 15+ default -1
        replica_epoch int64 15+ default -1
    max_wait_ms int32 0+
    min_bytes int32 0+
    max_bytes int32 3+ default 0x7fffffff
    isolation_level int8 4+
    session_id int32 7+
    session_epoch int32 7+ default -1
    topics [] 0+
        topic string 0-12
        topic_id uuid 13+
        partitions [] 0+
            partition int32 0+
            current_leader_epoch int32 9+ default -1
            fetch_offset int64 0+
            last_fetched_epoch int32 12+ default -1
            log_start_offset int64 5+ default -1
            partition_max_bytes int32 0+
            replica_directory_id uuid 17+ tag 0
            high_watermark int64 18+ tag 1 default 9223372036854775807
    forgotten_topics_data [] 7+
        topic string 7-12
        topic_id uuid 13+
        partitions []int32 7+
    rack_id string 11+
""",
    response="""
    throttle_time_ms int32 1+
    error_code int16 7+
    session_id int32 7+
    responses [] 0+
        topic string 0-12
        topic_id uuid 13+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
            high_watermark int64 0+
            last_stable_offset int64 4+ default -1
            log_start_offset int64 5+ default -1
            diverging_epoch {} 12+ tag 0
                epoch int32 12+ default -1
                end_offset int64 12+ default -1
            current_leader {} 12+ tag 1
                leader_id int32 12+ default -1
                leader_epoch int32 12+ default -1
            snapshot_id {} 12+ tag 2
                end_offset int64 0+ default -1
                epoch int32 0+ default -1
            aborted_transactions [] 4+ nullable 4+
                producer_id int64 4+
                first_offset int64 4+
            preferred_read_replica int32 11+ default -1
            records records 0+ nullable 0+
    node_endpoints [] 16+ tag 0
        node_id int32 16+
        host string 16+
        port int32 16+
        rack string 16+ nullable 16+ default null
""",
)
