"""AddOffsetsToTxn, API key 25."""

from broker_core.protocol.schema import Api

ADD_OFFSETS_TO_TXN = Api(
    key=25,
    name="AddOffsetsToTxn",
    versions=(0, 4),
    flexible_from=3,
    request="""
    transactional_id string 0+
    producer_id int64 0+
    producer_epoch int16 0+
    group_id string 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
""",
)
