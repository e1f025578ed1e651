"""AlterReplicaLogDirs, API key 34."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
    )

ALTER_REPLICA_LOG_DIRS: Api[AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse] = Api(
    key=34,
    name="AlterReplicaLogDirs",
    versions=(1, 2),
    flexible_from=2,
    request="""
    dirs [] 0+
        path string 0+
        topics [] 0+
            name string 0+
            partitions []int32 0+
""",
    response="""
    throttle_time_ms int32 0+
    results [] 0+
        topic_name string 0+
        partitions [] 0+
            partition_index int32 0+
            error_code int16 0+
""",
)
