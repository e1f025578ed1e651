"""DeleteTopics, API key 20."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import DeleteTopicsRequest, DeleteTopicsResponse

DELETE_TOPICS: Api[DeleteTopicsRequest, DeleteTopicsResponse] = Api(
    key=20,
    name="DeleteTopics",
    versions=(1, 6),
    flexible_from=4,
    request="""
    topics [] 6+
        name string 6+ nullable 6+ default null
        topic_id uuid 6+
    topic_names []string 0-5
    timeout_ms int32 0+
""",
    response="""
    throttle_time_ms int32 1+
    responses [] 0+
        name string 0+ nullable 6+
        topic_id uuid 6+
        error_code int16 0+
        error_message string 5+ nullable 5+ default null
""",
)
