"""DeleteShareGroupOffsets, API key 92."""

from broker_core.protocol.schema import Api

DELETE_SHARE_GROUP_OFFSETS = Api(
    key=92,
    name="DeleteShareGroupOffsets",
    versions=(0, 0),
    flexible_from=0,
    request="""
    group_id string 0+
    topics [] 0+
        topic_name string 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+ default null
    responses [] 0+
        topic_name string 0+
        topic_id uuid 0+
        error_code int16 0+
        error_message string 0+ nullable 0+ default null
""",
)
