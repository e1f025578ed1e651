"""DeleteShareGroupState, API key 86, from brokers to the share coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )

DELETE_SHARE_GROUP_STATE: Api[DeleteShareGroupStateRequest, DeleteShareGroupStateResponse] = Api(
    key=86,
    name="DeleteShareGroupState",
    versions=(0, 0),
    flexible_from=0,
    request="""
    group_id string 0+
    topics [] 0+
        topic_id uuid 0+
        partitions [] 0+
            partition int32 0+
""",
    response="""
    results [] 0+
        topic_id uuid 0+
        partitions [] 0+
            partition int32 0+
            error_code int16 0+
            error_message string 0+ nullable 0+ default null
""",
)
