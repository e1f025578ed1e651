"""Every error code of the Kafka protocol as an exception, named and numbered as in Kafka.

Source: `org.apache.kafka.common.protocol.Errors`. Code that refuses a request raises one of these;
the server answers with `code`, which tells a client library whether to retry.
"""

from __future__ import annotations

from typing import ClassVar, Final

NONE: Final = 0  # no error


class BrokerError(Exception):
    """An error that is sent to the client as a Kafka error code.

    `code` is the number on the wire; `retriable` tells whether the same request may succeed later.
    The text is for log lines and for responses that carry a message; without an argument it is the
    docstring of the class.
    """

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: int, retriable: bool = False) -> None:
        cls.code = code
        cls.retriable = retriable

    def __str__(self) -> str:
        return super().__str__() or (type(self).__doc__ or type(self).__name__)


class UnknownServerError(BrokerError, code=-1):
    """The server experienced an unexpected error when processing the request."""


class OffsetOutOfRange(BrokerError, code=1):
    """The requested offset is not within the range of offsets maintained by the server."""


class CorruptMessage(BrokerError, code=2, retriable=True):
    """This message has failed its CRC checksum, exceeds the valid size, has a null key for a
    compacted topic, or is otherwise corrupt.
    """


class UnknownTopicOrPartition(BrokerError, code=3, retriable=True):
    """This server does not host this topic-partition."""


class InvalidFetchSize(BrokerError, code=4):
    """The requested fetch size is invalid."""


class LeaderNotAvailable(BrokerError, code=5, retriable=True):
    """There is no leader for this partition: a leadership election is going on."""


class NotLeaderOrFollower(BrokerError, code=6, retriable=True):
    """This broker no longer leads the partition, or is not a replica of it; refresh metadata."""


class RequestTimedOut(BrokerError, code=7, retriable=True):
    """The request timed out."""


class BrokerNotAvailable(BrokerError, code=8):
    """The broker is not available."""


class ReplicaNotAvailable(BrokerError, code=9, retriable=True):
    """The replica is not available for the requested topic-partition."""


class MessageTooLarge(BrokerError, code=10):
    """The request included a message larger than the max message size the server will accept."""


class StaleControllerEpoch(BrokerError, code=11):
    """The controller moved to another broker."""


class OffsetMetadataTooLarge(BrokerError, code=12):
    """The metadata field of the offset request was too large."""


class NetworkException(BrokerError, code=13, retriable=True):
    """The server disconnected before a response was received."""


class CoordinatorLoadInProgress(BrokerError, code=14, retriable=True):
    """The coordinator is loading and hence can't process requests."""


class CoordinatorNotAvailable(BrokerError, code=15, retriable=True):
    """The coordinator is not available."""


class NotCoordinator(BrokerError, code=16, retriable=True):
    """This is not the correct coordinator."""


class InvalidTopic(BrokerError, code=17):
    """The request attempted to perform an operation on an invalid topic."""


class RecordListTooLarge(BrokerError, code=18):
    """The request included message batch larger than the configured segment size on the server."""


class NotEnoughReplicas(BrokerError, code=19, retriable=True):
    """Messages are rejected since there are fewer in-sync replicas than required."""


class NotEnoughReplicasAfterAppend(BrokerError, code=20, retriable=True):
    """Messages are written to the log, but to fewer in-sync replicas than required."""


class InvalidRequiredAcks(BrokerError, code=21):
    """Produce request specified an invalid value for required acks."""


class IllegalGeneration(BrokerError, code=22):
    """Specified group generation id is not valid."""


class InconsistentGroupProtocol(BrokerError, code=23):
    """The group member's supported protocols are incompatible with those of existing members or
    first group member tried to join with empty protocol type or empty protocol list.
    """


class InvalidGroupId(BrokerError, code=24):
    """The group id is invalid."""


class UnknownMemberId(BrokerError, code=25):
    """The coordinator is not aware of this member."""


class InvalidSessionTimeout(BrokerError, code=26):
    """The session timeout is not within the range allowed by the broker (as configured by
    group.min.session.timeout.ms and group.max.session.timeout.ms).
    """


class RebalanceInProgress(BrokerError, code=27):
    """The group is rebalancing, so a rejoin is needed."""


class InvalidCommitOffsetSize(BrokerError, code=28):
    """The committing offset data size is not valid."""


class TopicAuthorizationFailed(BrokerError, code=29):
    """Topic authorization failed."""


class GroupAuthorizationFailed(BrokerError, code=30):
    """Group authorization failed."""


class ClusterAuthorizationFailed(BrokerError, code=31):
    """Cluster authorization failed."""


class InvalidTimestamp(BrokerError, code=32):
    """The timestamp of the message is out of acceptable range."""


class UnsupportedSaslMechanism(BrokerError, code=33):
    """The broker does not support the requested SASL mechanism."""


class IllegalSaslState(BrokerError, code=34):
    """Request is not valid given the current SASL state."""


class UnsupportedVersion(BrokerError, code=35):
    """The version of API is not supported."""


class TopicAlreadyExists(BrokerError, code=36):
    """Topic with this name already exists."""


class InvalidPartitions(BrokerError, code=37):
    """Number of partitions is below 1."""


class InvalidReplicationFactor(BrokerError, code=38):
    """Replication factor is below 1 or larger than the number of available brokers."""


class InvalidReplicaAssignment(BrokerError, code=39):
    """Replica assignment is invalid."""


class InvalidConfig(BrokerError, code=40):
    """Configuration is invalid."""


class NotController(BrokerError, code=41, retriable=True):
    """This is not the correct controller for this cluster."""


class InvalidRequest(BrokerError, code=42):
    """This most likely occurs because of a request being malformed by the client library or the
    message was sent to an incompatible broker.
    """


class UnsupportedForMessageFormat(BrokerError, code=43):
    """The message format version on the broker does not support the request."""


class PolicyViolation(BrokerError, code=44):
    """Request parameters do not satisfy the configured policy."""


class OutOfOrderSequenceNumber(BrokerError, code=45):
    """The broker received an out of order sequence number."""


class DuplicateSequenceNumber(BrokerError, code=46):
    """The broker received a duplicate sequence number."""


class InvalidProducerEpoch(BrokerError, code=47):
    """Producer attempted to produce with an old epoch."""


class InvalidTxnState(BrokerError, code=48):
    """The producer attempted a transactional operation in an invalid state."""


class InvalidProducerIdMapping(BrokerError, code=49):
    """The producer attempted to use a producer id which is not currently assigned to its
    transactional id.
    """


class InvalidTransactionTimeout(BrokerError, code=50):
    """The transaction timeout is larger than the maximum value allowed by the broker (as configured
    by transaction.max.timeout.ms).
    """


class ConcurrentTransactions(BrokerError, code=51, retriable=True):
    """The producer attempted to update a transaction while another concurrent operation on the same
    transaction was ongoing.
    """


class TransactionCoordinatorFenced(BrokerError, code=52):
    """Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current
    coordinator for a given producer.
    """


class TransactionalIdAuthorizationFailed(BrokerError, code=53):
    """Transactional Id authorization failed."""


class SecurityDisabled(BrokerError, code=54):
    """Security features are disabled."""


class OperationNotAttempted(BrokerError, code=55):
    """The broker did not attempt to execute this operation."""


class KafkaStorageError(BrokerError, OSError, code=56, retriable=True):
    """Disk error when trying to access log file on the disk."""


class LogDirNotFound(BrokerError, code=57):
    """The user-specified log directory is not found in the broker config."""


class SaslAuthenticationFailed(BrokerError, code=58):
    """SASL Authentication failed."""


class UnknownProducerId(BrokerError, code=59):
    """This exception is raised by the broker if it could not locate the producer metadata
    associated with the producerId in question.
    """


class ReassignmentInProgress(BrokerError, code=60):
    """A partition reassignment is in progress."""


class DelegationTokenAuthDisabled(BrokerError, code=61):
    """Delegation Token feature is not enabled."""


class DelegationTokenNotFound(BrokerError, code=62):
    """Delegation Token is not found on server."""


class DelegationTokenOwnerMismatch(BrokerError, code=63):
    """Specified Principal is not valid Owner/Renewer."""


class DelegationTokenRequestNotAllowed(BrokerError, code=64):
    """Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation
    token authenticated channels.
    """


class DelegationTokenAuthorizationFailed(BrokerError, code=65):
    """Delegation Token authorization failed."""


class DelegationTokenExpired(BrokerError, code=66):
    """Delegation Token is expired."""


class InvalidPrincipalType(BrokerError, code=67):
    """Supplied principalType is not supported."""


class NonEmptyGroup(BrokerError, code=68):
    """The group is not empty."""


class GroupIdNotFound(BrokerError, code=69):
    """The group id does not exist."""


class FetchSessionIdNotFound(BrokerError, code=70, retriable=True):
    """The fetch session ID was not found."""


class InvalidFetchSessionEpoch(BrokerError, code=71, retriable=True):
    """The fetch session epoch is invalid."""


class ListenerNotFound(BrokerError, code=72, retriable=True):
    """There is no listener on the leader broker that matches the listener on which metadata request
    was processed.
    """


class TopicDeletionDisabled(BrokerError, code=73):
    """Topic deletion is disabled."""


class FencedLeaderEpoch(BrokerError, code=74, retriable=True):
    """The leader epoch in the request is older than the epoch on the broker."""


class UnknownLeaderEpoch(BrokerError, code=75, retriable=True):
    """The leader epoch in the request is newer than the epoch on the broker."""


class UnsupportedCompressionType(BrokerError, code=76):
    """The requesting client does not support the compression type of given partition."""


class StaleBrokerEpoch(BrokerError, code=77):
    """Broker epoch has changed."""


class OffsetNotAvailable(BrokerError, code=78, retriable=True):
    """The leader high watermark has not caught up from a recent leader election so the offsets
    cannot be guaranteed to be monotonically increasing.
    """


class MemberIdRequired(BrokerError, code=79):
    """The group member needs a valid member id before it enters a consumer group."""


class PreferredLeaderNotAvailable(BrokerError, code=80, retriable=True):
    """The preferred leader was not available."""


class GroupMaxSizeReached(BrokerError, code=81):
    """The group has reached its maximum size."""


class FencedInstanceId(BrokerError, code=82):
    """The broker rejected this static consumer since another consumer with the same
    group.instance.id has registered with a different member.id.
    """


class EligibleLeadersNotAvailable(BrokerError, code=83, retriable=True):
    """Eligible topic partition leaders are not available."""


class ElectionNotNeeded(BrokerError, code=84, retriable=True):
    """Leader election not needed for topic partition."""


class NoReassignmentInProgress(BrokerError, code=85):
    """No partition reassignment is in progress."""


class GroupSubscribedToTopic(BrokerError, code=86):
    """Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to
    it.
    """


class InvalidRecord(BrokerError, code=87):
    """This record has failed the validation on broker and hence will be rejected."""

    #: The invalid records of the batch and the reasons (KIP-467); the others may be sent again.
    record_errors: tuple[tuple[int, str], ...] = ()


class UnstableOffsetCommit(BrokerError, code=88, retriable=True):
    """There are unstable offsets that need to be cleared."""


class ThrottlingQuotaExceeded(BrokerError, code=89, retriable=True):
    """The throttling quota has been exceeded."""


class ProducerFenced(BrokerError, code=90):
    """There is a newer producer with the same transactionalId which fences the current one."""


class ResourceNotFound(BrokerError, code=91):
    """A request illegally referred to a resource that does not exist."""


class DuplicateResource(BrokerError, code=92):
    """A request illegally referred to the same resource twice."""


class UnacceptableCredential(BrokerError, code=93):
    """Requested credential would not meet criteria for acceptability."""


class InconsistentVoterSet(BrokerError, code=94):
    """Indicates that the either the sender or recipient of a voter-only request is not one of the
    expected voters.
    """


class InvalidUpdateVersion(BrokerError, code=95):
    """The given update version was invalid."""


class FeatureUpdateFailed(BrokerError, code=96):
    """Unable to update finalized features due to an unexpected server error."""


class PrincipalDeserializationFailure(BrokerError, code=97):
    """Request principal deserialization failed during forwarding."""


class SnapshotNotFound(BrokerError, code=98):
    """Requested snapshot was not found."""


class PositionOutOfRange(BrokerError, code=99):
    """Requested position is not greater than or equal to zero, and less than the size of the
    snapshot.
    """


class UnknownTopicId(BrokerError, code=100, retriable=True):
    """This server does not host this topic ID."""


class DuplicateBrokerRegistration(BrokerError, code=101):
    """This broker ID is already in use."""


class BrokerIdNotRegistered(BrokerError, code=102):
    """The given broker ID was not registered."""


class InconsistentTopicId(BrokerError, code=103, retriable=True):
    """The log's topic ID did not match the topic ID in the request."""


class InconsistentClusterId(BrokerError, code=104):
    """The clusterId in the request does not match that found on the server."""


class TransactionalIdNotFound(BrokerError, code=105):
    """The transactionalId could not be found."""


class FetchSessionTopicIdError(BrokerError, code=106, retriable=True):
    """The fetch session encountered inconsistent topic ID usage."""


class IneligibleReplica(BrokerError, code=107):
    """The new ISR contains at least one ineligible replica."""


class NewLeaderElected(BrokerError, code=108):
    """The AlterPartition request successfully updated the partition state but the leader has
    changed.
    """


class OffsetMovedToTieredStorage(BrokerError, code=109):
    """The requested offset is moved to tiered storage."""


class FencedMemberEpoch(BrokerError, code=110):
    """The member epoch is fenced by the group coordinator."""


class UnreleasedInstanceId(BrokerError, code=111):
    """The instance ID is still used by another member in the consumer group."""


class UnsupportedAssignor(BrokerError, code=112):
    """The assignor or its version range is not supported by the consumer group."""


class StaleMemberEpoch(BrokerError, code=113):
    """The member epoch is stale."""


class MismatchedEndpointType(BrokerError, code=114):
    """The request was sent to an endpoint of the wrong type."""


class UnsupportedEndpointType(BrokerError, code=115):
    """This endpoint type is not supported yet."""


class UnknownControllerId(BrokerError, code=116):
    """This controller ID is not known."""


class UnknownSubscriptionId(BrokerError, code=117):
    """Client sent a push telemetry request with an invalid or outdated subscription ID."""


class TelemetryTooLarge(BrokerError, code=118):
    """Client sent a push telemetry request larger than the maximum size the broker will accept."""


class InvalidRegistration(BrokerError, code=119):
    """The controller has considered the broker registration to be invalid."""


class TransactionAbortable(BrokerError, code=120):
    """The server encountered an error with the transaction."""


class InvalidRecordState(BrokerError, code=121):
    """The record state is invalid. The acknowledgement of delivery could not be completed."""


class ShareSessionNotFound(BrokerError, code=122, retriable=True):
    """The share session was not found."""


class InvalidShareSessionEpoch(BrokerError, code=123, retriable=True):
    """The share session epoch is invalid."""


class FencedStateEpoch(BrokerError, code=124):
    """The share coordinator refused: the share-group state epoch did not match."""


class InvalidVoterKey(BrokerError, code=125):
    """The voter key doesn't match the receiving replica's key."""


class DuplicateVoter(BrokerError, code=126):
    """The voter is already part of the set of voters."""


class VoterNotFound(BrokerError, code=127):
    """The voter is not part of the set of voters."""


class InvalidRegularExpression(BrokerError, code=128):
    """The regular expression is not valid."""


class RebootstrapRequired(BrokerError, code=129):
    """Client metadata is stale. The client should rebootstrap to obtain new metadata."""


class StreamsInvalidTopology(BrokerError, code=130):
    """The supplied topology is invalid."""


class StreamsInvalidTopologyEpoch(BrokerError, code=131):
    """The supplied topology epoch is invalid."""


class StreamsTopologyFenced(BrokerError, code=132):
    """The supplied topology epoch is outdated."""


class ShareSessionLimitReached(BrokerError, code=133, retriable=True):
    """The limit of share sessions has been reached."""


_BY_CODE: Final[dict[int, type[BrokerError]]] = {
    error.code: error for error in BrokerError.__subclasses__()
}


def error_for_code(code: int) -> type[BrokerError]:
    """Return the error class of a code on the wire; UnknownServerError for an unknown code."""
    return _BY_CODE.get(code, UnknownServerError)
