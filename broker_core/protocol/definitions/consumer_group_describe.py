"""ConsumerGroupDescribe, API key 69."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

CONSUMER_GROUP_DESCRIBE: Api[ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse] = Api(
    key=69,
    name="ConsumerGroupDescribe",
    versions=(0, 1),
    flexible_from=0,
    request="""
    group_ids []string 0+
    include_authorized_operations bool 0+
""",
    response="""
    throttle_time_ms int32 0+
    groups [] 0+
        error_code int16 0+
        error_message string 0+ nullable 0+ default null
        group_id string 0+
        group_state string 0+
        group_epoch int32 0+
        assignment_epoch int32 0+
        assignor_name string 0+
        members [] 0+
            member_id string 0+
            instance_id string 0+ nullable 0+ default null
            rack_id string 0+ nullable 0+ default null
            member_epoch int32 0+
            client_id string 0+
            client_host string 0+
            subscribed_topic_names []string 0+
            subscribed_topic_regex string 0+ nullable 0+ default null
            assignment {} 0+
                topic_partitions [] 0+
                    topic_id uuid 0+
                    topic_name string 0+
                    partitions []int32 0+
            target_assignment {} 0+
                topic_partitions [] 0+
                    topic_id uuid 0+
                    topic_name string 0+
                    partitions []int32 0+
            member_type int8 1+ default -1
        authorized_operations int32 0+ default -2147483648
""",
)
