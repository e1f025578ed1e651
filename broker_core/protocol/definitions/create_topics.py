"""CreateTopics, API key 19."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import CreateTopicsRequest, CreateTopicsResponse

CREATE_TOPICS: Api[CreateTopicsRequest, CreateTopicsResponse] = Api(
    key=19,
    name="CreateTopics",
    versions=(2, 7),
    flexible_from=5,
    request="""
    topics [] 0+
        name string 0+
        num_partitions int32 0+
        replication_factor int16 0+
        assignments [] 0+
            partition_index int32 0+
            broker_ids []int32 0+
        configs [] 0+
            name string 0+
            value string 0+ nullable 0+
    timeout_ms int32 0+ default 60000
    validate_only bool 1+
""",
    response="""
    throttle_time_ms int32 2+
    topics [] 0+
        name string 0+
        topic_id uuid 7+
        error_code int16 0+
        error_message string 1+ nullable 0+
        topic_config_error_code int16 5+ tag 0
        num_partitions int32 5+ default -1
        replication_factor int16 5+ default -1
        configs [] 5+ nullable 5+
            name string 5+
            value string 5+ nullable 5+
            read_only bool 5+
            config_source int8 5+ default -1
            is_sensitive bool 5+
""",
)
