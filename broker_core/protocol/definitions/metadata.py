"""Metadata, API key 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import MetadataRequest, MetadataResponse

METADATA: Api[MetadataRequest, MetadataResponse] = Api(
    key=3,
    name="Metadata",
    versions=(0, 13),
    flexible_from=9,
    request="""
    topics [] 0+ nullable 1+
        topic_id uuid 10+
        name string 0+ nullable 10+
    allow_auto_topic_creation bool 4+ default true
    include_cluster_authorized_operations bool 8-10
    include_topic_authorized_operations bool 8+
""",
    response="""
    throttle_time_ms int32 3+
    brokers [] 0+
        node_id int32 0+
        host string 0+
        port int32 0+
        rack string 1+ nullable 1+ default null
    cluster_id string 2+ nullable 2+ default null
    controller_id int32 1+ default -1
    topics [] 0+
        error_code int16 0+
        name string 0+ nullable 12+
        topic_id uuid 10+
        is_internal bool 1+
        partitions [] 0+
            error_code int16 0+
            partition_index int32 0+
            leader_id int32 0+
            leader_epoch int32 7+ default -1
            replica_nodes []int32 0+
            isr_nodes []int32 0+
            offline_replicas []int32 5+
        topic_authorized_operations int32 8+ default -2147483648
    cluster_authorized_operations int32 8-10 default -2147483648
    error_code int16 13+
""",
)
