"""ShareAcknowledge, and the acknowledgements that a ShareFetch brings along (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from broker_core import errors
from broker_core.coordinator.sharing.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    check_acknowledgements,
)
from broker_core.coordinator.sharing.share_records import SharePartitionKey
from broker_core.security.authorizer import Authorizer
from broker_core.server.authorization import may_read
from broker_core.server.cluster.view import ClusterView
from broker_core.server.network.request import Request
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.topics import TopicRegistry
from broker_core.server.sharing.share_partitions import SharePartitions
from broker_core.server.sharing.share_sessions import CLOSES, Place, ShareSession, is_opening

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ShareAcknowledgeRequest,
        ShareAcknowledgeRequestAcknowledgementBatch,
        ShareAcknowledgeResponse,
        ShareAcknowledgeResponsePartition,
        ShareFetchRequest,
        ShareFetchRequestAcknowledgementBatch,
        ShareFetchResponse,
        ShareFetchResponseCurrentLeader,
    )

    _Request = (
        Request[ShareFetchRequest, ShareFetchResponse]
        | Request[ShareAcknowledgeRequest, ShareAcknowledgeResponse]
    )
    _Body = ShareFetchRequest | ShareAcknowledgeRequest
    _Batch = ShareFetchRequestAcknowledgementBatch | ShareAcknowledgeRequestAcknowledgementBatch

_Partition = TypeVar("_Partition")

NO_LEADER: Final[ShareFetchResponseCurrentLeader] = {"leader_id": -1, "leader_epoch": -1}


class AcknowledgeParts(Protocol):
    """The parts of a broker that take acknowledgements from members of share groups."""

    authorizer: Authorizer | None
    topics: TopicRegistry
    share_partitions: SharePartitions
    view: ClusterView


class _Problem(NamedTuple):
    code: int
    message: str | None


_FINE: Final = _Problem(errors.NONE, None)


def _problem(error: errors.BrokerError) -> _Problem:
    return _Problem(error.code, str(error))


class Acknowledgements:
    """The acknowledgements of one request; calls `done` when all are durable."""

    def __init__(self, broker: AcknowledgeParts, request: _Request, session: ShareSession) -> None:
        self.problems: dict[Place, _Problem] = {}
        self._broker = broker
        self._request = request
        self._session = session
        self._waiting = 1  # one for the end of `take`
        self._done: Callable[[], None] | None = None

    def take(self, done: Callable[[], None]) -> None:
        """Apply all acknowledgements of the request."""
        self._done = done
        renews = self._request.body["is_renew_ack"]
        for topic in self._request.body["topics"]:
            for each in topic["partitions"]:
                if not each["acknowledgement_batches"]:
                    continue
                place = (topic["topic_id"], each["partition_index"])
                self.problems[place] = _FINE
                self._waiting += 1
                try:
                    self._take(place, each["acknowledgement_batches"], renews=renews)
                except errors.BrokerError as error:
                    self.problems[place] = _problem(error)
                    self._one_done()
        self._one_done()

    def _take(self, place: Place, batches: Sequence[_Batch], *, renews: bool) -> None:
        partition = find_partition(self._broker, self._request, place)
        acknowledgements = [
            Acknowledgement(each["first_offset"], each["last_offset"], each["acknowledge_types"])
            for each in batches
        ]
        check_acknowledgements(acknowledgements)
        if not renews and any(AcknowledgeType.RENEW in each.types for each in acknowledgements):
            raise errors.InvalidRequest("The request does not say that it renews.")

        def stored(code: int) -> None:
            if code:
                self.problems[place] = _Problem(code, None)
            self._one_done()

        session = self._session
        self._broker.share_partitions.acknowledge(
            SharePartitionKey(session.group_id, *place),
            partition,
            session.member_id,
            acknowledgements,
            stored,
        )

    def _one_done(self) -> None:
        self._waiting -= 1
        if not self._waiting and self._done is not None:
            self._done()


def find_partition(broker: AcknowledgeParts, request: _Request, place: Place) -> Partition:
    """Return a partition of a request.

    Raises UnknownTopicId, TopicAuthorizationFailed, UnknownTopicOrPartition, NotLeaderOrFollower.
    """
    topic = broker.topics.by_id(place[0])
    if topic is None:
        raise errors.UnknownTopicId()
    if not may_read(broker.authorizer, request, topic.name):
        raise errors.TopicAuthorizationFailed()
    partition = topic.partition(place[1])
    partition.check_is_led()
    return partition


def member_of(body: _Body) -> tuple[str, str]:
    """Return the ids of the group and of its member; raises InvalidRequest."""
    group_id, member_id = body["group_id"], body["member_id"]
    if not group_id:
        raise errors.InvalidRequest("GroupId can't be empty.")
    if not member_id:
        raise errors.InvalidRequest("MemberId can't be empty.")
    return group_id, member_id


def handle(
    broker: AcknowledgeParts, request: Request[ShareAcknowledgeRequest, ShareAcknowledgeResponse]
) -> None:
    """Answer a ShareAcknowledge request."""
    body = request.body
    groups = broker.share_partitions
    epoch = body["share_session_epoch"]
    try:
        member = member_of(body)
        if is_opening(epoch):
            raise errors.InvalidShareSessionEpoch("A share session begins with a ShareFetch.")
        session = groups.sessions.go_on(*member, epoch)
    except errors.BrokerError as error:
        request.reply({"error_code": error.code, "error_message": str(error)})
        return
    answers = Acknowledgements(broker, request, session)

    def answer() -> None:
        results: dict[Place, ShareAcknowledgeResponsePartition] = {
            place: {
                "partition_index": place[1],
                "current_leader": NO_LEADER,
                "error_code": problem.code,
                "error_message": problem.message,
            }
            for place, problem in answers.problems.items()
        }
        response: ShareAcknowledgeResponse = {
            "error_code": errors.NONE,
            "error_message": None,
            "acquisition_lock_timeout_ms": lock_ms(groups, session),
            "responses": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in by_topic(results).items()
            ],
        }
        named = by_name(broker.topics, results)
        broker.view.add_leaders(request, response, named)
        request.reply(response)

    answers.take(answer)
    if epoch == CLOSES:
        groups.release(session)


def lock_ms(groups: SharePartitions, session: ShareSession) -> int:
    """Return how long a member may keep records without acknowledgement, in ms."""
    return groups.settings.of_records(session.group_id).lock_ms


def by_topic(results: dict[Place, _Partition]) -> dict[bytes, list[_Partition]]:
    """Return the results by topic id."""
    topics: dict[bytes, list[_Partition]] = {}
    for (topic_id, _), each in results.items():
        topics.setdefault(topic_id, []).append(each)
    return topics


def by_name(
    topics: TopicRegistry, results: dict[Place, _Partition]
) -> Iterator[tuple[str, int, _Partition]]:
    """Yield the results of the topics that exist."""
    for (topic_id, index), result in results.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            yield topic.name, index, result
