"""The handler of each API, with the parts of the broker that it works on.

The broker hands itself over once for each family of APIs, and mypy compares it with the protocol
that the family asks for; handlers see what they need and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Protocol, TypeVar

from broker_core.protocol import definitions as api
from broker_core.protocol.schema import Api, RequestBody, ResponseBody
from broker_core.security.credentials import ScramUsers
from broker_core.security.failures import LoginFailures
from broker_core.security.quotas import ClientQuotas
from broker_core.server.handlers import (
    api_versions,
    client_quotas,
    configs,
    fetch,
    list_offsets,
    log_dirs,
    metadata,
    placement,
    quorum,
    topics,
)
from broker_core.server.handlers.configs import ConfigParts
from broker_core.server.handlers.fetch import FetchParts
from broker_core.server.handlers.groups import (
    consumer_groups,
    group_admin,
    group_membership,
    group_offsets,
)
from broker_core.server.handlers.groups.group_admin import AllGroups
from broker_core.server.handlers.groups.group_parts import GroupParts
from broker_core.server.handlers.log_dirs import LogDirParts
from broker_core.server.handlers.metadata import CoordinatorParts, MetadataParts
from broker_core.server.handlers.produce import ProduceParts, Producing
from broker_core.server.handlers.quorum import QuorumParts
from broker_core.server.handlers.security import acls, sasl, scram_users
from broker_core.server.handlers.security.acls import AclParts
from broker_core.server.handlers.sharing import (
    share_acknowledge,
    share_fetch,
    share_groups,
    share_state,
)
from broker_core.server.handlers.sharing.share_fetch import ShareFetchParts
from broker_core.server.handlers.sharing.share_groups import ShareGroupParts
from broker_core.server.handlers.topics import TopicParts
from broker_core.server.handlers.transactions import transaction_admin, transactions
from broker_core.server.handlers.transactions.transactions import TransactionParts
from broker_core.server.network.request import AnyRequest, Request
from broker_core.server.sharing.share_coordinator import ShareCoordinator

#: Answers with `request.reply`, at once or later. An exception closes the connection.
Handler = Callable[[AnyRequest], None]

#: The handlers of some APIs by key.
Served = Iterator[tuple[int, Handler]]

_Needed = TypeVar("_Needed")


def _served(
    served: Api[RequestBody, ResponseBody],
    handler: Callable[[_Needed, Request[RequestBody, ResponseBody]], None],
    needed: _Needed,
) -> tuple[int, Handler]:
    """Have mypy compare the types of an API with those of its handler, and what that needs."""
    # Called as fast as the function itself, which a functools.partial is not.
    return served.key, MethodType(handler, needed)


def _served_alone(
    served: Api[RequestBody, ResponseBody],
    handler: Callable[[Request[RequestBody, ResponseBody]], None],
) -> tuple[int, Handler]:
    """As `_served`, for a handler that needs nothing of the broker."""
    return served.key, handler


class RecordParts(ProduceParts, FetchParts, LogDirParts, Protocol):
    """The parts of a broker that keep records."""


def record_apis(broker: RecordParts) -> Served:
    """Yield the handlers of the APIs for records, their offsets, and where they are stored."""
    topics_here = broker.topics
    yield _served(api.PRODUCE, Producing.handle, Producing(broker))
    yield _served(api.FETCH, fetch.handle, broker)
    yield _served(api.LIST_OFFSETS, list_offsets.handle, broker)
    yield _served(api.OFFSET_FOR_LEADER_EPOCH, list_offsets.handle_leader_epoch, topics_here)
    yield _served(api.DELETE_RECORDS, topics.handle_delete_records, topics_here)
    yield _served(api.DESCRIBE_LOG_DIRS, log_dirs.handle, broker)
    yield _served(api.ALTER_REPLICA_LOG_DIRS, log_dirs.handle_alter, broker)


class ConsumingParts(GroupParts, AllGroups, consumer_groups.ConsumerGroupParts, Protocol):
    """The parts of a broker that keep groups of consumers, and list all groups."""


def group_apis(broker: ConsumingParts) -> Served:
    """Yield the handlers of the APIs for groups and their offsets."""
    groups = broker.groups
    yield _served(api.JOIN_GROUP, group_membership.handle_join, groups)
    yield _served(api.SYNC_GROUP, group_membership.handle_sync, groups)
    yield _served(api.HEARTBEAT, group_membership.handle_heartbeat, groups)
    yield _served(api.LEAVE_GROUP, group_membership.handle_leave, groups)
    yield _served(api.OFFSET_COMMIT, group_offsets.handle_commit, broker)
    yield _served(api.OFFSET_FETCH, group_offsets.handle_fetch, broker)
    yield _served(api.OFFSET_DELETE, group_offsets.handle_delete, groups)
    yield _served(api.DESCRIBE_GROUPS, group_admin.handle_describe, groups)
    yield _served(api.LIST_GROUPS, group_admin.handle_list, broker)
    yield _served(api.DELETE_GROUPS, group_admin.handle_delete, broker)
    yield _served(api.CONSUMER_GROUP_HEARTBEAT, consumer_groups.handle_heartbeat, broker)
    yield _served(api.CONSUMER_GROUP_DESCRIBE, consumer_groups.handle_describe, broker)


def transaction_apis(broker: TransactionParts) -> Served:
    """Yield the handlers of the APIs for transactions and their producers."""
    coordinated = broker.transactions
    yield _served(api.INIT_PRODUCER_ID, transactions.handle_init_producer_id, broker)
    yield _served(api.ADD_PARTITIONS_TO_TXN, transactions.handle_add_partitions, broker)
    yield _served(api.ADD_OFFSETS_TO_TXN, transactions.handle_add_offsets, broker)
    yield _served(api.END_TXN, transactions.handle_end, coordinated)
    yield _served(api.WRITE_TXN_MARKERS, transactions.handle_write_markers, coordinated)
    yield _served(api.TXN_OFFSET_COMMIT, transactions.handle_offset_commit, broker)
    yield _served(
        api.DESCRIBE_PRODUCERS, transaction_admin.handle_describe_producers, broker.topics
    )
    yield _served(api.DESCRIBE_TRANSACTIONS, transaction_admin.handle_describe, coordinated)
    yield _served(api.LIST_TRANSACTIONS, transaction_admin.handle_list, coordinated)


class SharingParts(ShareFetchParts, ShareGroupParts, Protocol):
    """The parts of a broker that share groups are made of."""

    share_coordinator: ShareCoordinator


def share_apis(broker: SharingParts) -> Served:
    """Yield the handlers of the APIs for share groups."""
    states = broker.share_coordinator
    yield _served(api.SHARE_GROUP_HEARTBEAT, share_groups.handle_heartbeat, broker)
    yield _served(api.SHARE_GROUP_DESCRIBE, share_groups.handle_describe, broker)
    yield _served(api.DESCRIBE_SHARE_GROUP_OFFSETS, share_groups.handle_describe_offsets, broker)
    yield _served(api.ALTER_SHARE_GROUP_OFFSETS, share_groups.handle_alter_offsets, broker)
    yield _served(api.DELETE_SHARE_GROUP_OFFSETS, share_groups.handle_delete_offsets, broker)
    yield _served(api.SHARE_FETCH, share_fetch.handle, broker)
    yield _served(api.SHARE_ACKNOWLEDGE, share_acknowledge.handle, broker)
    yield _served(api.INITIALIZE_SHARE_GROUP_STATE, share_state.handle_initialize, states)
    yield _served(api.READ_SHARE_GROUP_STATE, share_state.handle_read, states)
    yield _served(api.WRITE_SHARE_GROUP_STATE, share_state.handle_write, states)
    yield _served(api.DELETE_SHARE_GROUP_STATE, share_state.handle_delete, states)
    yield _served(api.READ_SHARE_GROUP_STATE_SUMMARY, share_state.handle_summary, states)


class ClusterParts(MetadataParts, CoordinatorParts, QuorumParts, Protocol):
    """The parts of a broker that know its cluster."""


def cluster_apis(broker: ClusterParts) -> Served:
    """Yield the handlers of the APIs by which clients find brokers."""
    yield _served(api.METADATA, metadata.handle, broker)
    yield _served(api.DESCRIBE_CLUSTER, metadata.handle_describe_cluster, broker)
    yield _served(api.DESCRIBE_TOPIC_PARTITIONS, metadata.handle_topic_partitions, broker)
    yield _served(api.FIND_COORDINATOR, metadata.handle_find_coordinator, broker)
    yield _served(api.DESCRIBE_QUORUM, quorum.handle, broker)


class AdministrationParts(AclParts, ConfigParts, TopicParts, Protocol):
    """The parts of a broker that administrators see and change."""

    scram_users: ScramUsers
    quotas: ClientQuotas


def administration_apis(broker: AdministrationParts) -> Served:
    """Yield the handlers of the APIs for topics, users and settings."""
    controller = broker.cluster
    yield _served(api.CREATE_TOPICS, topics.handle_create, broker)
    yield _served(api.DELETE_TOPICS, topics.handle_delete, broker)
    yield _served(api.CREATE_PARTITIONS, topics.handle_create_partitions, broker)
    yield _served(api.ELECT_LEADERS, placement.handle_elect, controller)
    yield _served(api.ALTER_PARTITION_REASSIGNMENTS, placement.handle_reassign, controller)
    yield _served(api.LIST_PARTITION_REASSIGNMENTS, placement.handle_list_reassignments, controller)
    yield _served(api.DESCRIBE_ACLS, acls.handle_describe, broker)
    yield _served(api.CREATE_ACLS, acls.handle_create, broker)
    yield _served(api.DELETE_ACLS, acls.handle_delete, broker)
    yield _served(api.DESCRIBE_CONFIGS, configs.handle_describe, broker)
    yield _served(api.ALTER_CONFIGS, configs.handle_alter, broker)
    yield _served(api.INCREMENTAL_ALTER_CONFIGS, configs.handle_incremental_alter, broker)
    yield _served(api.LIST_CONFIG_RESOURCES, configs.handle_list_resources, broker)
    yield _served(api.DESCRIBE_CLIENT_QUOTAS, client_quotas.handle_describe, broker.quotas)
    yield _served(api.ALTER_CLIENT_QUOTAS, client_quotas.handle_alter, controller)
    yield _served(
        api.DESCRIBE_USER_SCRAM_CREDENTIALS, scram_users.handle_describe, broker.scram_users
    )
    yield _served(api.ALTER_USER_SCRAM_CREDENTIALS, scram_users.handle_alter, controller)


def login_apis(failures: LoginFailures) -> Served:
    """Yield the handlers of the first requests of a client."""
    yield _served_alone(api.API_VERSIONS, api_versions.handle)
    yield _served_alone(api.SASL_HANDSHAKE, sasl.handle_handshake)
    yield _served(api.SASL_AUTHENTICATE, sasl.handle_authenticate, failures)


def handlers(*families: Served) -> dict[int, Handler]:
    """Return the handlers of all APIs by key; raises RuntimeError if one is missing."""
    found = {key: handler for family in families for key, handler in family}
    if found.keys() != api.APIS.keys():
        raise RuntimeError("every API that is advertised needs a handler")
    return found
