"""AllocateProducerIds, API key 67, from brokers to the controller (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )

ALLOCATE_PRODUCER_IDS: Api[AllocateProducerIdsRequest, AllocateProducerIdsResponse] = Api(
    key=67,
    name="AllocateProducerIds",
    versions=(0, 0),
    flexible_from=0,
    request="""
    broker_id int32 0+
    broker_epoch int64 0+ default -1
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    producer_id_start int64 0+
    producer_id_len int32 0+
""",
)
