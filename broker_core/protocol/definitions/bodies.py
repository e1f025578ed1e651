"""Types of the bodies of requests and answers, for annotations only.

Generated from the tables of this folder by

    python -m broker_core.protocol.definitions.generate_bodies

which says what the types promise. Import it under TYPE_CHECKING: it costs time and memory to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from broker_core.protocol.parts import Part


class AddOffsetsToTxnRequest(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int


class AddPartitionsToTxnRequest(TypedDict):
    transactions: Sequence[AddPartitionsToTxnRequestTransaction]
    v3_and_below_transactional_id: NotRequired[str]
    v3_and_below_producer_id: NotRequired[int]
    v3_and_below_producer_epoch: NotRequired[int]
    v3_and_below_topics: NotRequired[Sequence[AddPartitionsToTxnRequestV3AndBelowTopic]]


class AddPartitionsToTxnRequestTransaction(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: Sequence[AddPartitionsToTxnRequestTopic]


class AddPartitionsToTxnRequestTopic(TypedDict):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnRequestV3AndBelowTopic(TypedDict):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    results_by_transaction: Sequence[AddPartitionsToTxnResponseResultsByTransaction]
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponseResultsByTopicV3AndBelow]


class AddPartitionsToTxnResponseResultsByTransaction(TypedDict, total=False):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnResponseTopicResult]


class AddPartitionsToTxnResponseTopicResult(TypedDict, total=False):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnResponseResultsByPartition]


class AddPartitionsToTxnResponseResultsByPartition(TypedDict, total=False):
    partition_index: int
    partition_error_code: int


class AddPartitionsToTxnResponseResultsByTopicV3AndBelow(TypedDict, total=False):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnResponseResultsByPartition]


class AllocateProducerIdsRequest(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]


class AllocateProducerIdsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int


class AlterClientQuotasRequest(TypedDict):
    entries: Sequence[AlterClientQuotasRequestEntry]
    validate_only: bool


class AlterClientQuotasRequestEntry(TypedDict):
    entity: Sequence[AlterClientQuotasRequestEntity]
    ops: Sequence[AlterClientQuotasRequestOp]


class AlterClientQuotasRequestEntity(TypedDict):
    entity_type: str
    entity_name: str | None


class AlterClientQuotasRequestOp(TypedDict):
    key: str
    value: float
    remove: bool


class AlterClientQuotasResponse(TypedDict, total=False):
    throttle_time_ms: int
    entries: Sequence[AlterClientQuotasResponseEntry]


class AlterClientQuotasResponseEntry(TypedDict, total=False):
    error_code: int
    error_message: str | None
    entity: Sequence[AlterClientQuotasResponseEntity]


class AlterClientQuotasResponseEntity(TypedDict, total=False):
    entity_type: str
    entity_name: str | None


class AlterConfigsRequest(TypedDict):
    resources: Sequence[AlterConfigsRequestResource]
    validate_only: bool


class AlterConfigsRequestResource(TypedDict):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterConfigsRequestConfig]


class AlterConfigsRequestConfig(TypedDict):
    name: str
    value: str | None


class AlterConfigsResponse(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[AlterConfigsResponseResult]


class AlterConfigsResponseResult(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterPartitionRequest(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]
    topics: Sequence[AlterPartitionRequestTopic]


class AlterPartitionRequestTopic(TypedDict):
    topic_id: bytes
    partitions: Sequence[AlterPartitionRequestPartition]


class AlterPartitionRequestPartition(TypedDict):
    partition_index: int
    leader_epoch: int
    new_isr: NotRequired[Sequence[int]]
    new_isr_with_epochs: Sequence[AlterPartitionRequestNewIsrWithEpoch]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionRequestNewIsrWithEpoch(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]


class AlterPartitionResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    topics: Sequence[AlterPartitionResponseTopic]


class AlterPartitionResponseTopic(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[AlterPartitionResponsePartition]


class AlterPartitionResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionReassignmentsRequest(TypedDict):
    timeout_ms: NotRequired[int]
    allow_replication_factor_change: NotRequired[bool]
    topics: Sequence[AlterPartitionReassignmentsRequestTopic]


class AlterPartitionReassignmentsRequestTopic(TypedDict):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsRequestPartition]


class AlterPartitionReassignmentsRequestPartition(TypedDict):
    partition_index: int
    replicas: NotRequired[Sequence[int] | None]


class AlterPartitionReassignmentsResponse(TypedDict, total=False):
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: Sequence[AlterPartitionReassignmentsResponseResult]


class AlterPartitionReassignmentsResponseResult(TypedDict, total=False):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsResponsePartition]


class AlterPartitionReassignmentsResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None


class AlterReplicaLogDirsRequest(TypedDict):
    dirs: Sequence[AlterReplicaLogDirsRequestDir]


class AlterReplicaLogDirsRequestDir(TypedDict):
    path: str
    topics: Sequence[AlterReplicaLogDirsRequestTopic]


class AlterReplicaLogDirsRequestTopic(TypedDict):
    name: str
    partitions: Sequence[int]


class AlterReplicaLogDirsResponse(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[AlterReplicaLogDirsResponseResult]


class AlterReplicaLogDirsResponseResult(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirsResponsePartition]


class AlterReplicaLogDirsResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class AlterShareGroupOffsetsRequest(TypedDict):
    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsRequestTopic(TypedDict):
    topic_name: str
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequestPartition(TypedDict):
    partition_index: int
    start_offset: int


class AlterShareGroupOffsetsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Sequence[AlterShareGroupOffsetsResponseResult]


class AlterShareGroupOffsetsResponseResult(TypedDict, total=False):
    topic_name: str
    topic_id: bytes
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None


class AlterUserScramCredentialsRequest(TypedDict):
    deletions: Sequence[AlterUserScramCredentialsRequestDeletion]
    upsertions: Sequence[AlterUserScramCredentialsRequestUpsertion]


class AlterUserScramCredentialsRequestDeletion(TypedDict):
    name: str
    mechanism: int


class AlterUserScramCredentialsRequestUpsertion(TypedDict):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsResponse(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[AlterUserScramCredentialsResponseResult]


class AlterUserScramCredentialsResponseResult(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None


class ApiVersionsRequest(TypedDict):
    client_software_name: str
    client_software_version: str


class ApiVersionsResponse(TypedDict, total=False):
    error_code: int
    api_keys: Sequence[ApiVersionsResponseApiKey]
    throttle_time_ms: int
    supported_features: Sequence[ApiVersionsResponseSupportedFeature]
    finalized_features_epoch: int
    finalized_features: Sequence[ApiVersionsResponseFinalizedFeature]
    zk_migration_ready: bool


class ApiVersionsResponseApiKey(TypedDict, total=False):
    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponseSupportedFeature(TypedDict, total=False):
    name: str
    min_version: int
    max_version: int


class ApiVersionsResponseFinalizedFeature(TypedDict, total=False):
    name: str
    max_version_level: int
    min_version_level: int


class BeginQuorumEpochRequest(TypedDict):
    cluster_id: NotRequired[str | None]
    voter_id: NotRequired[int]
    topics: Sequence[BeginQuorumEpochRequestTopic]
    leader_endpoints: Sequence[BeginQuorumEpochRequestLeaderEndpoint]


class BeginQuorumEpochRequestTopic(TypedDict):
    topic_name: str
    partitions: Sequence[BeginQuorumEpochRequestPartition]


class BeginQuorumEpochRequestPartition(TypedDict):
    partition_index: int
    voter_directory_id: bytes
    leader_id: int
    leader_epoch: int


class BeginQuorumEpochRequestLeaderEndpoint(TypedDict):
    name: str
    host: str
    port: int


class BeginQuorumEpochResponse(TypedDict, total=False):
    error_code: int
    topics: Sequence[BeginQuorumEpochResponseTopic]
    node_endpoints: Sequence[BeginQuorumEpochResponseNodeEndpoint]


class BeginQuorumEpochResponseTopic(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[BeginQuorumEpochResponsePartition]


class BeginQuorumEpochResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class BeginQuorumEpochResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int


class BrokerHeartbeatRequest(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: NotRequired[Sequence[bytes]]


class BrokerHeartbeatResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class BrokerRegistrationRequest(TypedDict):
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: Sequence[BrokerRegistrationRequestListener]
    features: Sequence[BrokerRegistrationRequestFeature]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: Sequence[bytes]
    previous_broker_epoch: NotRequired[int]


class BrokerRegistrationRequestListener(TypedDict):
    name: str
    host: str
    port: int
    security_protocol: int


class BrokerRegistrationRequestFeature(TypedDict):
    name: str
    min_supported_version: int
    max_supported_version: int


class BrokerRegistrationResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    broker_epoch: int


class ConsumerGroupDescribeRequest(TypedDict):
    group_ids: Sequence[str]
    include_authorized_operations: bool


class ConsumerGroupDescribeResponse(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[ConsumerGroupDescribeResponseGroup]


class ConsumerGroupDescribeResponseGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ConsumerGroupDescribeResponseMember]
    authorized_operations: int


class ConsumerGroupDescribeResponseMember(TypedDict, total=False):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseTargetAssignment
    member_type: int


class ConsumerGroupDescribeResponseAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartition]


class ConsumerGroupDescribeResponseTopicPartition(TypedDict, total=False):
    topic_id: bytes
    topic_name: str
    partitions: Sequence[int]


class ConsumerGroupDescribeResponseTargetAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartition]


class ConsumerGroupHeartbeatRequest(TypedDict):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: NotRequired[str | None]
    rack_id: NotRequired[str | None]
    rebalance_timeout_ms: NotRequired[int]
    subscribed_topic_names: NotRequired[Sequence[str] | None]
    subscribed_topic_regex: NotRequired[str | None]
    server_assignor: NotRequired[str | None]
    topic_partitions: NotRequired[Sequence[ConsumerGroupHeartbeatRequestTopicPartition] | None]


class ConsumerGroupHeartbeatRequestTopicPartition(TypedDict):
    topic_id: bytes
    partitions: Sequence[int]


class ConsumerGroupHeartbeatResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponseAssignment | None


class ConsumerGroupHeartbeatResponseAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartition]


class ConsumerGroupHeartbeatResponseTopicPartition(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[int]


class CreateAclsRequest(TypedDict):
    creations: Sequence[CreateAclsRequestCreation]


class CreateAclsRequestCreation(TypedDict):
    resource_type: int
    resource_name: str
    resource_pattern_type: NotRequired[int]
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsResponse(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[CreateAclsResponseResult]


class CreateAclsResponseResult(TypedDict, total=False):
    error_code: int
    error_message: str | None


class CreatePartitionsRequest(TypedDict):
    topics: Sequence[CreatePartitionsRequestTopic]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsRequestTopic(TypedDict):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsRequestAssignment] | None


class CreatePartitionsRequestAssignment(TypedDict):
    broker_ids: Sequence[int]


class CreatePartitionsResponse(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[CreatePartitionsResponseResult]


class CreatePartitionsResponseResult(TypedDict, total=False):
    name: str
    error_code: int
    error_message: str | None


class CreateTopicsRequest(TypedDict):
    topics: Sequence[CreateTopicsRequestTopic]
    timeout_ms: NotRequired[int]
    validate_only: bool


class CreateTopicsRequestTopic(TypedDict):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreateTopicsRequestAssignment]
    configs: Sequence[CreateTopicsRequestConfig]


class CreateTopicsRequestAssignment(TypedDict):
    partition_index: int
    broker_ids: Sequence[int]


class CreateTopicsRequestConfig(TypedDict):
    name: str
    value: str | None


class CreateTopicsResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[CreateTopicsResponseTopic]


class CreateTopicsResponseTopic(TypedDict, total=False):
    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: Sequence[CreateTopicsResponseConfig] | None


class CreateTopicsResponseConfig(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class DeleteAclsRequest(TypedDict):
    filters: Sequence[DeleteAclsRequestFilter]


class DeleteAclsRequestFilter(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: NotRequired[int]
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsResponse(TypedDict, total=False):
    throttle_time_ms: int
    filter_results: Sequence[DeleteAclsResponseFilterResult]


class DeleteAclsResponseFilterResult(TypedDict, total=False):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsResponseMatchingAcl]


class DeleteAclsResponseMatchingAcl(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteGroupsRequest(TypedDict):
    groups_names: Sequence[str]


class DeleteGroupsResponse(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[DeleteGroupsResponseResult]


class DeleteGroupsResponseResult(TypedDict, total=False):
    group_id: str
    error_code: int


class DeleteRecordsRequest(TypedDict):
    topics: Sequence[DeleteRecordsRequestTopic]
    timeout_ms: int


class DeleteRecordsRequestTopic(TypedDict):
    name: str
    partitions: Sequence[DeleteRecordsRequestPartition]


class DeleteRecordsRequestPartition(TypedDict):
    partition_index: int
    offset: int


class DeleteRecordsResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DeleteRecordsResponseTopic]


class DeleteRecordsResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsResponsePartition]


class DeleteRecordsResponsePartition(TypedDict, total=False):
    partition_index: int
    low_watermark: int
    error_code: int


class DeleteShareGroupOffsetsRequest(TypedDict):
    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsRequestTopic(TypedDict):
    topic_name: str


class DeleteShareGroupOffsetsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Sequence[DeleteShareGroupOffsetsResponseResult]


class DeleteShareGroupOffsetsResponseResult(TypedDict, total=False):
    topic_name: str
    topic_id: bytes
    error_code: int
    error_message: str | None


class DeleteShareGroupStateRequest(TypedDict):
    group_id: str
    topics: Sequence[DeleteShareGroupStateRequestTopic]


class DeleteShareGroupStateRequestTopic(TypedDict):
    topic_id: bytes
    partitions: Sequence[DeleteShareGroupStateRequestPartition]


class DeleteShareGroupStateRequestPartition(TypedDict):
    partition: int


class DeleteShareGroupStateResponse(TypedDict, total=False):
    results: Sequence[DeleteShareGroupStateResponseResult]


class DeleteShareGroupStateResponseResult(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[DeleteShareGroupStateResponsePartition]


class DeleteShareGroupStateResponsePartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None


class DeleteTopicsRequest(TypedDict):
    topics: Sequence[DeleteTopicsRequestTopic]
    topic_names: NotRequired[Sequence[str]]
    timeout_ms: int


class DeleteTopicsRequestTopic(TypedDict):
    name: NotRequired[str | None]
    topic_id: bytes


class DeleteTopicsResponse(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[DeleteTopicsResponseResult]


class DeleteTopicsResponseResult(TypedDict, total=False):
    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None


class DescribeAclsRequest(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: NotRequired[int]
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DescribeAclsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResponseResource]


class DescribeAclsResponseResource(TypedDict, total=False):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[DescribeAclsResponseAcl]


class DescribeAclsResponseAcl(TypedDict, total=False):
    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeClientQuotasRequest(TypedDict):
    components: Sequence[DescribeClientQuotasRequestComponent]
    strict: bool


class DescribeClientQuotasRequestComponent(TypedDict):
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[DescribeClientQuotasResponseEntry] | None


class DescribeClientQuotasResponseEntry(TypedDict, total=False):
    entity: Sequence[DescribeClientQuotasResponseEntity]
    values: Sequence[DescribeClientQuotasResponseValue]


class DescribeClientQuotasResponseEntity(TypedDict, total=False):
    entity_type: str
    entity_name: str | None


class DescribeClientQuotasResponseValue(TypedDict, total=False):
    key: str
    value: float


class DescribeClusterRequest(TypedDict):
    include_cluster_authorized_operations: bool
    endpoint_type: NotRequired[int]
    include_fenced_brokers: bool


class DescribeClusterResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterResponseBroker]
    cluster_authorized_operations: int


class DescribeClusterResponseBroker(TypedDict, total=False):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class DescribeConfigsRequest(TypedDict):
    resources: Sequence[DescribeConfigsRequestResource]
    include_synonyms: bool
    include_documentation: bool


class DescribeConfigsRequestResource(TypedDict):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsResponse(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[DescribeConfigsResponseResult]


class DescribeConfigsResponseResult(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResponseConfig]


class DescribeConfigsResponseConfig(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsResponseSynonym]
    config_type: int
    documentation: str | None


class DescribeConfigsResponseSynonym(TypedDict, total=False):
    name: str
    value: str | None
    source: int


class DescribeGroupsRequest(TypedDict):
    groups: Sequence[str]
    include_authorized_operations: bool


class DescribeGroupsResponse(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[DescribeGroupsResponseGroup]


class DescribeGroupsResponseGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribeGroupsResponseMember]
    authorized_operations: int


class DescribeGroupsResponseMember(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribeLogDirsRequest(TypedDict):
    topics: Sequence[DescribeLogDirsRequestTopic] | None


class DescribeLogDirsRequestTopic(TypedDict):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    results: Sequence[DescribeLogDirsResponseResult]


class DescribeLogDirsResponseResult(TypedDict, total=False):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsResponseTopic]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool


class DescribeLogDirsResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeLogDirsResponsePartition]


class DescribeLogDirsResponsePartition(TypedDict, total=False):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeProducersRequest(TypedDict):
    topics: Sequence[DescribeProducersRequestTopic]


class DescribeProducersRequestTopic(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DescribeProducersResponseTopic]


class DescribeProducersResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeProducersResponsePartition]


class DescribeProducersResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[DescribeProducersResponseActiveProducer]


class DescribeProducersResponseActiveProducer(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class DescribeQuorumRequest(TypedDict):
    topics: Sequence[DescribeQuorumRequestTopic]


class DescribeQuorumRequestTopic(TypedDict):
    topic_name: str
    partitions: Sequence[DescribeQuorumRequestPartition]


class DescribeQuorumRequestPartition(TypedDict):
    partition_index: int


class DescribeQuorumResponse(TypedDict, total=False):
    error_code: int
    error_message: str | None
    topics: Sequence[DescribeQuorumResponseTopic]
    nodes: Sequence[DescribeQuorumResponseNode]


class DescribeQuorumResponseTopic(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[DescribeQuorumResponsePartition]


class DescribeQuorumResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[DescribeQuorumResponseCurrentVoter]
    observers: Sequence[DescribeQuorumResponseObserver]


class DescribeQuorumResponseCurrentVoter(TypedDict, total=False):
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponseObserver(TypedDict, total=False):
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponseNode(TypedDict, total=False):
    node_id: int
    listeners: Sequence[DescribeQuorumResponseListener]


class DescribeQuorumResponseListener(TypedDict, total=False):
    name: str
    host: str
    port: int


class DescribeShareGroupOffsetsRequest(TypedDict):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsRequestGroup(TypedDict):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None


class DescribeShareGroupOffsetsRequestTopic(TypedDict):
    topic_name: str
    partitions: Sequence[int]


class DescribeShareGroupOffsetsResponse(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup]


class DescribeShareGroupOffsetsResponseGroup(TypedDict, total=False):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic]
    error_code: int
    error_message: str | None


class DescribeShareGroupOffsetsResponseTopic(TypedDict, total=False):
    topic_name: str
    topic_id: bytes
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponsePartition(TypedDict, total=False):
    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int
    error_code: int
    error_message: str | None


class DescribeTopicPartitionsRequest(TypedDict):
    topics: Sequence[DescribeTopicPartitionsRequestTopic]
    response_partition_limit: NotRequired[int]
    cursor: NotRequired[DescribeTopicPartitionsRequestCursor | None]


class DescribeTopicPartitionsRequestTopic(TypedDict):
    name: str


class DescribeTopicPartitionsRequestCursor(TypedDict):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponseNextCursor | None


class DescribeTopicPartitionsResponseTopic(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: Sequence[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int


class DescribeTopicPartitionsResponsePartition(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    offline_replicas: Sequence[int]


class DescribeTopicPartitionsResponseNextCursor(TypedDict, total=False):
    topic_name: str
    partition_index: int


class DescribeTransactionsRequest(TypedDict):
    transactional_ids: Sequence[str]


class DescribeTransactionsResponse(TypedDict, total=False):
    throttle_time_ms: int
    transaction_states: Sequence[DescribeTransactionsResponseTransactionState]


class DescribeTransactionsResponseTransactionState(TypedDict, total=False):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[DescribeTransactionsResponseTopic]


class DescribeTransactionsResponseTopic(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]


class DescribeUserScramCredentialsRequest(TypedDict):
    users: Sequence[DescribeUserScramCredentialsRequestUser] | None


class DescribeUserScramCredentialsRequestUser(TypedDict):
    name: str


class DescribeUserScramCredentialsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResponseResult]


class DescribeUserScramCredentialsResponseResult(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[DescribeUserScramCredentialsResponseCredentialInfo]


class DescribeUserScramCredentialsResponseCredentialInfo(TypedDict, total=False):
    mechanism: int
    iterations: int


class ElectLeadersRequest(TypedDict):
    election_type: int
    topic_partitions: Sequence[ElectLeadersRequestTopicPartition] | None
    timeout_ms: NotRequired[int]


class ElectLeadersRequestTopicPartition(TypedDict):
    topic: str
    partitions: Sequence[int]


class ElectLeadersResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    replica_election_results: Sequence[ElectLeadersResponseReplicaElectionResult]


class ElectLeadersResponseReplicaElectionResult(TypedDict, total=False):
    topic: str
    partition_result: Sequence[ElectLeadersResponsePartitionResult]


class ElectLeadersResponsePartitionResult(TypedDict, total=False):
    partition_id: int
    error_code: int
    error_message: str | None


class EndQuorumEpochRequest(TypedDict):
    cluster_id: NotRequired[str | None]
    topics: Sequence[EndQuorumEpochRequestTopic]
    leader_endpoints: Sequence[EndQuorumEpochRequestLeaderEndpoint]


class EndQuorumEpochRequestTopic(TypedDict):
    topic_name: str
    partitions: Sequence[EndQuorumEpochRequestPartition]


class EndQuorumEpochRequestPartition(TypedDict):
    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_candidates: Sequence[EndQuorumEpochRequestPreferredCandidate]


class EndQuorumEpochRequestPreferredCandidate(TypedDict):
    candidate_id: int
    candidate_directory_id: bytes


class EndQuorumEpochRequestLeaderEndpoint(TypedDict):
    name: str
    host: str
    port: int


class EndQuorumEpochResponse(TypedDict, total=False):
    error_code: int
    topics: Sequence[EndQuorumEpochResponseTopic]
    node_endpoints: Sequence[EndQuorumEpochResponseNodeEndpoint]


class EndQuorumEpochResponseTopic(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[EndQuorumEpochResponsePartition]


class EndQuorumEpochResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class EndQuorumEpochResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int


class EndTxnRequest(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


class EnvelopeRequest(TypedDict):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(TypedDict, total=False):
    response_data: bytes | None
    error_code: int


class FetchRequest(TypedDict):
    cluster_id: NotRequired[str | None]
    replica_id: NotRequired[int]
    replica_state: NotRequired[FetchRequestReplicaState | None]
    max_wait_ms: int
    min_bytes: int
    max_bytes: NotRequired[int]
    isolation_level: int
    session_id: int
    session_epoch: NotRequired[int]
    topics: Sequence[FetchRequestTopic]
    forgotten_topics_data: Sequence[FetchRequestForgottenTopicsData]
    rack_id: str


class FetchRequestReplicaState(TypedDict):
    replica_id: NotRequired[int]
    replica_epoch: NotRequired[int]


class FetchRequestTopic(TypedDict):
    topic: NotRequired[str]
    topic_id: bytes
    partitions: Sequence[FetchRequestPartition]


class FetchRequestPartition(TypedDict):
    partition: int
    current_leader_epoch: NotRequired[int]
    fetch_offset: int
    last_fetched_epoch: NotRequired[int]
    log_start_offset: NotRequired[int]
    partition_max_bytes: int
    replica_directory_id: NotRequired[bytes]
    high_watermark: NotRequired[int]


class FetchRequestForgottenTopicsData(TypedDict):
    topic: NotRequired[str]
    topic_id: bytes
    partitions: Sequence[int]


class FetchResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: Sequence[FetchResponseResult]
    node_endpoints: Sequence[FetchResponseNodeEndpoint]


class FetchResponseResult(TypedDict, total=False):
    topic: str
    topic_id: bytes
    partitions: Sequence[FetchResponsePartition]


class FetchResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: FetchResponseDivergingEpoch | None
    current_leader: FetchResponseCurrentLeader | None
    snapshot_id: FetchResponseSnapshotId | None
    aborted_transactions: Sequence[FetchResponseAbortedTransaction] | None
    preferred_read_replica: int
    records: Part | None


class FetchResponseDivergingEpoch(TypedDict, total=False):
    epoch: int
    end_offset: int


class FetchResponseCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class FetchResponseSnapshotId(TypedDict, total=False):
    end_offset: int
    epoch: int


class FetchResponseAbortedTransaction(TypedDict, total=False):
    producer_id: int
    first_offset: int


class FetchResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class FetchMetadataRequest(TypedDict):
    cluster_id: NotRequired[str | None]
    epoch: int
    replica_id: int
    replica_directory_id: bytes
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int


class FetchMetadataResponse(TypedDict, total=False):
    error_code: int
    epoch: int
    leader_id: int
    high_watermark: int
    entries: Sequence[FetchMetadataResponseEntry]
    diverging_epoch: int
    diverging_end_offset: int
    snapshot_epoch: int
    snapshot_end_offset: int


class FetchMetadataResponseEntry(TypedDict, total=False):
    epoch: int
    kind: int
    value: bytes


class FetchMetadataSnapshotRequest(TypedDict):
    cluster_id: NotRequired[str | None]
    epoch: int
    replica_id: int
    replica_directory_id: bytes
    snapshot_epoch: int
    snapshot_end_offset: int
    position: int


class FetchMetadataSnapshotResponse(TypedDict, total=False):
    error_code: int
    epoch: int
    leader_id: int
    size: int
    chunk: bytes | None
    voters: Sequence[FetchMetadataSnapshotResponseVoter]


class FetchMetadataSnapshotResponseVoter(TypedDict, total=False):
    voter_id: int
    voter_directory_id: bytes


class FindCoordinatorRequest(TypedDict):
    key: NotRequired[str]
    key_type: int
    coordinator_keys: Sequence[str]


class FindCoordinatorResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: Sequence[FindCoordinatorResponseCoordinator]


class FindCoordinatorResponseCoordinator(TypedDict, total=False):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None


class HeartbeatRequest(TypedDict):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: NotRequired[str | None]


class HeartbeatResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int


class IncrementalAlterConfigsRequest(TypedDict):
    resources: Sequence[IncrementalAlterConfigsRequestResource]
    validate_only: bool


class IncrementalAlterConfigsRequestResource(TypedDict):
    resource_type: int
    resource_name: str
    configs: Sequence[IncrementalAlterConfigsRequestConfig]


class IncrementalAlterConfigsRequestConfig(TypedDict):
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsResponse(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[IncrementalAlterConfigsResponseResult]


class IncrementalAlterConfigsResponseResult(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class InitProducerIdRequest(TypedDict):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: NotRequired[int]
    producer_epoch: NotRequired[int]
    enable2_pc: NotRequired[bool]
    keep_prepared_txn: NotRequired[bool]


class InitProducerIdResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int


class InitializeShareGroupStateRequest(TypedDict):
    group_id: str
    topics: Sequence[InitializeShareGroupStateRequestTopic]


class InitializeShareGroupStateRequestTopic(TypedDict):
    topic_id: bytes
    partitions: Sequence[InitializeShareGroupStateRequestPartition]


class InitializeShareGroupStateRequestPartition(TypedDict):
    partition: int
    state_epoch: int
    start_offset: int


class InitializeShareGroupStateResponse(TypedDict, total=False):
    results: Sequence[InitializeShareGroupStateResponseResult]


class InitializeShareGroupStateResponseResult(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[InitializeShareGroupStateResponsePartition]


class InitializeShareGroupStateResponsePartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None


class JoinGroupRequest(TypedDict):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: NotRequired[int]
    member_id: str
    group_instance_id: NotRequired[str | None]
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    reason: NotRequired[str | None]


class JoinGroupRequestProtocol(TypedDict):
    name: str
    metadata: bytes


class JoinGroupResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Sequence[JoinGroupResponseMember]


class JoinGroupResponseMember(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class LeaveGroupRequest(TypedDict):
    group_id: str
    member_id: NotRequired[str]
    members: Sequence[LeaveGroupRequestMember]


class LeaveGroupRequestMember(TypedDict):
    member_id: str
    group_instance_id: NotRequired[str | None]
    reason: NotRequired[str | None]


class LeaveGroupResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    members: Sequence[LeaveGroupResponseMember]


class LeaveGroupResponseMember(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    error_code: int


class ListConfigResourcesRequest(TypedDict):
    resource_types: Sequence[int]


class ListConfigResourcesResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    config_resources: Sequence[ListConfigResourcesResponseConfigResource]


class ListConfigResourcesResponseConfigResource(TypedDict, total=False):
    resource_name: str
    resource_type: int


class ListGroupsRequest(TypedDict):
    states_filter: Sequence[str]
    types_filter: Sequence[str]


class ListGroupsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    groups: Sequence[ListGroupsResponseGroup]


class ListGroupsResponseGroup(TypedDict, total=False):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListOffsetsRequest(TypedDict):
    replica_id: int
    isolation_level: int
    topics: Sequence[ListOffsetsRequestTopic]
    timeout_ms: int


class ListOffsetsRequestTopic(TypedDict):
    name: str
    partitions: Sequence[ListOffsetsRequestPartition]


class ListOffsetsRequestPartition(TypedDict):
    partition_index: int
    current_leader_epoch: NotRequired[int]
    timestamp: int


class ListOffsetsResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[ListOffsetsResponseTopic]


class ListOffsetsResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsResponsePartition]


class ListOffsetsResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


class ListPartitionReassignmentsRequest(TypedDict):
    timeout_ms: NotRequired[int]
    topics: NotRequired[Sequence[ListPartitionReassignmentsRequestTopic] | None]


class ListPartitionReassignmentsRequestTopic(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class ListPartitionReassignmentsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[ListPartitionReassignmentsResponseTopic]


class ListPartitionReassignmentsResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[ListPartitionReassignmentsResponsePartition]


class ListPartitionReassignmentsResponsePartition(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


class ListTransactionsRequest(TypedDict):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: NotRequired[int]
    transactional_id_pattern: NotRequired[str | None]


class ListTransactionsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListTransactionsResponseTransactionState]


class ListTransactionsResponseTransactionState(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    transaction_state: str


class MetadataRequest(TypedDict):
    topics: Sequence[MetadataRequestTopic] | None
    allow_auto_topic_creation: NotRequired[bool]
    include_cluster_authorized_operations: NotRequired[bool]
    include_topic_authorized_operations: bool


class MetadataRequestTopic(TypedDict):
    topic_id: bytes
    name: str | None


class MetadataResponse(TypedDict, total=False):
    throttle_time_ms: int
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int


class MetadataResponseBroker(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataResponseTopic(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: Sequence[MetadataResponsePartition]
    topic_authorized_operations: int


class MetadataResponsePartition(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]


class OffsetCommitRequest(TypedDict):
    group_id: str
    generation_id_or_member_epoch: NotRequired[int]
    member_id: str
    group_instance_id: NotRequired[str | None]
    retention_time_ms: NotRequired[int]
    topics: Sequence[OffsetCommitRequestTopic]


class OffsetCommitRequestTopic(TypedDict):
    name: NotRequired[str]
    topic_id: bytes
    partitions: Sequence[OffsetCommitRequestPartition]


class OffsetCommitRequestPartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    committed_metadata: str | None


class OffsetCommitResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetCommitResponseTopic]


class OffsetCommitResponseTopic(TypedDict, total=False):
    name: str
    topic_id: bytes
    partitions: Sequence[OffsetCommitResponsePartition]


class OffsetCommitResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class OffsetDeleteRequest(TypedDict):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]


class OffsetDeleteRequestTopic(TypedDict):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]


class OffsetDeleteRequestPartition(TypedDict):
    partition_index: int


class OffsetDeleteResponse(TypedDict, total=False):
    error_code: int
    throttle_time_ms: int
    topics: Sequence[OffsetDeleteResponseTopic]


class OffsetDeleteResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


class OffsetDeleteResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class OffsetFetchRequest(TypedDict):
    group_id: NotRequired[str]
    topics: NotRequired[Sequence[OffsetFetchRequestTopic] | None]
    groups: Sequence[OffsetFetchRequestGroup]
    require_stable: bool


class OffsetFetchRequestTopic(TypedDict):
    name: NotRequired[str]
    partition_indexes: NotRequired[Sequence[int]]


class OffsetFetchRequestGroup(TypedDict):
    group_id: str
    member_id: NotRequired[str | None]
    member_epoch: NotRequired[int]
    topics: Sequence[OffsetFetchRequestGroupTopic] | None


class OffsetFetchRequestGroupTopic(TypedDict):
    name: NotRequired[str]
    topic_id: bytes
    partition_indexes: Sequence[int]


class OffsetFetchResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetFetchResponseTopic]
    error_code: int
    groups: Sequence[OffsetFetchResponseGroup]


class OffsetFetchResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetFetchResponsePartition]


class OffsetFetchResponsePartition(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchResponseGroup(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetFetchResponseGroupTopic]
    error_code: int


class OffsetFetchResponseGroupTopic(TypedDict, total=False):
    name: str
    topic_id: bytes
    partitions: Sequence[OffsetFetchResponseGroupTopicPartition]


class OffsetFetchResponseGroupTopicPartition(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetForLeaderEpochRequest(TypedDict):
    replica_id: NotRequired[int]
    topics: Sequence[OffsetForLeaderEpochRequestTopic]


class OffsetForLeaderEpochRequestTopic(TypedDict):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochRequestPartition]


class OffsetForLeaderEpochRequestPartition(TypedDict):
    partition: int
    current_leader_epoch: NotRequired[int]
    leader_epoch: int


class OffsetForLeaderEpochResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetForLeaderEpochResponseTopic]


class OffsetForLeaderEpochResponseTopic(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochResponsePartition]


class OffsetForLeaderEpochResponsePartition(TypedDict, total=False):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int


class ProduceRequest(TypedDict):
    transactional_id: NotRequired[str | None]
    acks: int
    timeout_ms: int
    topic_data: Sequence[ProduceRequestTopicData]


class ProduceRequestTopicData(TypedDict):
    name: NotRequired[str]
    topic_id: bytes
    partition_data: Sequence[ProduceRequestPartitionData]


class ProduceRequestPartitionData(TypedDict):
    index: int
    records: memoryview | None


class ProduceResponse(TypedDict, total=False):
    responses: Sequence[ProduceResponseResult]
    throttle_time_ms: int
    node_endpoints: Sequence[ProduceResponseNodeEndpoint]


class ProduceResponseResult(TypedDict, total=False):
    name: str
    topic_id: bytes
    partition_responses: Sequence[ProduceResponsePartition]


class ProduceResponsePartition(TypedDict, total=False):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: Sequence[ProduceResponseRecordError]
    error_message: str | None
    current_leader: ProduceResponseCurrentLeader | None


class ProduceResponseRecordError(TypedDict, total=False):
    batch_index: int
    batch_index_error_message: str | None


class ProduceResponseCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class ProduceResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class ReadShareGroupStateRequest(TypedDict):
    group_id: str
    topics: Sequence[ReadShareGroupStateRequestTopic]


class ReadShareGroupStateRequestTopic(TypedDict):
    topic_id: bytes
    partitions: Sequence[ReadShareGroupStateRequestPartition]


class ReadShareGroupStateRequestPartition(TypedDict):
    partition: int
    leader_epoch: int


class ReadShareGroupStateResponse(TypedDict, total=False):
    results: Sequence[ReadShareGroupStateResponseResult]


class ReadShareGroupStateResponseResult(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[ReadShareGroupStateResponsePartition]


class ReadShareGroupStateResponsePartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    start_offset: int
    state_batches: Sequence[ReadShareGroupStateResponseStateBatch]


class ReadShareGroupStateResponseStateBatch(TypedDict, total=False):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ReadShareGroupStateSummaryRequest(TypedDict):
    group_id: str
    topics: Sequence[ReadShareGroupStateSummaryRequestTopic]


class ReadShareGroupStateSummaryRequestTopic(TypedDict):
    topic_id: bytes
    partitions: Sequence[ReadShareGroupStateSummaryRequestPartition]


class ReadShareGroupStateSummaryRequestPartition(TypedDict):
    partition: int
    leader_epoch: int


class ReadShareGroupStateSummaryResponse(TypedDict, total=False):
    results: Sequence[ReadShareGroupStateSummaryResponseResult]


class ReadShareGroupStateSummaryResponseResult(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[ReadShareGroupStateSummaryResponsePartition]


class ReadShareGroupStateSummaryResponsePartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class SaslAuthenticateRequest(TypedDict):
    auth_bytes: bytes


class SaslAuthenticateResponse(TypedDict, total=False):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int


class SaslHandshakeRequest(TypedDict):
    mechanism: str


class SaslHandshakeResponse(TypedDict, total=False):
    error_code: int
    mechanisms: Sequence[str]


class ShareAcknowledgeRequest(TypedDict):
    group_id: NotRequired[str | None]
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: Sequence[ShareAcknowledgeRequestTopic]


class ShareAcknowledgeRequestTopic(TypedDict):
    topic_id: bytes
    partitions: Sequence[ShareAcknowledgeRequestPartition]


class ShareAcknowledgeRequestPartition(TypedDict):
    partition_index: int
    acknowledgement_batches: Sequence[ShareAcknowledgeRequestAcknowledgementBatch]


class ShareAcknowledgeRequestAcknowledgementBatch(TypedDict):
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


class ShareAcknowledgeResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: Sequence[ShareAcknowledgeResponseResult]
    node_endpoints: Sequence[ShareAcknowledgeResponseNodeEndpoint]


class ShareAcknowledgeResponseResult(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[ShareAcknowledgeResponsePartition]


class ShareAcknowledgeResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: ShareAcknowledgeResponseCurrentLeader


class ShareAcknowledgeResponseCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class ShareAcknowledgeResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class ShareFetchRequest(TypedDict):
    group_id: NotRequired[str | None]
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: NotRequired[int]
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: Sequence[ShareFetchRequestTopic]
    forgotten_topics_data: Sequence[ShareFetchRequestForgottenTopicsData]


class ShareFetchRequestTopic(TypedDict):
    topic_id: bytes
    partitions: Sequence[ShareFetchRequestPartition]


class ShareFetchRequestPartition(TypedDict):
    partition_index: int
    partition_max_bytes: NotRequired[int]
    acknowledgement_batches: Sequence[ShareFetchRequestAcknowledgementBatch]


class ShareFetchRequestAcknowledgementBatch(TypedDict):
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


class ShareFetchRequestForgottenTopicsData(TypedDict):
    topic_id: bytes
    partitions: Sequence[int]


class ShareFetchResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: Sequence[ShareFetchResponseResult]
    node_endpoints: Sequence[ShareFetchResponseNodeEndpoint]


class ShareFetchResponseResult(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[ShareFetchResponsePartition]


class ShareFetchResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: ShareFetchResponseCurrentLeader
    records: Part
    acquired_records: Sequence[ShareFetchResponseAcquiredRecord]


class ShareFetchResponseCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class ShareFetchResponseAcquiredRecord(TypedDict, total=False):
    first_offset: int
    last_offset: int
    delivery_count: int


class ShareFetchResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class ShareGroupDescribeRequest(TypedDict):
    group_ids: Sequence[str]
    include_authorized_operations: bool


class ShareGroupDescribeResponse(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[ShareGroupDescribeResponseGroup]


class ShareGroupDescribeResponseGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ShareGroupDescribeResponseMember]
    authorized_operations: int


class ShareGroupDescribeResponseMember(TypedDict, total=False):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    assignment: ShareGroupDescribeResponseAssignment


class ShareGroupDescribeResponseAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ShareGroupDescribeResponseTopicPartition]


class ShareGroupDescribeResponseTopicPartition(TypedDict, total=False):
    topic_id: bytes
    topic_name: str
    partitions: Sequence[int]


class ShareGroupHeartbeatRequest(TypedDict):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: NotRequired[str | None]
    subscribed_topic_names: NotRequired[Sequence[str] | None]


class ShareGroupHeartbeatResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupHeartbeatResponseAssignment | None


class ShareGroupHeartbeatResponseAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ShareGroupHeartbeatResponseTopicPartition]


class ShareGroupHeartbeatResponseTopicPartition(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[int]


class SyncGroupRequest(TypedDict):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: NotRequired[str | None]
    protocol_type: NotRequired[str | None]
    protocol_name: NotRequired[str | None]
    assignments: Sequence[SyncGroupRequestAssignment]


class SyncGroupRequestAssignment(TypedDict):
    member_id: str
    assignment: bytes


class SyncGroupResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class TxnOffsetCommitRequest(TypedDict):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: NotRequired[int]
    member_id: str
    group_instance_id: NotRequired[str | None]
    topics: Sequence[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitRequestTopic(TypedDict):
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequestPartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    committed_metadata: str | None


class TxnOffsetCommitResponse(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class VoteRequest(TypedDict):
    cluster_id: NotRequired[str | None]
    voter_id: NotRequired[int]
    topics: Sequence[VoteRequestTopic]


class VoteRequestTopic(TypedDict):
    topic_name: str
    partitions: Sequence[VoteRequestPartition]


class VoteRequestPartition(TypedDict):
    partition_index: int
    replica_epoch: int
    replica_id: int
    replica_directory_id: bytes
    voter_directory_id: bytes
    last_offset_epoch: int
    last_offset: int
    pre_vote: bool


class VoteResponse(TypedDict, total=False):
    error_code: int
    topics: Sequence[VoteResponseTopic]
    node_endpoints: Sequence[VoteResponseNodeEndpoint]


class VoteResponseTopic(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[VoteResponsePartition]


class VoteResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool


class VoteResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int


class WriteShareGroupStateRequest(TypedDict):
    group_id: str
    topics: Sequence[WriteShareGroupStateRequestTopic]


class WriteShareGroupStateRequestTopic(TypedDict):
    topic_id: bytes
    partitions: Sequence[WriteShareGroupStateRequestPartition]


class WriteShareGroupStateRequestPartition(TypedDict):
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: NotRequired[int]
    state_batches: Sequence[WriteShareGroupStateRequestStateBatch]


class WriteShareGroupStateRequestStateBatch(TypedDict):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class WriteShareGroupStateResponse(TypedDict, total=False):
    results: Sequence[WriteShareGroupStateResponseResult]


class WriteShareGroupStateResponseResult(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[WriteShareGroupStateResponsePartition]


class WriteShareGroupStateResponsePartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None


class WriteTxnMarkersRequest(TypedDict):
    markers: Sequence[WriteTxnMarkersRequestMarker]


class WriteTxnMarkersRequestMarker(TypedDict):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WriteTxnMarkersRequestTopic]
    coordinator_epoch: int
    transaction_version: int


class WriteTxnMarkersRequestTopic(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class WriteTxnMarkersResponse(TypedDict, total=False):
    markers: Sequence[WriteTxnMarkersResponseMarker]


class WriteTxnMarkersResponseMarker(TypedDict, total=False):
    producer_id: int
    topics: Sequence[WriteTxnMarkersResponseTopic]


class WriteTxnMarkersResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[WriteTxnMarkersResponsePartition]


class WriteTxnMarkersResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
