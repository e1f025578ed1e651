"""InitProducerId, API key 22."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        InitProducerIdRequest,
        InitProducerIdResponse,
    )

INIT_PRODUCER_ID: Api[InitProducerIdRequest, InitProducerIdResponse] = Api(
    key=22,
    name="InitProducerId",
    versions=(0, 5),
    flexible_from=2,
    request="""
    transactional_id string 0+ nullable 0+
    transaction_timeout_ms int32 0+
    producer_id int64 3+ default -1
    producer_epoch int16 3+ default -1
    enable2_pc bool 6+
    keep_prepared_txn bool 6+
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    producer_id int64 0+ default -1
    producer_epoch int16 0+
    ongoing_txn_producer_id int64 6+ default -1
    ongoing_txn_producer_epoch int16 6+ default -1
""",
)
