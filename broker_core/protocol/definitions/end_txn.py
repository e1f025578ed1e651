"""EndTxn, API key 26."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import EndTxnRequest, EndTxnResponse

END_TXN: Api[EndTxnRequest, EndTxnResponse] = Api(
    key=26,
    name="EndTxn",
    versions=(0, 5),
    flexible_from=3,
    request="""
    transactional_id string 0+
    producer_id int64 0+
    producer_epoch int16 0+
    committed bool 0+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    producer_id int64 5+ default -1
    producer_epoch int16 5+ default -1
""",
)
