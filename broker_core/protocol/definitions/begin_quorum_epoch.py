"""BeginQuorumEpoch, API key 53, between controllers (KIP-595, KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        BeginQuorumEpochRequest,
        BeginQuorumEpochResponse,
    )

BEGIN_QUORUM_EPOCH: Api[BeginQuorumEpochRequest, BeginQuorumEpochResponse] = Api(
    key=53,
    name="BeginQuorumEpoch",
    versions=(1, 1),
    flexible_from=1,
    request="""
    cluster_id string 0+ nullable 0+ default null
    voter_id int32 1+ default -1
    topics [] 0+
        topic_name string 0+
        partitions [] 0+
            partition_index int32 0+
            voter_directory_id uuid 1+
            leader_id int32 0+
            leader_epoch int32 0+
    leader_endpoints [] 1+
        name string 1+
        host string 1+
        port uint16 1+
""",
    response="""
    error_code int16 0+
    topics [] 0+
        topic_name string 0+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
            leader_id int32 0+
            leader_epoch int32 0+
    node_endpoints [] 1+ tag 0
        node_id int32 1+
        host string 1+
        port uint16 1+
""",
)
