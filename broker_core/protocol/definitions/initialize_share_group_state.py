"""InitializeShareGroupState, API key 83, from brokers to the share coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )

INITIALIZE_SHARE_GROUP_STATE: Api[
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse
] = Api(
    key=83,
    name="InitializeShareGroupState",
    versions=(0, 0),
    flexible_from=0,
    request="""
    group_id string 0+
    topics [] 0+
        topic_id uuid 0+
        partitions [] 0+
            partition int32 0+
            state_epoch int32 0+
            start_offset int64 0+
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
