"""ElectLeaders, API key 43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import ElectLeadersRequest, ElectLeadersResponse

ELECT_LEADERS: Api[ElectLeadersRequest, ElectLeadersResponse] = Api(
    key=43,
    name="ElectLeaders",
    versions=(0, 2),
    flexible_from=2,
    request="""
    election_type int8 1+
    topic_partitions [] 0+ nullable 0+
        topic string 0+
        partitions []int32 0+
    timeout_ms int32 0+ default 60000
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 1+
    replica_election_results [] 0+
        topic string 0+
        partition_result [] 0+
            partition_id int32 0+
            error_code int16 0+
            error_message string 0+ nullable 0+
""",
)
