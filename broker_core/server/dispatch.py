"""The handler of each API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker_core.protocol import definitions as api
from broker_core.protocol.schema import Api, RequestBody, ResponseBody
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

Handler = Callable[["Broker", Request[RequestBody, ResponseBody]], None]


def _served(
    served: Api[RequestBody, ResponseBody], handler: Handler[RequestBody, ResponseBody]
) -> tuple[int, Handler[Any, Any]]:
    """Have mypy compare the types of an API with those of its handler."""
    return served.key, handler


#: Handlers answer with `request.reply`, at once or later. An exception closes the connection.
HANDLERS: Final[dict[int, Handler[Any, Any]]] = dict(
    (
        _served(api.PRODUCE, produce.handle),
        _served(api.FETCH, fetch.handle),
        _served(api.LIST_OFFSETS, list_offsets.handle),
        _served(api.METADATA, metadata.handle),
        _served(api.OFFSET_COMMIT, group_offsets.handle_commit),
        _served(api.OFFSET_FETCH, group_offsets.handle_fetch),
        _served(api.FIND_COORDINATOR, metadata.handle_find_coordinator),
        _served(api.JOIN_GROUP, group_membership.handle_join),
        _served(api.HEARTBEAT, group_membership.handle_heartbeat),
        _served(api.LEAVE_GROUP, group_membership.handle_leave),
        _served(api.SYNC_GROUP, group_membership.handle_sync),
        _served(api.DESCRIBE_GROUPS, group_admin.handle_describe),
        _served(api.LIST_GROUPS, group_admin.handle_list),
        _served(api.API_VERSIONS, api_versions.handle),
        _served(api.SASL_HANDSHAKE, sasl.handle_handshake),
        _served(api.CREATE_TOPICS, topics.handle_create),
        _served(api.DELETE_TOPICS, topics.handle_delete),
        _served(api.DELETE_RECORDS, topics.handle_delete_records),
        _served(api.INIT_PRODUCER_ID, transactions.handle_init_producer_id),
        _served(api.ADD_PARTITIONS_TO_TXN, transactions.handle_add_partitions),
        _served(api.ADD_OFFSETS_TO_TXN, transactions.handle_add_offsets),
        _served(api.END_TXN, transactions.handle_end),
        _served(api.WRITE_TXN_MARKERS, transactions.handle_write_markers),
        _served(api.TXN_OFFSET_COMMIT, transactions.handle_offset_commit),
        _served(api.DESCRIBE_PRODUCERS, transaction_admin.handle_describe_producers),
        _served(api.DESCRIBE_TRANSACTIONS, transaction_admin.handle_describe),
        _served(api.LIST_TRANSACTIONS, transaction_admin.handle_list),
        _served(api.CONSUMER_GROUP_HEARTBEAT, consumer_groups.handle_heartbeat),
        _served(api.CONSUMER_GROUP_DESCRIBE, consumer_groups.handle_describe),
        _served(api.SHARE_GROUP_HEARTBEAT, share_groups.handle_heartbeat),
        _served(api.SHARE_GROUP_DESCRIBE, share_groups.handle_describe),
        _served(api.INITIALIZE_SHARE_GROUP_STATE, share_state.handle_initialize),
        _served(api.READ_SHARE_GROUP_STATE, share_state.handle_read),
        _served(api.WRITE_SHARE_GROUP_STATE, share_state.handle_write),
        _served(api.DELETE_SHARE_GROUP_STATE, share_state.handle_delete),
        _served(api.READ_SHARE_GROUP_STATE_SUMMARY, share_state.handle_summary),
        _served(api.SHARE_FETCH, share_fetch.handle_fetch),
        _served(api.SHARE_ACKNOWLEDGE, share_fetch.handle_acknowledge),
        _served(api.DESCRIBE_SHARE_GROUP_OFFSETS, share_groups.handle_describe_offsets),
        _served(api.ALTER_SHARE_GROUP_OFFSETS, share_groups.handle_alter_offsets),
        _served(api.DELETE_SHARE_GROUP_OFFSETS, share_groups.handle_delete_offsets),
        _served(api.ELECT_LEADERS, placement.handle_elect),
        _served(api.ALTER_REPLICA_LOG_DIRS, log_dirs.handle_alter),
        _served(api.DESCRIBE_QUORUM, quorum.handle),
        _served(api.ALTER_PARTITION_REASSIGNMENTS, placement.handle_reassign),
        _served(api.LIST_PARTITION_REASSIGNMENTS, placement.handle_list_reassignments),
        _served(api.OFFSET_FOR_LEADER_EPOCH, list_offsets.handle_leader_epoch),
        _served(api.DESCRIBE_ACLS, acls.handle_describe),
        _served(api.CREATE_ACLS, acls.handle_create),
        _served(api.DELETE_ACLS, acls.handle_delete),
        _served(api.DESCRIBE_CONFIGS, configs.handle_describe),
        _served(api.ALTER_CONFIGS, configs.handle_alter),
        _served(api.DESCRIBE_LOG_DIRS, log_dirs.handle),
        _served(api.SASL_AUTHENTICATE, sasl.handle_authenticate),
        _served(api.CREATE_PARTITIONS, topics.handle_create_partitions),
        _served(api.DELETE_GROUPS, group_admin.handle_delete),
        _served(api.INCREMENTAL_ALTER_CONFIGS, configs.handle_incremental_alter),
        _served(api.OFFSET_DELETE, group_offsets.handle_delete),
        _served(api.DESCRIBE_CLIENT_QUOTAS, client_quotas.handle_describe),
        _served(api.ALTER_CLIENT_QUOTAS, client_quotas.handle_alter),
        _served(api.DESCRIBE_USER_SCRAM_CREDENTIALS, scram_users.handle_describe),
        _served(api.ALTER_USER_SCRAM_CREDENTIALS, scram_users.handle_alter),
        _served(api.DESCRIBE_CLUSTER, metadata.handle_describe_cluster),
        _served(api.LIST_CONFIG_RESOURCES, configs.handle_list_resources),
        _served(api.DESCRIBE_TOPIC_PARTITIONS, metadata.handle_topic_partitions),
    )
)

if HANDLERS.keys() != api.APIS.keys():
    raise RuntimeError("every API that is advertised needs a handler")
