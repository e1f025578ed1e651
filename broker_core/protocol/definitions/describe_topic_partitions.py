"""DescribeTopicPartitions, API key 75."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )

DESCRIBE_TOPIC_PARTITIONS: Api[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse] = (
    Api(
        key=75,
        name="DescribeTopicPartitions",
        versions=(0, 0),
        flexible_from=0,
        request="""
    topics [] 0+
        name string 0+
    response_partition_limit int32 0+ default 2000
    cursor {} 0+ nullable 0+ default null
        topic_name string 0+
        partition_index int32 0+
""",
        response="""
    throttle_time_ms int32 0+
    topics [] 0+
        error_code int16 0+
        name string 0+ nullable 0+
        topic_id uuid 0+
        is_internal bool 0+
        partitions [] 0+
            error_code int16 0+
            partition_index int32 0+
            leader_id int32 0+
            leader_epoch int32 0+ default -1
            replica_nodes []int32 0+
            isr_nodes []int32 0+
            eligible_leader_replicas []int32 0+ nullable 0+ default null
            last_known_elr []int32 0+ nullable 0+ default null
            offline_replicas []int32 0+
        topic_authorized_operations int32 0+ default -2147483648
    next_cursor {} 0+ nullable 0+ default null
        topic_name string 0+
        partition_index int32 0+
""",
    )
)
