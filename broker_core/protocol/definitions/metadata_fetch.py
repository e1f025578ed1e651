"""FetchMetadata and FetchMetadataSnapshot, by which nodes follow the metadata log.

These requests are not Kafka's, whose controllers use Fetch and FetchSnapshot with records that only
they understand. The log and its records are this broker's own, and so are the requests, which only
the controllers' listeners support. -1 means that a node or offset does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        FetchMetadataRequest,
        FetchMetadataResponse,
        FetchMetadataSnapshotRequest,
        FetchMetadataSnapshotResponse,
    )

FETCH_METADATA: Api[FetchMetadataRequest, FetchMetadataResponse] = Api(
    key=30001,
    name="FetchMetadata",
    versions=(0, 0),
    flexible_from=0,
    request="""
    cluster_id string 0+ nullable 0+ default null
    epoch int32 0+
    replica_id int32 0+
    replica_directory_id uuid 0+
    fetch_offset int64 0+
    last_fetched_epoch int32 0+
    high_watermark int64 0+
    max_wait_ms int32 0+
""",
    response="""
    error_code int16 0+
    epoch int32 0+
    leader_id int32 0+ default -1
    high_watermark int64 0+ default -1
    entries [] 0+
        epoch int32 0+
        kind int16 0+
        value bytes 0+
    diverging_epoch int32 0+ default -1
    diverging_end_offset int64 0+ default -1
    snapshot_epoch int32 0+ default -1
    snapshot_end_offset int64 0+ default -1
""",
)

FETCH_METADATA_SNAPSHOT: Api[FetchMetadataSnapshotRequest, FetchMetadataSnapshotResponse] = Api(
    key=30002,
    name="FetchMetadataSnapshot",
    versions=(0, 0),
    flexible_from=0,
    request="""
    cluster_id string 0+ nullable 0+ default null
    epoch int32 0+
    replica_id int32 0+
    replica_directory_id uuid 0+
    snapshot_epoch int32 0+
    snapshot_end_offset int64 0+
    position int64 0+
""",
    response="""
    error_code int16 0+
    epoch int32 0+
    leader_id int32 0+ default -1
    size int64 0+
    chunk bytes 0+ nullable 0+ default null
    voters [] 0+
        voter_id int32 0+
        voter_directory_id uuid 0+
""",
)
