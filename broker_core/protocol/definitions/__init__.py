"""All supported APIs, one module each; the tables follow Kafka's message definitions."""

from typing import Final

from broker_core.protocol.definitions.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from broker_core.protocol.definitions.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from broker_core.protocol.definitions.allocate_producer_ids import ALLOCATE_PRODUCER_IDS
from broker_core.protocol.definitions.alter_client_quotas import ALTER_CLIENT_QUOTAS
from broker_core.protocol.definitions.alter_configs import ALTER_CONFIGS
from broker_core.protocol.definitions.alter_partition import ALTER_PARTITION
from broker_core.protocol.definitions.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
)
from broker_core.protocol.definitions.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from broker_core.protocol.definitions.alter_share_group_offsets import ALTER_SHARE_GROUP_OFFSETS
from broker_core.protocol.definitions.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
)
from broker_core.protocol.definitions.api_versions import API_VERSIONS
from broker_core.protocol.definitions.begin_quorum_epoch import BEGIN_QUORUM_EPOCH
from broker_core.protocol.definitions.broker_heartbeat import BROKER_HEARTBEAT
from broker_core.protocol.definitions.broker_registration import BROKER_REGISTRATION
from broker_core.protocol.definitions.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from broker_core.protocol.definitions.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from broker_core.protocol.definitions.create_acls import CREATE_ACLS
from broker_core.protocol.definitions.create_partitions import CREATE_PARTITIONS
from broker_core.protocol.definitions.create_topics import CREATE_TOPICS
from broker_core.protocol.definitions.delete_acls import DELETE_ACLS
from broker_core.protocol.definitions.delete_groups import DELETE_GROUPS
from broker_core.protocol.definitions.delete_records import DELETE_RECORDS
from broker_core.protocol.definitions.delete_share_group_offsets import DELETE_SHARE_GROUP_OFFSETS
from broker_core.protocol.definitions.delete_share_group_state import DELETE_SHARE_GROUP_STATE
from broker_core.protocol.definitions.delete_topics import DELETE_TOPICS
from broker_core.protocol.definitions.describe_acls import DESCRIBE_ACLS
from broker_core.protocol.definitions.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from broker_core.protocol.definitions.describe_cluster import DESCRIBE_CLUSTER
from broker_core.protocol.definitions.describe_configs import DESCRIBE_CONFIGS
from broker_core.protocol.definitions.describe_groups import DESCRIBE_GROUPS
from broker_core.protocol.definitions.describe_log_dirs import DESCRIBE_LOG_DIRS
from broker_core.protocol.definitions.describe_producers import DESCRIBE_PRODUCERS
from broker_core.protocol.definitions.describe_quorum import DESCRIBE_QUORUM
from broker_core.protocol.definitions.describe_share_group_offsets import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
)
from broker_core.protocol.definitions.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from broker_core.protocol.definitions.describe_transactions import DESCRIBE_TRANSACTIONS
from broker_core.protocol.definitions.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from broker_core.protocol.definitions.elect_leaders import ELECT_LEADERS
from broker_core.protocol.definitions.end_quorum_epoch import END_QUORUM_EPOCH
from broker_core.protocol.definitions.end_txn import END_TXN
from broker_core.protocol.definitions.envelope import ENVELOPE
from broker_core.protocol.definitions.fetch import FETCH
from broker_core.protocol.definitions.find_coordinator import FIND_COORDINATOR
from broker_core.protocol.definitions.heartbeat import HEARTBEAT
from broker_core.protocol.definitions.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from broker_core.protocol.definitions.init_producer_id import INIT_PRODUCER_ID
from broker_core.protocol.definitions.initialize_share_group_state import (
    INITIALIZE_SHARE_GROUP_STATE,
)
from broker_core.protocol.definitions.join_group import JOIN_GROUP
from broker_core.protocol.definitions.leave_group import LEAVE_GROUP
from broker_core.protocol.definitions.list_config_resources import LIST_CONFIG_RESOURCES
from broker_core.protocol.definitions.list_groups import LIST_GROUPS
from broker_core.protocol.definitions.list_offsets import LIST_OFFSETS
from broker_core.protocol.definitions.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
)
from broker_core.protocol.definitions.list_transactions import LIST_TRANSACTIONS
from broker_core.protocol.definitions.metadata import METADATA
from broker_core.protocol.definitions.metadata_fetch import FETCH_METADATA, FETCH_METADATA_SNAPSHOT
from broker_core.protocol.definitions.offset_commit import OFFSET_COMMIT
from broker_core.protocol.definitions.offset_delete import OFFSET_DELETE
from broker_core.protocol.definitions.offset_fetch import OFFSET_FETCH
from broker_core.protocol.definitions.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from broker_core.protocol.definitions.produce import PRODUCE
from broker_core.protocol.definitions.read_share_group_state import READ_SHARE_GROUP_STATE
from broker_core.protocol.definitions.read_share_group_state_summary import (
    READ_SHARE_GROUP_STATE_SUMMARY,
)
from broker_core.protocol.definitions.sasl_authenticate import SASL_AUTHENTICATE
from broker_core.protocol.definitions.sasl_handshake import SASL_HANDSHAKE
from broker_core.protocol.definitions.share_acknowledge import SHARE_ACKNOWLEDGE
from broker_core.protocol.definitions.share_fetch import SHARE_FETCH
from broker_core.protocol.definitions.share_group_describe import SHARE_GROUP_DESCRIBE
from broker_core.protocol.definitions.share_group_heartbeat import SHARE_GROUP_HEARTBEAT
from broker_core.protocol.definitions.sync_group import SYNC_GROUP
from broker_core.protocol.definitions.txn_offset_commit import TXN_OFFSET_COMMIT
from broker_core.protocol.definitions.vote import VOTE
from broker_core.protocol.definitions.write_share_group_state import WRITE_SHARE_GROUP_STATE
from broker_core.protocol.definitions.write_txn_markers import WRITE_TXN_MARKERS
from broker_core.protocol.schema import AnyApi

APIS: Final[dict[int, AnyApi]] = {
    api.key: api
    for api in (
        ADD_OFFSETS_TO_TXN,
        ADD_PARTITIONS_TO_TXN,
        ALTER_CLIENT_QUOTAS,
        ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        ALTER_USER_SCRAM_CREDENTIALS,
        ALTER_REPLICA_LOG_DIRS,
        DESCRIBE_QUORUM,
        API_VERSIONS,
        CONSUMER_GROUP_DESCRIBE,
        CONSUMER_GROUP_HEARTBEAT,
        CREATE_ACLS,
        CREATE_PARTITIONS,
        CREATE_TOPICS,
        DELETE_ACLS,
        DELETE_GROUPS,
        DELETE_RECORDS,
        DELETE_TOPICS,
        DESCRIBE_ACLS,
        DESCRIBE_CLIENT_QUOTAS,
        DESCRIBE_CLUSTER,
        DESCRIBE_CONFIGS,
        DESCRIBE_GROUPS,
        DESCRIBE_LOG_DIRS,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TOPIC_PARTITIONS,
        DESCRIBE_TRANSACTIONS,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        ELECT_LEADERS,
        END_TXN,
        FETCH,
        FIND_COORDINATOR,
        HEARTBEAT,
        INCREMENTAL_ALTER_CONFIGS,
        INIT_PRODUCER_ID,
        JOIN_GROUP,
        LEAVE_GROUP,
        LIST_CONFIG_RESOURCES,
        LIST_GROUPS,
        LIST_OFFSETS,
        LIST_PARTITION_REASSIGNMENTS,
        LIST_TRANSACTIONS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_DELETE,
        OFFSET_FETCH,
        OFFSET_FOR_LEADER_EPOCH,
        PRODUCE,
        SASL_AUTHENTICATE,
        SASL_HANDSHAKE,
        ALTER_SHARE_GROUP_OFFSETS,
        DELETE_SHARE_GROUP_OFFSETS,
        DESCRIBE_SHARE_GROUP_OFFSETS,
        INITIALIZE_SHARE_GROUP_STATE,
        READ_SHARE_GROUP_STATE,
        WRITE_SHARE_GROUP_STATE,
        DELETE_SHARE_GROUP_STATE,
        READ_SHARE_GROUP_STATE_SUMMARY,
        SHARE_ACKNOWLEDGE,
        SHARE_FETCH,
        SHARE_GROUP_DESCRIBE,
        SHARE_GROUP_HEARTBEAT,
        SYNC_GROUP,
        TXN_OFFSET_COMMIT,
        WRITE_TXN_MARKERS,
    )
}

#: APIs on the listeners of controllers, which nodes of the cluster use among themselves.
CONTROLLER_APIS: Final[dict[int, AnyApi]] = {
    api.key: api
    for api in (
        API_VERSIONS,
        ALLOCATE_PRODUCER_IDS,
        ALTER_PARTITION,
        BEGIN_QUORUM_EPOCH,
        BROKER_HEARTBEAT,
        BROKER_REGISTRATION,
        END_QUORUM_EPOCH,
        ENVELOPE,
        FETCH_METADATA,
        FETCH_METADATA_SNAPSHOT,
        VOTE,
        SASL_AUTHENTICATE,
        SASL_HANDSHAKE,
    )
}

#: First versions in ApiVersions that differ from the supported ones. A Produce request before
#: version 3 has no batch that could be stored, but librdkafka before 2.1 takes a missing version 0
#: to mean "no compression" (KAFKA-18659); Apache Kafka does the same.
ADVERTISED_FROM: Final[dict[int, int]] = {PRODUCE.key: 0}

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "ADVERTISED_FROM",
    "ALLOCATE_PRODUCER_IDS",
    "ALTER_CLIENT_QUOTAS",
    "ALTER_CONFIGS",
    "ALTER_PARTITION",
    "ALTER_PARTITION_REASSIGNMENTS",
    "ALTER_REPLICA_LOG_DIRS",
    "ALTER_SHARE_GROUP_OFFSETS",
    "ALTER_USER_SCRAM_CREDENTIALS",
    "APIS",
    "API_VERSIONS",
    "BEGIN_QUORUM_EPOCH",
    "BROKER_HEARTBEAT",
    "BROKER_REGISTRATION",
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
    "CONTROLLER_APIS",
    "CREATE_ACLS",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_ACLS",
    "DELETE_GROUPS",
    "DELETE_RECORDS",
    "DELETE_SHARE_GROUP_OFFSETS",
    "DELETE_SHARE_GROUP_STATE",
    "DELETE_TOPICS",
    "DESCRIBE_ACLS",
    "DESCRIBE_CLIENT_QUOTAS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_GROUPS",
    "DESCRIBE_LOG_DIRS",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_QUORUM",
    "DESCRIBE_SHARE_GROUP_OFFSETS",
    "DESCRIBE_TOPIC_PARTITIONS",
    "DESCRIBE_TRANSACTIONS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "ELECT_LEADERS",
    "END_QUORUM_EPOCH",
    "END_TXN",
    "ENVELOPE",
    "FETCH",
    "FETCH_METADATA",
    "FETCH_METADATA_SNAPSHOT",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "INCREMENTAL_ALTER_CONFIGS",
    "INITIALIZE_SHARE_GROUP_STATE",
    "INIT_PRODUCER_ID",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_CONFIG_RESOURCES",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "LIST_PARTITION_REASSIGNMENTS",
    "LIST_TRANSACTIONS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
    "READ_SHARE_GROUP_STATE",
    "READ_SHARE_GROUP_STATE_SUMMARY",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SHARE_ACKNOWLEDGE",
    "SHARE_FETCH",
    "SHARE_GROUP_DESCRIBE",
    "SHARE_GROUP_HEARTBEAT",
    "SYNC_GROUP",
    "TXN_OFFSET_COMMIT",
    "VOTE",
    "WRITE_SHARE_GROUP_STATE",
    "WRITE_TXN_MARKERS",
]
