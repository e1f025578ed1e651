"""The handler of each API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker_core.protocol import definitions as api
from broker_core.server.handlers import (
    acls,
    api_versions,
    client_quotas,
    configs,
    consumer_groups,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    list_offsets,
    log_dirs,
    metadata,
    placement,
    produce,
    quorum,
    sasl,
    scram_users,
    share_fetch,
    share_groups,
    share_state,
    topics,
    transaction_admin,
    transactions,
)
from broker_core.server.network.request import Request

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

Handler = Callable[["Broker", Request], None]

#: Handlers answer with `request.reply`, at once or later. An exception closes the connection.
HANDLERS: Final[dict[int, Handler]] = {
    api.PRODUCE.key: produce.handle,
    api.FETCH.key: fetch.handle,
    api.LIST_OFFSETS.key: list_offsets.handle,
    api.METADATA.key: metadata.handle,
    api.OFFSET_COMMIT.key: group_offsets.handle_commit,
    api.OFFSET_FETCH.key: group_offsets.handle_fetch,
    api.FIND_COORDINATOR.key: metadata.handle_find_coordinator,
    api.JOIN_GROUP.key: group_membership.handle_join,
    api.HEARTBEAT.key: group_membership.handle_heartbeat,
    api.LEAVE_GROUP.key: group_membership.handle_leave,
    api.SYNC_GROUP.key: group_membership.handle_sync,
    api.DESCRIBE_GROUPS.key: group_admin.handle_describe,
    api.LIST_GROUPS.key: group_admin.handle_list,
    api.API_VERSIONS.key: api_versions.handle,
    api.SASL_HANDSHAKE.key: sasl.handle_handshake,
    api.CREATE_TOPICS.key: topics.handle_create,
    api.DELETE_TOPICS.key: topics.handle_delete,
    api.DELETE_RECORDS.key: topics.handle_delete_records,
    api.INIT_PRODUCER_ID.key: transactions.handle_init_producer_id,
    api.ADD_PARTITIONS_TO_TXN.key: transactions.handle_add_partitions,
    api.ADD_OFFSETS_TO_TXN.key: transactions.handle_add_offsets,
    api.END_TXN.key: transactions.handle_end,
    api.WRITE_TXN_MARKERS.key: transactions.handle_write_markers,
    api.TXN_OFFSET_COMMIT.key: transactions.handle_offset_commit,
    api.DESCRIBE_PRODUCERS.key: transaction_admin.handle_describe_producers,
    api.DESCRIBE_TRANSACTIONS.key: transaction_admin.handle_describe,
    api.LIST_TRANSACTIONS.key: transaction_admin.handle_list,
    api.CONSUMER_GROUP_HEARTBEAT.key: consumer_groups.handle_heartbeat,
    api.CONSUMER_GROUP_DESCRIBE.key: consumer_groups.handle_describe,
    api.SHARE_GROUP_HEARTBEAT.key: share_groups.handle_heartbeat,
    api.SHARE_GROUP_DESCRIBE.key: share_groups.handle_describe,
    api.INITIALIZE_SHARE_GROUP_STATE.key: share_state.handle_initialize,
    api.READ_SHARE_GROUP_STATE.key: share_state.handle_read,
    api.WRITE_SHARE_GROUP_STATE.key: share_state.handle_write,
    api.DELETE_SHARE_GROUP_STATE.key: share_state.handle_delete,
    api.READ_SHARE_GROUP_STATE_SUMMARY.key: share_state.handle_summary,
    api.SHARE_FETCH.key: share_fetch.handle_fetch,
    api.SHARE_ACKNOWLEDGE.key: share_fetch.handle_acknowledge,
    api.DESCRIBE_SHARE_GROUP_OFFSETS.key: share_groups.handle_describe_offsets,
    api.ALTER_SHARE_GROUP_OFFSETS.key: share_groups.handle_alter_offsets,
    api.DELETE_SHARE_GROUP_OFFSETS.key: share_groups.handle_delete_offsets,
    api.ELECT_LEADERS.key: placement.handle_elect,
    api.ALTER_REPLICA_LOG_DIRS.key: log_dirs.handle_alter,
    api.DESCRIBE_QUORUM.key: quorum.handle,
    api.ALTER_PARTITION_REASSIGNMENTS.key: placement.handle_reassign,
    api.LIST_PARTITION_REASSIGNMENTS.key: placement.handle_list_reassignments,
    api.OFFSET_FOR_LEADER_EPOCH.key: list_offsets.handle_leader_epoch,
    api.DESCRIBE_ACLS.key: acls.handle_describe,
    api.CREATE_ACLS.key: acls.handle_create,
    api.DELETE_ACLS.key: acls.handle_delete,
    api.DESCRIBE_CONFIGS.key: configs.handle_describe,
    api.ALTER_CONFIGS.key: configs.handle_alter,
    api.DESCRIBE_LOG_DIRS.key: log_dirs.handle,
    api.SASL_AUTHENTICATE.key: sasl.handle_authenticate,
    api.CREATE_PARTITIONS.key: topics.handle_create_partitions,
    api.DELETE_GROUPS.key: group_admin.handle_delete,
    api.INCREMENTAL_ALTER_CONFIGS.key: configs.handle_incremental_alter,
    api.OFFSET_DELETE.key: group_offsets.handle_delete,
    api.DESCRIBE_CLIENT_QUOTAS.key: client_quotas.handle_describe,
    api.ALTER_CLIENT_QUOTAS.key: client_quotas.handle_alter,
    api.DESCRIBE_USER_SCRAM_CREDENTIALS.key: scram_users.handle_describe,
    api.ALTER_USER_SCRAM_CREDENTIALS.key: scram_users.handle_alter,
    api.DESCRIBE_CLUSTER.key: metadata.handle_describe_cluster,
    api.LIST_CONFIG_RESOURCES.key: configs.handle_list_resources,
    api.DESCRIBE_TOPIC_PARTITIONS.key: metadata.handle_topic_partitions,
}

if HANDLERS.keys() != api.APIS.keys():
    raise RuntimeError("every API that is advertised needs a handler")
