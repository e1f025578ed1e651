"""CreatePartitions, API key 37."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
    )

CREATE_PARTITIONS: Api[CreatePartitionsRequest, CreatePartitionsResponse] = Api(
    key=37,
    name="CreatePartitions",
    versions=(0, 3),
    flexible_from=2,
    request="""
    topics [] 0+
        name string 0+
        count int32 0+
        assignments [] 0+ nullable 0+
            broker_ids []int32 0+
    timeout_ms int32 0+
    validate_only bool 0+
""",
    response="""
    throttle_time_ms int32 0+
    results [] 0+
        name string 0+
        error_code int16 0+
        error_message string 0+ nullable 0+ default null
""",
)
