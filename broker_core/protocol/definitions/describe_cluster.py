"""DescribeCluster, API key 60."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeClusterRequest,
        DescribeClusterResponse,
    )

DESCRIBE_CLUSTER: Api[DescribeClusterRequest, DescribeClusterResponse] = Api(
    key=60,
    name="DescribeCluster",
    versions=(0, 2),
    flexible_from=0,
    request="""
    include_cluster_authorized_operations bool 0+
    endpoint_type int8 1+ default 1
    include_fenced_brokers bool 2+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+ default null
    endpoint_type int8 1+ default 1
    cluster_id string 0+
    controller_id int32 0+ default -1
    brokers [] 0+
        broker_id int32 0+
        host string 0+
        port int32 0+
        rack string 0+ nullable 0+ default null
        is_fenced bool 2+
    cluster_authorized_operations int32 0+ default -2147483648
""",
)
