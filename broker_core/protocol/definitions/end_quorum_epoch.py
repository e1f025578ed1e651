"""EndQuorumEpoch, API key 54, between controllers (KIP-595, KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        EndQuorumEpochRequest,
        EndQuorumEpochResponse,
    )

END_QUORUM_EPOCH: Api[EndQuorumEpochRequest, EndQuorumEpochResponse] = Api(
    key=54,
    name="EndQuorumEpoch",
    versions=(1, 1),
    flexible_from=1,
    request="""
    cluster_id string 0+ nullable 0+ default null
    topics [] 0+
        topic_name string 0+
        partitions [] 0+
            partition_index int32 0+
            leader_id int32 0+
            leader_epoch int32 0+
            preferred_candidates [] 1+
                candidate_id int32 1+
                candidate_directory_id uuid 1+
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
