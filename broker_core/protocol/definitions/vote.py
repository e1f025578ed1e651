"""Vote, API key 52, between controllers (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import VoteRequest, VoteResponse

VOTE: Api[VoteRequest, VoteResponse] = Api(
    key=52,
    name="Vote",
    versions=(2, 2),
    flexible_from=0,
    request="""
    cluster_id string 0+ nullable 0+ default null
    voter_id int32 1+ default -1
    topics [] 0+
        topic_name string 0+
        partitions [] 0+
            partition_index int32 0+
            replica_epoch int32 0+
            replica_id int32 0+
            replica_directory_id uuid 1+
            voter_directory_id uuid 1+
            last_offset_epoch int32 0+
            last_offset int64 0+
            pre_vote bool 2+
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
            vote_granted bool 0+
    node_endpoints [] 1+ tag 0
        node_id int32 1+
        host string 1+
        port uint16 1+
""",
)
