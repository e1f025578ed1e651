"""DeleteGroups, API key 42."""

from broker_core.protocol.schema import Api

DELETE_GROUPS = Api(
    key=42,
    name="DeleteGroups",
    versions=(0, 2),
    flexible_from=2,
    request="""
    groups_names []string 0+
""",
    response="""
    throttle_time_ms int32 0+
    results [] 0+
        group_id string 0+
        error_code int16 0+
""",
)
