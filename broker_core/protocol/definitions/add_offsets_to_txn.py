"""AddOffsetsToTxn, API key 25."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
    )

ADD_OFFSETS_TO_TXN: Api[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse] = Api(
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
