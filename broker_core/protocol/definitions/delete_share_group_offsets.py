"""DeleteShareGroupOffsets, API key 92."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
    )

DELETE_SHARE_GROUP_OFFSETS: Api[DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse] = (
    Api(
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
)
